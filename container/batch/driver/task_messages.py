"""Messages between a stage's tasks and their driver: framed msgpack over a Unix socket, or over TCP with mutual TLS.

Owner: none (frozen values). What tasks say of an attempt counts once Spark has taken it: failures alone count at
once.
"""

from __future__ import annotations

import msgspec

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.largest_key_group import LargestKeyGroup
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.rpc.messages import FailureCause


class FromTask(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of the messages of a task."""


class ToTask(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of the driver's answers to a task on another host."""


class JobWanted(FromTask, frozen=True, kw_only=True):
    """First message of a connection: the process needs the job of the run; SentJob follows."""


class FileWanted(FromTask, frozen=True, kw_only=True):
    """Behind JobWanted: the process needs a shipped file; its parts follow."""

    #: Key of its blob.
    key: str


class SentJob(ToTask, frozen=True, kw_only=True):
    """The SharedJob, encoded, with the driver's own paths."""

    job: bytes


class FilePart(ToTask, frozen=True, kw_only=True):
    """Bytes of a shipped file."""

    data: bytes
    last: bool


class AttemptStarted(FromTask, frozen=True, kw_only=True):
    """First message of a connection: the attempt runs."""

    run: int
    #: Position in `BatchPlan.stages`.
    stage: int
    subtask: int
    attempt: int
    pid: int
    #: Of a task in the body of an iteration, from 1; 0 = it is in none.
    superstep: int = 0
    #: Spark's number of the task, by which its errors name it.
    task_id: int = -1
    #: The folders of its executor with their disks, in words; "" = the driver sees them itself.
    disks: str = ""


class AttemptProgress(FromTask, frozen=True, kw_only=True):
    """Records so far, about once a second."""

    records_in: int
    records_out: int


class AttemptKeyGroups(FromTask, frozen=True, kw_only=True):
    """The attempt has read its input, and begins with its largest key group."""

    largest: LargestKeyGroup


class SharesWanted(FromTask, frozen=True, kw_only=True):
    """The attempt has sources or sinks, and asks for its shares of their rate limits; TaskShares follows."""


class TaskShares(ToTask, frozen=True, kw_only=True):
    """The shares of an attempt, by operator."""

    shares: dict[OperatorID, RateLimit]


class TokensWanted(FromTask, frozen=True, kw_only=True):
    """First message of a connection: the process has a file of tokens. TokensSent follows, and again for newer ones."""


class TokensSent(ToTask, frozen=True, kw_only=True):
    """The driver's newest delegation tokens of Hadoop."""

    #: As a file of tokens has them; empty = the driver was given none since its start.
    content: bytes

    def __repr__(self) -> str:
        return f"TokensSent({len(self.content)} bytes)"


class AttemptFailed(FromTask, frozen=True, kw_only=True):
    """The attempt has failed, and so has the run; Spark hears of it after the driver."""

    cause: FailureCause


class AttemptAt(FromTask, frozen=True, kw_only=True):
    """What the attempt does: from now and then, and from a process that is about to die."""

    #: "" = no operator runs.
    operator_name: str
    #: A short form of the present record; "" = it has no single one.
    record: str
    #: The user's frames, ready to print; only of a process that dies.
    stack: str = ""
    #: How the process ends; "" = it goes on.
    end: str = ""


class AttemptEnded(FromTask, frozen=True, kw_only=True):
    """The attempt has put out everything. A connection that ends without it belongs to a process that died."""

    records_in: int
    records_out: int


class ResultsStarted(FromTask, frozen=True, kw_only=True):
    """First message of the connection that brings the run's results, in order."""

    run: int
    attempt: int


class ResultChunk(FromTask, frozen=True, kw_only=True):
    """A chunk that is no row of an exchange; see container/batch/chunk.py."""

    stage: int
    attempt: int
    edge: int
    target: int
    producer: int
    sequence: int
    rows: int
    payload: bytes


class ResultsEnded(FromTask, frozen=True, kw_only=True):
    """All results were sent."""


FromTaskMessage = (
    AttemptStarted
    | AttemptProgress
    | AttemptKeyGroups
    | SharesWanted
    | AttemptAt
    | AttemptFailed
    | AttemptEnded
    | ResultsStarted
    | ResultChunk
    | ResultsEnded
    | JobWanted
    | FileWanted
    | TokensWanted
)

ToTaskMessage = SentJob | FilePart | TaskShares | TokensSent
