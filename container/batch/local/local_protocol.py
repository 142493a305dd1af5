"""Messages between the driver of a local batch job and its workers: framed msgpack over a pair of Unix sockets.

Owner: none (frozen values). The driver asks, the worker's main thread works, and answers once: with the reply, or with
WorkFailed. Results, progress and output come in between. Of its present task a worker tells what a task of Spark tells.
"""

from __future__ import annotations

import msgspec

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.driver.task_messages import AttemptEnded, AttemptKeyGroups, AttemptProgress
from yarrow.container.protocol.worker_protocol import LogLines, OutputLines, UserLogRecord
from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.rpc.messages import (
    BatchCommittables,
    BatchOutput,
    BatchSubtaskResult,
    CollectRows,
    FailureCause,
)


class ToBatchWorker(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of the driver's messages."""


class FromBatchWorker(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of a worker's messages."""


class AssignSplits(ToBatchWorker, frozen=True, kw_only=True):
    """Run the split enumerators of these vertices; SplitsAssigned follows."""

    vertices: tuple[JobVertexID, ...]


class RunTask(ToBatchWorker, frozen=True, kw_only=True):
    """Run a task, and write its file; AttemptEnded follows."""

    #: Position in `BatchPlan.stages`.
    stage: int
    subtask: int
    #: Splits of the source, if the stage has one.
    splits: tuple[bytes, ...] = ()
    #: Files of all tasks of the stages that it reads.
    inputs: tuple[str, ...] = ()
    #: The file for what it puts out.
    output: str
    #: Its shares of the rate limits of its sources and sinks.
    shares: dict[OperatorID, RateLimit] = msgspec.field(default_factory=dict)


class TakeShares(ToBatchWorker, frozen=True, kw_only=True):
    """Other shares of rate limits for the present task."""

    shares: dict[OperatorID, RateLimit]


class FinishedOutput(msgspec.Struct, frozen=True, array_like=True):
    """The file of a task that has finished."""

    stage: int
    subtask: int
    path: str


class SendResults(ToBatchWorker, frozen=True, kw_only=True):
    """Send what the tasks have for the client and the master; ResultsSent follows behind them."""

    outputs: tuple[FinishedOutput, ...]
    #: Most bytes of results in one message.
    part_bytes: int


class CommitResults(ToBatchWorker, frozen=True, kw_only=True):
    """Commit what the sinks have prepared, as it was sent; WorkDone follows."""

    #: Encoded StoredCommittables of a former run; empty = what this worker has sent.
    stored: bytes = b""


class RemoveLeftovers(ToBatchWorker, frozen=True, kw_only=True):
    """End what attempts of the sinks have begun and nobody commits; WorkDone follows."""


class ResultTaken(ToBatchWorker, frozen=True, kw_only=True):
    """The master has taken the last result; the next one may come."""


class CancelWork(ToBatchWorker, frozen=True, kw_only=True):
    """End that work soon, unless it has ended; its answer follows."""

    #: Which message that wants work it was, from 1.
    number: int


class EndBatchWorker(ToBatchWorker, frozen=True, kw_only=True):
    """End, when the present work has ended."""


class SplitsAssigned(FromBatchWorker, frozen=True, kw_only=True):
    """The splits of each subtask, by vertex."""

    splits: dict[JobVertexID, list[list[bytes]]]


class TakeResult(FromBatchWorker, frozen=True, kw_only=True):
    """A result for the master, one field of which is set; ResultTaken follows."""

    rows: CollectRows | None = None
    output: BatchOutput | None = None
    committables: BatchCommittables | None = None
    subtasks: tuple[BatchSubtaskResult, ...] = ()


class ResultsSent(FromBatchWorker, frozen=True, kw_only=True):
    """All results were taken."""

    #: There is something to commit.
    commits: bool


class WorkDone(FromBatchWorker, frozen=True, kw_only=True):
    """The work is done."""


class WorkFailed(FromBatchWorker, frozen=True, kw_only=True):
    """The work has failed, or was cancelled."""

    cause: FailureCause


MessageToBatchWorker = (
    AssignSplits
    | RunTask
    | TakeShares
    | SendResults
    | CommitResults
    | RemoveLeftovers
    | ResultTaken
    | CancelWork
    | EndBatchWorker
)
#: What ends a piece of work.
Answer = SplitsAssigned | AttemptEnded | ResultsSent | WorkDone | WorkFailed
MessageFromBatchWorker = (
    Answer | AttemptProgress | AttemptKeyGroups | TakeResult | OutputLines | LogLines | UserLogRecord
)
