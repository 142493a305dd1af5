"""Messages that the control plane passes on unread: events of sources, rows of clients, blobs and logs.

Owner: none (frozen values). Routers must not look into their bytes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, JobVertexID, OperatorID
from yarrow.runtime.rpc.messages.base import Message

#: In place of a subtask, as the source or target of an OperatorEvent: the coordinator of a source.
COORDINATOR_SUBTASK: Final = -1
#: The same of the JobMaster, which deals out the shares of rate limits.
JOB_MASTER_SUBTASK: Final = -2


class OperatorEvent(Message, frozen=True, kw_only=True):
    """An opaque event between a source's coordinator and its readers, routed by the JobMaster."""

    job_id: JobID
    vertex_id: JobVertexID
    operator_id: OperatorID
    #: The reader's subtask, COORDINATOR_SUBTASK or JOB_MASTER_SUBTASK.
    target_subtask: int
    #: The same.
    source_subtask: int
    payload: bytes
    #: The receiving attempt: the event is delivered to no other. For a coordinator, the attempt of subtask 0
    #: with which it began. "" = the present one.
    target_attempt: ExecutionAttemptID = ExecutionAttemptID("")
    #: The sending attempt, in the same sense.
    source_attempt: ExecutionAttemptID = ExecutionAttemptID("")


class CollectRows(Message, frozen=True, kw_only=True):
    """Rows of a collect operator for the client.

    The control plane passes them on unread, in a form of runtime/snapshot/result_rows.py.

    A message of subtask -1 comes from the JobMaster: all tasks begin anew, from the checkpoint `restored` (-1
    = none).
    """

    job_id: JobID
    collect_id: str
    subtask: int
    sequence: int
    payload: bytes
    row_count: int
    last: bool = False
    #: The payload continues in the subtask's next message: one row may be longer than a message.
    continued: bool = False
    #: The subtask's attempt: each begins anew with its sequence, and drops the unfinished payload of the
    #: former.
    attempt_number: int = 0
    attempt_id: ExecutionAttemptID = ExecutionAttemptID("")
    #: Rows in one order, with positions that continue across attempts; a subtask may continue several
    #: streams. The name is CHECKPOINT-SUBTASK: the checkpoint from which the stream began (-1 = none), and
    #: the subtask.
    stream: str = ""
    #: Position of the first row.
    first: int = 0
    #: Position at which the attempt began: later rows of former attempts are void.
    restored: int = 0
    #: A completed checkpoint covers the rows before this position.
    confirmed: int = 0
    #: (position, attempt) for each writer of the stream's rows, in order: another master's clients may not
    #: know all of them.
    writers: tuple[tuple[int, str], ...] = ()
    #: No rows: the subtask has nothing left to do. The answer comes when the client has all rows of the
    #: attempt and a checkpoint covers them, or when the whole job only waits for that.
    awaits: bool = False
    #: Set by the JobMaster: rows are returned only when they are confirmed.
    exactly_once: bool = False
    #: On the end mark: the job has finished, so that all received rows count.
    complete: bool = False
    #: Set by the JobMaster: its buffer, and the number of the message in that; see CollectPosition.
    version: str = ""
    delivery: int = -1


class CollectPosition(Message, frozen=True, kw_only=True):
    """A client's last message of a collect operator: it requests the next ones and confirms the earlier ones."""

    #: The buffer that numbered it, another one for each JobMaster; "" = the client has no message yet.
    version: str = ""
    delivery: int = -1


#: The position of a client without messages.
COLLECT_START = CollectPosition()


class CollectConfirmation(Message, frozen=True, kw_only=True):
    """The client's confirmed rows of one attempt of a subtask: positions by stream."""

    positions: dict[str, int] = msgspec.field(default_factory=dict)


class BlobPart(Message, frozen=True, kw_only=True):
    """A piece of a stored payload: the bytes from the requested offset, and the size of the whole."""

    data: bytes
    total_size: int


class FileInfo(Message, frozen=True, kw_only=True):
    """A log file: name, bytes, epoch ms of its last change."""

    name: str
    size: int
    mtime: int
