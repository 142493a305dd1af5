"""CollectStream: rows of a collect operator in one order, and their form in its state.

Owner: the task thread. Positions continue across attempts, masters and parallelisms. It must not know when
rows are sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from yarrow.runtime.data.elements import is_record_batch

if TYPE_CHECKING:
    import pyarrow as pa

#: Name of the operator's list state; part of the format of savepoints. An element is a stream. It holds its
#: name, its end, whether its rows are record batches, and the unconfirmed rows. Then follow the writers of
#: these, the id of the client's iterator, and the position from which on the rows are for other clients too.
#: The last three were added later.
STREAMS = "collect-streams"


class CollectStream:
    """Rows in one order, counted from 0 over all attempts.

    A subtask that continues from a checkpoint continues the streams in its state. After a change of
    parallelism these may be several, or none. If there is none, it begins one with the checkpoint's id in its
    name, so that no name occurs twice.
    """

    def __init__(
        self,
        name: str,
        writer: str,
        end: int = 0,
        rows: list[Any] | None = None,
        former: Iterable[tuple[int, str]] = (),
    ) -> None:
        """`writer`: the attempt that continues it; `former`: the `writers` in the restored state."""
        self.name = name
        #: Position behind the last row.
        self.end = end
        #: The last rows, which the client has not confirmed.
        self.rows = rows or []
        #: Position behind the last row that was sent and accepted.
        self.sent = self.first
        #: Position from which on rows are not sent; None = all are.
        self.held_from: int | None = None
        #: Where this attempt began: later rows of former attempts are void.
        self.restored = end
        #: A completed checkpoint covers the rows before this position.
        self.confirmed = end
        #: The `confirmed` that the client knows; -1 = it does not know of this attempt.
        self.told = -1
        self._writers = [*former, (end, writer)]

    @property
    def first(self) -> int:
        """Position of the first of `rows`."""
        return self.end - len(self.rows)

    @property
    def unsent(self) -> int:
        """Number of rows that nobody has accepted and that must be sent; some may be on their way."""
        return (self.end if self.held_from is None else self.held_from) - self.sent

    @property
    def writers(self) -> tuple[tuple[int, str], ...]:
        """(position, attempt) for each writer of the rows from `first` on, in order; this attempt is the last."""
        following = [*(begin for begin, _ in self._writers[1:]), None]
        self._writers = [
            each
            for each, next_begin in zip(self._writers, following, strict=True)
            if next_begin is None or (next_begin > self.first and next_begin > each[0])
        ]
        return tuple(self._writers)

    def _leave(self, position: int) -> None:
        """Drops the rows before the position, which another client has."""
        del self.rows[: max(0, position - self.first)]
        self.sent = self.first

    @classmethod
    def restored_from(cls, element: tuple[Any, ...], attempt: str, iterator: str) -> CollectStream:
        """The stream of an element, with the remaining rows for the client with that iterator."""
        name, end, batches, rows, *added = element
        missing: tuple[Any, ...] = ((), "", 0)[len(added) :]
        writers, stored_for, others_from = [*added, *missing]
        stream = cls(name, attempt, end, [_restored_row(row, batches) for row in rows], writers)
        if stored_for != iterator:
            stream._leave(others_from)
        return stream

    def element(self, iterator: str, others_from: int) -> tuple[Any, ...]:
        """The stored element of the stream; see STREAMS."""
        return (self.name, self.end, *_stored_rows(self.rows), self.writers, iterator, others_from)

    def append(self, row: Any) -> None:
        """Adds a row."""
        self.rows.append(row)
        self.end += 1

    def let_go(self, position: int) -> None:
        """Drops the rows before the position, which the client has."""
        count = min(position, self.sent) - self.first
        if count > 0:
            del self.rows[:count]


def _stored_rows(rows: list[Any]) -> tuple[bool, list[Any]]:
    """Whether they are record batches, and their stored form."""
    if rows and is_record_batch(rows[0]):
        return True, [_ipc(batch) for batch in rows]
    return False, list(rows)


def _restored_row(row: Any, batches: bool) -> Any:
    if not batches:
        return row
    import pyarrow as pa  # only jobs with columns load it

    with pa.ipc.open_stream(row) as stream:
        return stream.read_next_batch()


def _ipc(batch: pa.RecordBatch) -> bytes:
    import pyarrow as pa  # only jobs with columns load it

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())
