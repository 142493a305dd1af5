"""ColumnarSessions: aggregates of record batches by key and session of event time.

Owner: the task thread. All rows of a batch find their sessions at once (`session_groups`). Each session has one place
in the arrays of aggregates (`live_sessions`). See docs/design/0035-columnar-windows.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.aggregate_state import SumOverflowError
from yarrow.container.operators.columnar.kept_rows import kept_rows
from yarrow.container.operators.columnar.row_times import Times
from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.container.operators.columnar_window.columnar_windows import (
    MOST_ROWS,
    PIECE,
    ColumnarWindows,
    Mask,
    Pieces,
)
from yarrow.container.operators.columnar_window.key_slots import KeySlots
from yarrow.container.operators.columnar_window.live_sessions import LiveSessions, Numbers
from yarrow.container.operators.columnar_window.session_groups import (
    Integers,
    MergedSessions,
    SessionBounds,
    merged,
    sessions_of_rows,
)
from yarrow.container.operators.columnar_window.slice_states import SliceStates
from yarrow.container.operators.registry import runs
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, ArrowBatch
from yarrow.runtime.graph.window_spec import ColumnarSessionOperator

#: Least number of sessions for which it is worth to number them anew.
_LEAST = 1024


@runs(ColumnarSessionOperator)
class ColumnarSessions(ColumnarWindows):
    """Aggregates by key and session."""

    _live: LiveSessions

    def __init__(self, name: str, spec: ColumnarSessionOperator) -> None:
        super().__init__(name, spec, spec.gap_ms)
        self._gap = spec.gap_ms
        #: No session ends before that has still to fire; None = there is none.
        self._next_end: int | None = None

    @property
    def _cut(self) -> str:
        return "sessions"

    def _begin(self) -> None:
        self._live = LiveSessions(self._new_states())
        self._next_end = None
        super()._begin()

    # ------------------------------------------------------------------ rows

    def _take(self, batch: ArrowBatch, times: Times) -> Iterator[ArrowBatch]:
        yield from self._take_rows(batch, times)
        if self.event_timers_due:
            # Sessions behind the watermark fire at once, each one time for all rows of the batch.
            yield from self.fire_event_timers(inf)

    def _take_rows(self, batch: ArrowBatch, times: Times) -> Iterator[ArrowBatch]:
        """Adds rows to their sessions; gives those that are late."""
        keys = self._columns.key_columns(batch.batch)
        slots = self._slots_of(keys)
        assert self._keys is not None
        of_batch = sessions_of_rows(slots, times, self._gap)
        live = self._live.of_keys(of_batch.sessions.keys, self._keys.size)
        found = merged(of_batch.sessions, self._live.sessions(live))
        group = found.of_rows.take(of_batch.of_rows)
        if self._is_late(int(times.min()) + self._gap):
            late = self._late(found.sessions.ends).take(group)
            doubtful = self._late(times + self._gap) & ~late
            if late.any() or (doubtful.any() and len(batch) > 1):
                last_times = found.sessions.ends.take(group) - 1
                yield from self._lose(batch, times, last_times, late, np.zeros(len(batch), np.bool_))
                for rows in _cut_at(doubtful, np.flatnonzero(~late)):
                    yield from self._take_rows(_rows_of(batch, rows), times.take(rows))
                return
        self._add(self._read_columns(batch.batch, times), group, found, live)

    def _is_late(self, end: int) -> bool:
        return end - 1 + self._lateness <= self.watermark

    def _late(self, ends: Times) -> Mask:
        """True for each end (int64, shape (ends,)) that is late."""
        return ends - 1 <= self.watermark - self._lateness

    def _add(
        self, columns: Sequence[pa.Array | None], group: Integers, found: MergedSessions, live: Numbers
    ) -> None:
        """Adds rows to their sessions, which have still to fire then; columns are those that aggregates read."""
        try:
            numbers = self._live.take(found, live)
            self._live.states.update(numbers.take(group), columns, self._live.size)
        except SumOverflowError as error:
            raise self._too_large(error) from None
        least = int(found.sessions.ends.take(found.of_rows).min())
        self._next_end = least if self._next_end is None else min(self._next_end, least)

    def _too_large(self, error: SumOverflowError) -> Exception:
        """The error for the sum of a session."""
        assert self._keys is not None
        keys, starts, ends = self._live.sessions(np.array([error.slot]))
        where = f" in the session from {starts[0]} to {ends[0]} ms"
        return self._columns.overflow(error, self._keys.columns_at(keys), 0, where)

    # ------------------------------------------------------------------ sessions that fire

    @property
    def event_timers_due(self) -> bool:
        return self._next_end is not None and self._next_end - 1 <= self.watermark

    def fire_event_timers(self, deadline: float) -> Iterator[ArrowBatch]:
        self._owes = False
        if self.event_timers_due:
            due = self._live.due(self.watermark)
            for at in range(0, len(due), MOST_ROWS):
                piece = due[at : at + MOST_ROWS]
                yield from self._fire(piece)
                self.fired_timers += len(piece)
                if perf_counter() >= deadline and at + MOST_ROWS < len(due):
                    return
        if self._keys is not None:
            self._forget()

    def _fire(self, numbers: Numbers) -> Iterator[ArrowBatch]:
        """The results of sessions, which have fired then."""
        self._live.mark_fired(numbers)
        keys, starts, ends = self._live.sessions(numbers)
        made, failing = self._result(keys, starts, ends, self._live.states.values(numbers))
        if len(failing):
            self._live.lose_rows(numbers.take(failing))
        if made is not None:
            yield made

    def end_keys(self) -> Iterator[ArrowBatch]:
        if self._keys is None:
            return
        self.watermark = MAX_TIMESTAMP
        yield from self.fire_event_timers(inf)
        self.watermark = MIN_TIMESTAMP
        self._keys = self._next_end = None

    def _forget(self) -> None:
        """Forgets late sessions and, from time to time, the keys that have none left."""
        self._live.remove_late(self.watermark, self._lateness)
        self._next_end = self._live.next_end()
        keys = self._keys
        if keys is None or max(self._live.size, keys.size) <= _LEAST:
            return
        numbers = self._live.numbers
        if 2 * len(numbers) > self._live.size and 4 * len(numbers) > keys.size:
            return
        held = np.unique(self._live.sessions(numbers).keys)
        self._keys, new_slots = keys.kept(held)
        slot_of = np.full(keys.size, -1, np.int64)
        slot_of[held] = new_slots

        def new_slot_of(slots: Slots) -> Slots:
            return slot_of.take(slots)

        self._live = self._live.compacted(self._new_states(), new_slot_of)

    # ------------------------------------------------------------------ snapshots

    @property
    def entry_count(self) -> int:
        if self._keys is None:
            return len(self._restored[0])
        return len(np.unique(self._live.sessions(self._live.numbers).keys))

    def _frozen(self, keys: KeySlots) -> Pieces:
        """Keys and values: start, end and states of each session, and whether it has fired."""
        keys_of, live = keys.frozen_keys(), self._live
        keys_size = keys.size
        states, numbers = live.states.frozen(live.size), live.numbers
        slots, starts, ends = live.sessions(numbers)
        order = np.argsort(slots, kind="stable")
        slots, fired = slots.take(order), live.fired(numbers).take(order)
        numbers, starts, ends = numbers.take(order), starts.take(order), ends.take(order)

        def pieces() -> Iterator[tuple[list[Any], list[Any]]]:
            for first in range(0, keys_size, PIECE):
                low, high = np.searchsorted(slots, [first, first + PIECE]).tolist()
                held: dict[int, list[Any]] = {}
                rows = zip(
                    slots[low:high].tolist(),
                    starts[low:high].tolist(),
                    ends[low:high].tolist(),
                    fired[low:high].tolist(),
                    self._entries(states, numbers[low:high]),
                    strict=True,
                )
                for slot, start, end, has_fired, entry in rows:
                    held.setdefault(slot, []).append((start, end, has_fired, entry))
                if held:
                    piece = keys_of(first, min(first + PIECE, keys_size))
                    yield [piece[slot - first] for slot in held], [{"sessions": of} for of in held.values()]

        return pieces()

    def _entries(self, states: SliceStates, numbers: Numbers) -> list[dict[str, Any]]:
        """The plain states of sessions by name; `numbers` are int64, shape (sessions,)."""
        in_order = self._new_states()
        in_order.merge(np.arange(len(numbers)), states, numbers, len(numbers))
        return in_order.entries(0, len(numbers), self._columns.state_names)[1]

    def _restore(self, values: Sequence[dict[str, Any]]) -> None:
        rows = [(slot, *session) for slot, value in enumerate(values) for session in value["sessions"]]
        columns = np.array([row[:3] for row in rows], np.int64).reshape(len(rows), 3).T
        fired = np.fromiter((row[3] for row in rows), np.bool_, len(rows))
        self._live.restore(SessionBounds(*columns), fired)
        self._columns.restore(self._live.states.states, [row[4] for row in rows])
        self._live.states.restore_present(np.arange(len(rows)), len(rows))
        self._next_end = self._live.next_end()


def _cut_at(doubtful: Mask, rows: Numbers) -> list[Numbers]:
    """The rows in their order, cut so that doubtful ones stand alone: int64, shape (rows of the part,).

    A doubtful row is late by itself, and belongs to a session that is not. That counts if the session is there when the
    row comes.
    """
    at = np.flatnonzero(doubtful.take(rows))
    parts = np.split(rows, np.unique(np.concatenate([at, at + 1])))
    return [part for part in parts if len(part)]


def _rows_of(batch: ArrowBatch, rows: Numbers) -> ArrowBatch:
    """Some rows of a batch; `rows` are int64, shape (rows,), ascending."""
    part = np.zeros(len(batch), np.bool_)
    part[rows] = True
    (taken,) = kept_rows(batch, pa.array(part))
    return taken
