"""TaskBuilder: builds a StreamTask from a deployment: channels, partitions, gate and chain.

Owner: the task thread that will run the task. The channels follow from the JobGraph's edges and the
placements alone (runtime.graph.distribution), so nobody sends lists of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.codegen.code_writer import CompiledCode
from yarrow.container.codegen.freezing import needs_fixing
from yarrow.container.network.blocking_partition import ResultKey, SpoolChannel, SpoolError
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.input_gate import GateChannel, InputGate
from yarrow.container.network.network_environment import NetworkEnvironment
from yarrow.container.network.output_channel import OutputChannel
from yarrow.container.network.result_partition import ResultPartition
from yarrow.container.network.stalled_channels import StalledChannels, WatchedChannel
from yarrow.container.operators.base import (
    NOTHING_RESTORED,
    CollectMessage,
    ReaderProgress,
    TaskEnvironment,
)
from yarrow.container.task.checkpointing.channel_origins import ChannelOrigins, checking_codec_of, edge_type
from yarrow.container.task.checkpointing.recovered_records import RecoveredRecords, recovered_records
from yarrow.container.task.checkpointing.subtask_checkpoint_coordinator import NoSnapshots, SnapshotReceiver
from yarrow.container.task.latency import LatencySettings, LatencyTracker
from yarrow.container.task.stream_task import StreamTask, TaskHost, TaskListener
from yarrow.container.task.task_environment import (
    BatchBounds,
    TaskAttempt,
    TaskServices,
    partition_over,
    task_environment,
)
from yarrow.container.task.task_outputs import TaskOutputs
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobVertexID
from yarrow.runtime.config.options import checkpointing, execution, pipeline, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.distribution import consumers_of, producers_of
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex, ResultPartitionType
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.runtime.rpc.messages import (
    NOT_PLACED,
    Deployment,
    TaskDeploymentDescriptor,
    TaskPlacement,
    WorkerAddress,
)

if TYPE_CHECKING:
    from yarrow.container.network.columnar_partition import ColumnarResultPartition
    from yarrow.container.network.feedback.feedback_channel import FeedbackChannel, FeedbackChannels
    from yarrow.container.task.loop_markers import LoopOfTask
    from yarrow.runtime.graph.loops.loop_paths import LoopPath


class CallNotes(Protocol):
    """Notes which chain of a worker runs, for whoever finds the worker dead."""

    def running(self, now: bool) -> None:
        """A slice of the task begins, or has ended."""
        ...

    def compiled(self, code: CompiledCode) -> None:
        """Takes a generated function before its first call."""
        ...


class TaskHooks:
    """The worker's services for a task; see TaskEnvironment for each."""

    def __init__(
        self,
        listener: TaskListener,
        write_output: Callable[[str], None],
        send_operator_event: Callable[[TaskBuilder, str, int, int, bytes], None],
        push_collected: Callable[[TaskBuilder, CollectMessage], None],
        snapshots: SnapshotReceiver | None = None,
        result_key: bytes = b"",
        note_calls: Callable[[TaskBuilder], CallNotes | None] = lambda builder: None,
        report_watermark: Callable[[TaskBuilder, ReaderProgress], None] | None = None,
    ) -> None:
        """`note_calls` gives what notes the calls of a task; None = nobody does.

        `report_watermark`: None = sources are not aligned, since nobody compares them.
        """
        self.report_watermark = report_watermark
        self.note_calls = note_calls
        #: Takes frozen state of tasks; None = they take part in no checkpoint.
        self.snapshots = snapshots
        self.listener = listener
        self.write_output = write_output
        self.send_operator_event = send_operator_event
        self.push_collected = push_collected
        self.result_key = result_key

    @cached_property
    def feedback(self) -> FeedbackChannels:
        """The feedback of all loops of the worker."""
        # Imported late, as all of loops: most jobs have none.
        from yarrow.container.network.feedback.feedback_channel import FeedbackChannels

        return FeedbackChannels()


