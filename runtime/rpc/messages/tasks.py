"""Messages about running tasks: states, failures, metrics and accumulators, and the heartbeats that carry them.

Owner: none (frozen values). Failures are text that was made where they happened, never exceptions.
"""

from __future__ import annotations

from typing import Any

import msgspec

from yarrow.runtime.common.ids import ExecutionAttemptID, ResourceID
from yarrow.runtime.common.late_records import LateRecords
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages.base import Message
from yarrow.runtime.rpc.messages.slots import SlotReport


class FailureCause(Message, frozen=True, kw_only=True):
    """The cause of a task's or job's failure, as text that was made where it happened."""

    #: Qualified class name of the exception, e.g. builtins.ValueError or yarrow...WorkerLostError.
    exception_name: str
    message: str
    #: The user's own frames first, then helpful ones of ours; ready to print.
    stacktrace: str
    #: Operator whose function failed, "" = none.
    operator_name: str = ""
    #: Short form of the present record, "" = none.
    record: str = ""
    #: The finished attempt whose result a task could not read: it runs again. "" = none.
    lost_result: str = ""
    #: No retry could help the job: it fails at once, and its last checkpoint stays.
    is_final: bool = False
    #: Only the user can mend the cause: a job that waits for its first checkpoint fails at once.
    needs_user: bool = False


class TaskExecutionStateUpdate(Message, frozen=True, kw_only=True):
    """TaskExecutor -> JobMaster: a task has entered a state."""

    attempt_id: ExecutionAttemptID
    state: ExecutionState
    timestamp_ms: int
    cause: FailureCause | None = None
    accumulators: dict[str, Any] = msgspec.field(default_factory=dict)
    #: Last IO metrics of an ended task.
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    #: Last late records of the operators of an ended task.
    late_records: tuple[LateRecords, ...] = ()
    #: Threads of user code that an ended task has left behind: its worker must not be used again.
    threads_left: tuple[str, ...] = ()
    #: For an ended subtask 0 of a source: its split enumerator lives on in the worker.
    enumerator_lives: bool = False
    #: For subtask 0 of a source that FINISHED together with its split enumerator: the reader attempts that
    #: were done then; else None.
    finished_readers: tuple[ExecutionAttemptID, ...] | None = None
    #: The latest checkpoint that an ended task had cut or declined; -1 = none. The task ended before the barriers
    #: of later ones.
    latest_checkpoint: int = -1


class TaskMetrics(Message, frozen=True, kw_only=True):
    """Metric values of one running subtask, under Flink's names without scope.

    Operator metrics are under `<operator>.<metric>`.
    """

    attempt_id: ExecutionAttemptID
    values: dict[str, float]
    #: Of each operator that has some.
    late_records: tuple[LateRecords, ...] = ()


class AccumulatorReport(Message, frozen=True, kw_only=True):
    """Accumulator values of one subtask, in JSON types."""

    attempt_id: ExecutionAttemptID
    values: dict[str, Any]


class TaskExecutorToJobMasterHeartbeat(Message, frozen=True, kw_only=True):
    """Payload of the TaskExecutor's answer to a JobMaster's heartbeat."""

    resource_id: ResourceID
    running: tuple[ExecutionAttemptID, ...]
    metrics: tuple[TaskMetrics, ...]
    accumulators: tuple[AccumulatorReport, ...]


class TaskExecutorToResourceManagerHeartbeat(Message, frozen=True, kw_only=True):
    """Payload of the TaskExecutor's answer to the ResourceManager's heartbeat."""

    resource_id: ResourceID
    slot_report: SlotReport
    #: Process metrics (Status.JVM..., bytes and counts), summed over supervisor, template and workers.
    metrics: dict[str, float]
    #: The lowest TCP port on which a worker accepts data connections; -1 = none does.
    data_port: int = -1
