"""CollectStream: rows of a collect operator in one order, and the form in which they are kept in its state.

Owner: the task thread. Positions count on over attempts, masters and parallelisms. It must not know when rows are sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

#: Name of the operator's list state; part of the format of savepoints. An element is a stream: its name, its end,
#: whether its rows are record batches, those that the client has not confirmed, their writers, the name of the client's
#: iterator, and the position from which on the rows are any other client's. The last three were added later.
STREAMS = "collect-streams"


class CollectStream:
    """Rows in one order, counted from 0 over all attempts.

    A subtask that goes on from a checkpoint goes on with the streams that it finds there: at another parallelism these
    may be several, or none. Then it begins one, named by that checkpoint, so that no name comes twice.
    """

    def __init__(
        self,
        name: str,
        writer: str,
        end: int = 0,
        rows: list[Any] | None = None,
        former: Iterable[tuple[int, str]] = (),
    ) -> None:
        """`writer`: the attempt that goes on with it; `former`: as `writers`, of the state that it begins from."""
        self.name = name
        #: Position behind the last row.
        self.end = end
        #: The last ones, which the client has not confirmed.
        self.rows = rows or []
        #: Position behind the last row that was sent, and taken on the way.
        self.sent = self.first
        #: Position from which on rows stay where they are; None = none do.
        self.held_from: int | None = None
        #: Where this attempt began: rows of former attempts from there on are void.
        self.restored = end
        #: Rows before it are covered by a completed checkpoint.
        self.confirmed = end
        #: What the client was told last of `confirmed`; -1 = it does not know of this attempt.
        self.told = -1
        self._writers = [*former, (end, writer)]

    @property
    def first(self) -> int:
        """Position of the first of `rows`."""
        return self.end - len(self.rows)

    @property
    def unsent(self) -> int:
        """Rows that nobody has taken yet and that are to leave; some of them may be under way."""
        return (self.end if self.held_from is None else self.held_from) - self.sent

    @property
    def writers(self) -> tuple[tuple[int, str], ...]:
        """From which position on which attempt has written the rows from `first` on, in order; this one is the last."""
        following = [*(begin for begin, _ in self._writers[1:]), None]
        self._writers = [
            each
            for each, next_begin in zip(self._writers, following, strict=True)
            if next_begin is None or (next_begin > self.first and next_begin > each[0])
        ]
        return tuple(self._writers)

    def _leave(self, position: int) -> None:
        """The rows before the position are another client's, which has them."""
        del self.rows[: max(0, position - self.first)]
        self.sent = self.first

    @classmethod
    def restored_from(cls, element: tuple[Any, ...], attempt: str, iterator: str) -> CollectStream:
        """The stream of an element, with what is left of it for the client with that iterator."""
        name, end, batches, rows, *added = element
        missing: tuple[Any, ...] = ((), "", 0)[len(added) :]
        writers, stored_for, others_from = [*added, *missing]
        stream = cls(name, attempt, end, [_restored_row(row, batches) for row in rows], writers)
        if stored_for != iterator:
            stream._leave(others_from)
        return stream

    def element(self, iterator: str, others_from: int) -> tuple[Any, ...]:
        """What is stored of it; see STREAMS."""
        return (self.name, self.end, *_stored_rows(self.rows), self.writers, iterator, others_from)

    def append(self, row: Any) -> None:
        """A row behind the last."""
        self.rows.append(row)
        self.end += 1

    def let_go(self, position: int) -> None:
        """The client has all rows before the position."""
        count = min(position, self.sent) - self.first
        if count > 0:
            del self.rows[:count]


def _stored_rows(rows: list[Any]) -> tuple[bool, list[Any]]:
    """Whether they are record batches, and how they are kept in state."""
    if rows and isinstance(rows[0], pa.RecordBatch):
        return True, [_ipc(batch) for batch in rows]
    return False, list(rows)


def _restored_row(row: Any, batches: bool) -> Any:
    if not batches:
        return row
    with pa.ipc.open_stream(row) as stream:
        return stream.read_next_batch()


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())
