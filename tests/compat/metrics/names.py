"""Names of Flink 2.3's metrics that dashboards read, by scope, and those that Yarrow leaves out, with the reason.

`X(+PerSecond)` stands for X and XPerSecond. Data for the tests beside it and for docs/metrics.md.
"""

from __future__ import annotations

_STATUSES = ("initializing", "created", "running", "restarting", "cancelling", "failing", "deploying")

JOB_MANAGER = (
    "numRegisteredTaskManagers numPendingTaskManagers numRunningJobs taskSlotsTotal taskSlotsAvailable"
)

JOB = (
    "uptime downtime numRestarts fullRestarts numRescales "
    "lastCheckpointDuration lastCheckpointSize lastCheckpointFullSize lastCheckpointMetadataSize "
    "lastCheckpointProcessedData lastCheckpointPersistedData lastCheckpointRestoreTimestamp "
    "lastCheckpointCompletedTimestamp lastCompletedCheckpointId numberOfInProgressCheckpoints "
    "numberOfCompletedCheckpoints numberOfFailedCheckpoints totalNumberOfCheckpoints "
    "allSubTasksRunningOrFinishedTime "
    + " ".join(f"{status}{field}" for status in _STATUSES for field in ("Time", "State", "TimeTotal"))
)
#: A text, which only REST shows.
JOB_TEXT = "lastCheckpointExternalPath"

TASK = (
    "numRecordsIn(+PerSecond) numRecordsOut(+PerSecond) numBytesIn(+PerSecond) numBytesOut(+PerSecond) "
    "numBuffersOut(+PerSecond) numBytesInLocal numBytesInRemote "
    "busyTimeMsPerSecond idleTimeMsPerSecond backPressuredTimeMsPerSecond softBackPressuredTimeMsPerSecond "
    "hardBackPressuredTimeMsPerSecond isBackPressured accumulateBusyTimeMs accumulateIdleTimeMs "
    "accumulateBackPressuredTimeMs checkpointAlignmentTime checkpointStartDelayNanos numFiredTimers(+PerSecond) "
    "mailboxQueueSize mailboxLatencyMs mailboxMailsPerSecond initializationTime currentInputWatermark "
    "Shuffle.Netty.Input.Buffers.inPoolUsage Shuffle.Netty.Input.Buffers.inputQueueLength "
    "Shuffle.Netty.Output.Buffers.outPoolUsage Shuffle.Netty.Output.Buffers.outputQueueLength "
    "buffers.inPoolUsage buffers.inputQueueLength buffers.outPoolUsage buffers.outputQueueLength "
    "Shuffle.Netty.Input.numBytesInLocal(+PerSecond) Shuffle.Netty.Input.numBytesInRemote(+PerSecond) "
    "Shuffle.Netty.Input.numBuffersInLocal(+PerSecond) Shuffle.Netty.Input.numBuffersInRemote(+PerSecond)"
)

OPERATOR = "numRecordsIn(+PerSecond) numRecordsOut(+PerSecond) currentInputWatermark currentOutputWatermark"
#: Of operators that drop late records.
WINDOWS = "numLateRecordsDropped"
TWO_INPUTS = "currentInput1Watermark currentInput2Watermark"
#: A histogram of the task's scope, which names source and operator itself.
LATENCY = "latency"

SOURCE = (
    "currentEmitEventTimeLag currentFetchEventTimeLag watermarkLag sourceIdleTime pendingRecords pendingBytes "
    "numRecordsInErrors"
)
#: Of sources whose watermarks are aligned, once the group's first watermark is known.
ALIGNED_SOURCE = "watermarkAlignmentDrift"
#: Behind `<operator>.split.<id>.watermark.`
SPLIT = "currentWatermark activeTimeMsPerSecond pausedTimeMsPerSecond idleTimeMsPerSecond"
#: Of Kafka's sources; a topic T and a partition P stand for all.
KAFKA = (
    "KafkaSourceReader.topic.T.partition.P.currentOffset KafkaSourceReader.topic.T.partition.P.committedOffset "
    "KafkaSourceReader.commitsSucceeded KafkaSourceReader.commitsFailed "
    "KafkaSourceReader.KafkaConsumer.records-lag-max KafkaSourceReader.KafkaConsumer.records-consumed-rate "
    "KafkaSourceReader.KafkaConsumer.bytes-consumed-rate"
)

SINK = "numRecordsSend numBytesSend numRecordsSendErrors currentSendTime"

PROCESS = (
    "Status.JVM.CPU.Load Status.JVM.CPU.Time Status.JVM.Memory.Heap.Used Status.JVM.Memory.Heap.Committed "
    "Status.JVM.Memory.Heap.Max Status.JVM.Memory.NonHeap.Used Status.JVM.Memory.NonHeap.Committed "
    "Status.JVM.Memory.NonHeap.Max Status.JVM.Threads.Count Status.JVM.GarbageCollector.All.Count "
    "Status.JVM.GarbageCollector.All.Time Status.JVM.GarbageCollector.All.TimeMsPerSecond "
    "Status.JVM.FileDescriptor.Open"
)
#: Of TaskExecutors only, whose workers alone have any of it.
TASK_EXECUTOR = (
    "Status.JVM.Memory.Direct.MemoryUsed Status.JVM.Memory.Direct.TotalCapacity Status.JVM.Memory.Direct.Count "
    "Status.Flink.Memory.Managed.Used Status.Flink.Memory.Managed.Total "
    "Status.Shuffle.Netty.TotalMemory Status.Shuffle.Netty.UsedMemory Status.Shuffle.Netty.AvailableMemory "
    "Status.Shuffle.Netty.TotalMemorySegments Status.Shuffle.Netty.UsedMemorySegments "
    "Status.Shuffle.Netty.AvailableMemorySegments"
)

STATE = "valueStateGetLatency valueStateUpdateLatency mapStateGetLatency listStateAddLatency"

#: What stands for something that the engine does not have: name -> why.
ABSENT = {
    "Status.JVM.Memory.Direct.Count": "Arrow's memory pool does not count the buffers that are alive",
    **dict.fromkeys(
        STATE.split(), "an access to state is a few instructions of generated code, not a call to time"
    ),
}


def names(scope: str) -> list[str]:
    """The single names of a scope, those that are absent left out."""
    found = []
    for name in scope.split():
        base = name.removesuffix("(+PerSecond)")
        found += [base] if base == name else [base, f"{base}PerSecond"]
    return [name for name in found if name not in ABSENT]
