"""Messages that carry what the control plane passes on unread: events of sources, rows of clients, blobs and logs.

Owner: none (frozen values). Whoever only routes them must not look into their bytes.
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, JobVertexID, OperatorID
from yarrow.runtime.rpc.messages.base import Message


class OperatorEvent(Message, frozen=True, kw_only=True):
    """Opaque event between a source's coordinator and its readers, routed by the JobMaster."""

    job_id: JobID
    vertex_id: JobVertexID
    operator_id: OperatorID
    #: -1 = the coordinator, else the reader's subtask.
    target_subtask: int
    #: -1 = the coordinator, else the reader's subtask.
    source_subtask: int
    payload: bytes
    #: The attempt it is for, of a coordinator that of subtask 0 with which it began: it is delivered to no other.
    #: "" = whichever runs.
    target_attempt: ExecutionAttemptID = ExecutionAttemptID("")
    #: The attempt that sent it, in the same sense.
    source_attempt: ExecutionAttemptID = ExecutionAttemptID("")


class CollectRows(Message, frozen=True, kw_only=True):
    """Rows of a collect operator on their way to the client.

    The control plane passes them on unread, in a form of runtime/snapshot/result_rows.py.

    One of the subtask -1 is of the JobMaster, which says by it that all tasks begin anew, from the checkpoint
    `restored` (-1 = none).
    """

    job_id: JobID
    collect_id: str
    subtask: int
    sequence: int
    payload: bytes
    row_count: int
    last: bool = False
    #: The payload goes on in the subtask's next message: one row may be longer than a message.
    continued: bool = False
    #: The subtask's attempt: each begins anew with its sequence, and leaves unfinished what the former continued.
    attempt_number: int = 0
    attempt_id: ExecutionAttemptID = ExecutionAttemptID("")
    #: Rows in one order, whose positions count on over attempts; a subtask may go on with several. The name is
    #: CHECKPOINT-SUBTASK: from which checkpoint it began, -1 = none, and where.
    stream: str = ""
    #: Position of the first row.
    first: int = 0
    #: Position at which the attempt began: what former ones have sent from there on is void.
    restored: int = 0
    #: Rows before this position are covered by a completed checkpoint.
    confirmed: int = 0
    #: From which position on which attempt has written what the stream holds, in order: another master's clients may
    #: not have heard of all of them.
    writers: tuple[tuple[int, str], ...] = ()
    #: No rows: the subtask has nothing left to do. Answered when the client has all that the attempt has sent, and a
    #: checkpoint covers it, or when the whole job waits for nothing else any more.
    awaits: bool = False
    #: Put in by the JobMaster: rows are handed out when they are confirmed, and not before.
    exactly_once: bool = False
    #: On the end mark: the job has finished, so that all rows count that have come.
    complete: bool = False
    #: Put in by the JobMaster: its buffer, and the number of the message in that; see CollectPosition.
    version: str = ""
    delivery: int = -1


class CollectPosition(Message, frozen=True, kw_only=True):
    """The last message that a client has of a collect operator: it asks for what follows, and confirms what came."""

    #: The buffer that numbered it, another one with each JobMaster; "" = the client has none yet.
    version: str = ""
    delivery: int = -1


#: Of a client that has nothing yet.
COLLECT_START = CollectPosition()


class CollectConfirmation(Message, frozen=True, kw_only=True):
    """What a client has, of the rows that one attempt of a subtask has sent: positions by stream."""

    positions: dict[str, int] = msgspec.field(default_factory=dict)


class BlobPart(Message, frozen=True, kw_only=True):
    """A piece of a stored payload: the bytes from the offset asked for, and the size of the whole."""

    data: bytes
    total_size: int


class FileInfo(Message, frozen=True, kw_only=True):
    """A log file: name, bytes, epoch ms of its last change."""

    name: str
    size: int
    mtime: int