class TaskBuilder:
    """Builds one subtask of a deployment."""

    def __init__(
        self,
        deployment: Deployment,
        graph: JobGraph,
        descriptor: TaskDeploymentDescriptor,
        settings: Settings,
        network: NetworkEnvironment,
        clock: Clock,
        hooks: TaskHooks,
        wake_thread: Callable[[], None],
    ) -> None:
        self.deployment = deployment
        self.graph = graph
        self.descriptor = descriptor
        self.vertex = graph.vertex(descriptor.vertex_id)
        self._settings = settings
        self._network = network
        self._clock = clock
        self._hooks = hooks
        self._wake_thread = wake_thread
        self._origins = ChannelOrigins(graph, forced=settings.get(checkpointing.UNALIGNED_FORCED))
        self._placements: Mapping[str, tuple[TaskPlacement, ...]] = {
            placement.vertex_id: placement.subtasks for placement in deployment.placements
        }
        self._paths = [path for path in _loops_of(graph) if self._belongs_to(path)]
        self._task: StreamTask | None = None
        #: Folder for files that end with the task.
        self.local_directory = os.path.join(network.working_directory, f"task-{descriptor.attempt_id}")
        #: Set before `build` if the deployment names state.
        self.restored = NOTHING_RESTORED

    def build(self) -> StreamTask:
        """The task, with all its channels opened."""
        environment = self.task_environment()
        partitions = [self.result_partition(edge) for edge in self.graph.outputs_of(self.vertex.id)]
        vertices = {vertex.id: vertex for vertex in self.graph.vertices}
        notes = self._hooks.note_calls(self)
        chain = OperatorChain(
            self.vertex,
            environment,
            partitions,
            lambda partition: vertices[partition.edge.target],
            None if notes is None else notes.compiled,
        )
        self._task = StreamTask(
            environment,
            chain,
            self._gate(),
            TaskOutputs(partitions, self.vertex.buffer_timeout_ms),
            TaskHost(
                self._hooks.listener,
                self._wake_thread,
                self._hooks.snapshots or NoSnapshots(),
                None if notes is None else notes.running,
            ),
            slice_seconds=self._settings.get(execution.SLICE_TIME).seconds,
            latency=LatencyTracker(
                LatencySettings.of(self._settings),
                [operator.id for operator in self.vertex.operators],
                self.descriptor.subtask,
                environment.metrics,
                self._clock,
            ),
            recover=self._recovered,
        )
        if self._paths:
            self._task.join_loops([self._loop_of_task(path) for path in self._paths])
        self._watch_channels(self._task)
        return self._task

    def _belongs_to(self, path: LoopPath) -> bool:
        vertex = self.vertex.id
        ends = (path.head, path.tail)
        return vertex in ends or any(edge.index in path.edges for edge in self.graph.outputs_of(vertex))

    def _loop_of_task(self, path: LoopPath) -> LoopOfTask:
        edges = [edge for edge in self.graph.inputs_of(self.vertex.id) for _ in self._producers(edge)]
        positions = [position for position, edge in enumerate(edges) if edge.index in path.edges]
        from yarrow.container.task.loop_markers import LoopOfTask

        return LoopOfTask(path, tuple(positions))

    def head_of(self, loop: int) -> ExecutionAttemptID:
        """The attempt of the head of a loop in this subtask. Raises RuntimeError if another worker has it."""
        subtask = self.descriptor.subtask
        head = next(path.head for path in self._paths if path.number == loop)
        if self.address_of(head, subtask) != self.address_of(self.vertex.id, subtask):
            raise RuntimeError(
                f"subtask {subtask + 1} of '{self.vertex.name}' must run in the slot of"
                f" '{self.graph.vertex(head).name}'. Both belong to one iteration: give them one parallelism and"
                " slot sharing group"
            )
        return self.attempt_of(head, subtask)

    def _watch_channels(self, task: StreamTask) -> None:
        """Registers a metric that watches for stalled channels: it is read once a second."""
        watched = [
            WatchedChannel(channel, partition.edge.index, self._title(partition.edge.target, consumer))
            for partition in task.partitions
            # A blocking result waits for its disk, not for a consumer.
            if partition.edge.result_type is not ResultPartitionType.BLOCKING
            for channel, consumer in zip(partition.channels, self._consumers(partition.edge), strict=True)
        ]
        watch = StalledChannels(
            self._title(self.vertex.id, self.descriptor.subtask),
            watched,
            lambda: task.time.phase.is_back_pressured,
            self._settings.get(taskmanager.STALLED_CHANNEL_WARNING).seconds,
            self._clock.monotonic,
        )
        task.environment.metrics.register("stalledChannels", watch.look)

    def _title(self, vertex_id: JobVertexID, subtask: int) -> str:
        vertex = self.graph.vertex(vertex_id)
        return f"'{vertex.name}' ({subtask + 1}/{vertex.parallelism})"

    def _recovered(self) -> RecoveredRecords:
        """The restored records in flight; call it when their state has been fetched."""
        head = self.vertex.operators[0].id
        return recovered_records(self.restored, head, self._origins, self.descriptor.subtask)

    def address_of(self, vertex_id: str, subtask: int) -> WorkerAddress | None:
        """The worker of a subtask; None if it had none at the time of this deployment."""
        worker = self._placements[vertex_id][subtask].worker
        return None if worker == NOT_PLACED else self.deployment.workers[worker]

    def attempt_of(self, vertex_id: str, subtask: int) -> ExecutionAttemptID:
        """The attempt of a subtask at the time of this deployment."""
        return self._placements[vertex_id][subtask].attempt_id

    def task_environment(self) -> TaskEnvironment:
        """The facts and services of the task for its operators."""
        descriptor, hooks = self.descriptor, self._hooks
        report = hooks.report_watermark
        services = TaskServices(
            wake=self._wake,
            post=self._post,
            write_output=hooks.write_output,
            send_operator_event=lambda *event: hooks.send_operator_event(self, *event),
            push_collected=lambda message: hooks.push_collected(self, message),
            result_key=hooks.result_key,
            loops=_LoopsOfSubtask(self, hooks),
            report_watermark=None if report is None else partial(report, self),
        )
        attempt = TaskAttempt(
            descriptor.attempt_id,
            self.vertex.id,
            descriptor.subtask,
            descriptor.attempt_number,
            self.local_directory,
            self.restored,
            descriptor.latest_savepoint_id,
        )
        return task_environment(self.graph, attempt, self._settings, self._clock, services)

    def _wake(self) -> None:
        if self._task is not None:
            self._task.wake()

    def _post(self, mail: Callable[[], None]) -> None:
        assert self._task is not None
        self._task.post(mail)

    def _codec(self, edge: JobEdge) -> ElementCodec:
        return checking_codec_of(self.graph, edge)

    def result_partition(self, edge: JobEdge) -> ResultPartition | ColumnarResultPartition:
        """The output for one edge, with its channels opened."""
        blocking = edge.result_type is ResultPartitionType.BLOCKING
        channels = self._spool_channels(edge) if blocking else self._pipelined_channels(edge)
        bounds = BatchBounds(
            self._settings.get(execution.BATCH_MAX_ROWS), self._settings.get(execution.BATCH_MAX_SIZE).bytes
        )
        return partition_over(self.graph, edge, channels, bounds)

    def _consumers(self, edge: JobEdge) -> range:
        consumers = self.graph.vertex(edge.target).parallelism
        return consumers_of(
            edge.partitioner.kind, self.vertex.parallelism, consumers, self.descriptor.subtask
        )

    def _pipelined_channels(self, edge: JobEdge) -> list[OutputChannel]:
        consumers = self._placements[edge.target]
        codec = self._codec(edge)
        object_reuse = self._settings.get(pipeline.OBJECT_REUSE)
        broadcasts = edge.partitioner.kind is PartitionerKind.BROADCAST
        copies = broadcasts and needs_fixing(edge_type(edge), object_reuse)
        channels = []
        for consumer in self._consumers(edge):
            channel = self._network.open_output(
                (consumers[consumer].attempt_id, edge.index, self.descriptor.subtask),
                self.descriptor.attempt_id,
                self.deployment.workers[consumers[consumer].worker],
                codec,
                self._wake_thread,
                copies,
            )
            channel.origin = self._origins.overtakable(edge, self.descriptor.subtask, consumer, codec)
            channels.append(channel)
        return channels

    def _spool_channels(self, edge: JobEdge) -> list[OutputChannel]:
        """Channels into files. Consumers come when the result is complete; their workers are not known yet."""
        codec, spool = self._codec(edge), self._network.spool
        channels: list[OutputChannel] = []
        try:
            for consumer in self._consumers(edge):
                key = ResultKey(self.descriptor.attempt_id, edge.index, consumer)
                channels.append(SpoolChannel(spool, key, codec, self._wake_thread))
        except SpoolError:
            for channel in channels:
                channel.close("the task could not be built")
            raise
        return channels

    def _gate(self) -> InputGate:
        edges = self.graph.inputs_of(self.vertex.id)
        total = sum(len(self._producers(edge)) for edge in edges)
        pool = self._settings.get(taskmanager.NETWORK_TASK_POOL_SIZE).bytes
        window = min(pool // max(1, total), self._settings.get(taskmanager.CHANNEL_CREDIT_SIZE).bytes)
        batches = min(
            self._settings.get(taskmanager.CHANNEL_CREDIT_BATCHES),
            max(1, self._settings.get(taskmanager.NETWORK_TASK_POOL_BATCHES) // max(1, total)),
        )
        channels = []
        here = self.address_of(self.vertex.id, self.descriptor.subtask)
        assert here is not None, "a task is built where it is placed"
        for edge in edges:
            codec = self._codec(edge)
            for producer in self._producers(edge):
                key = (ExecutionAttemptID(self.descriptor.attempt_id), edge.index, producer)
                origin = self._origins.overtakable(edge, producer, self.descriptor.subtask, codec)
                channel = self._network.open_input(key, codec, batches, window, self._wake_thread, origin)
                if edge.result_type is ResultPartitionType.BLOCKING:
                    self._fetch_result(channel, edge, producer)
                address = self.address_of(edge.source, producer)
                is_local = address is not None and address.resource_id == here.resource_id
                name = f"{self.graph.vertex(edge.source).name} ({producer + 1}/{len(self._producers(edge))})"
                channels.append(
                    GateChannel(
                        channel,
                        edge.target_input,
                        is_local=is_local,
                        producer=name,
                        stream=edge.index,
                        subtask=producer,
                    )
                )
        inputs = 1 + max((edge.target_input for edge in edges), default=0)
        max_drift = self.vertex.max_input_drift_ms
        if max_drift is None:
            return InputGate(channels, inputs, self._clock)
        from yarrow.container.network.input_drift import InputDrift

        return InputGate(channels, inputs, self._clock, InputDrift(max_drift))

    def _fetch_result(self, channel: InputChannel, edge: JobEdge, producer: int) -> None:
        descriptor = self.descriptor
        request = self._network.fetch_request(
            edge.index,
            (self.attempt_of(edge.source, producer), producer),
            (descriptor.attempt_id, descriptor.subtask),
        )
        address = self.address_of(edge.source, producer)
        assert address is not None, "a consumer is deployed when its producers have finished"
        self._network.open_result(channel, address, request)

    def _producers(self, edge: JobEdge) -> range:
        producers = self.graph.vertex(edge.source).parallelism
        return producers_of(
            edge.partitioner.kind, producers, self.vertex.parallelism, self.descriptor.subtask
        )


class _LoopsOfSubtask:
    """The LoopAccess of one task."""

    def __init__(self, builder: TaskBuilder, hooks: TaskHooks) -> None:
        self._builder = builder
        self._hooks = hooks

    def acquire(self, loop: int) -> FeedbackChannel:
        return self._hooks.feedback.acquire(self._builder.head_of(loop), loop)

    def release(self, loop: int) -> None:
        self._hooks.feedback.release(self._builder.head_of(loop), loop)


def _loops_of(graph: JobGraph) -> Sequence[LoopPath]:
    if not any(
        operator.spec.opens_loop is not None for vertex in graph.vertices for operator in vertex.operators
    ):
        return ()
    from yarrow.runtime.graph.loops.loop_paths import loops_of

    return loops_of(graph)


def position_of(graph: JobGraph, vertex: JobVertex) -> int:
    """Place of a vertex in topological order: smaller is upstream."""
    return graph.vertices.index(vertex)
