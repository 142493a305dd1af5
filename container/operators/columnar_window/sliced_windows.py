"""SlicedColumnarWindows: aggregates of record batches by key and tumbling, sliding or cumulative window.

Owner: the task thread. Windows are made of slices of their greatest common step, and a row is added to one slice. It
joins the rules (`time_slices`, `live_slices`, `fired_windows`) to the arrays of aggregates. See
docs/design/0035-columnar-windows.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Final

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
from yarrow.container.operators.columnar_window.divided_rows import Rows, divided, slices_in, spanned
from yarrow.container.operators.columnar_window.fired_windows import FiredWindows
from yarrow.container.operators.columnar_window.key_slots import KeySlots
from yarrow.container.operators.columnar_window.key_usage import KeyUsage
from yarrow.container.operators.columnar_window.live_slices import LiveSlices
from yarrow.container.operators.columnar_window.lost_rows import LostRows
from yarrow.container.operators.columnar_window.merged_slices import MergedSlices
from yarrow.container.operators.columnar_window.slice_parts import BatchRows, parts_of
from yarrow.container.operators.columnar_window.slice_states import SliceStates, slots_of_any
from yarrow.container.operators.registry import runs
from yarrow.container.operators.time_slices import TimeSlices
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, ArrowBatch
from yarrow.runtime.graph.window_spec import ColumnarWindowOperator

#: Most slices of a batch that are looked at one by one, before its rows are divided.
_FEW_SLICES: Final = 64


@runs(ColumnarWindowOperator)
class SlicedColumnarWindows(ColumnarWindows):
    """Aggregates by key and window, whose state is an array for each slice and aggregate."""

    def __init__(self, name: str, spec: ColumnarWindowOperator) -> None:
        super().__init__(name, spec, spec.size_ms)
        self._layout = TimeSlices(spec.size_ms, spec.slide_ms, spec.offset_ms, spec.cumulative)
        self._empty()

    def _empty(self) -> None:
        self._live: LiveSlices[SliceStates] = LiveSlices(self._layout, self._lateness)
        self._merged = MergedSlices(self._layout, self._live.at, self._new_states)
        self._fired = FiredWindows()
        #: The rows of windows that have failed.
        self._lost = LostRows(self._layout.slide)
        self._usage = KeyUsage()

    @property
    def _cut(self) -> str:
        layout = self._layout
        return f"slices of {layout.step} ms from {layout.offset % layout.step} ms on"

    # ------------------------------------------------------------------ rows

    def _take(self, batch: ArrowBatch, times: Times) -> Iterator[ArrowBatch]:
        span = spanned(times, self._layout)
        if slices_in(span) > _FEW_SLICES or any(self._live.is_lost(start, self.watermark) for start in span):
            parts = divided(times, self._layout)
            lost = [part for part in parts if self._live.is_lost(part[0], self.watermark)]
            kept = np.ones(len(batch), np.bool_)
            yield from self._lose_slices(batch, times, lost, kept)
            taken = kept_rows(batch, pa.array(kept)) if lost else [batch]
            if not taken:
                return
            (batch,), times = taken, times[kept]
        yield from self._add(batch.batch, times)

    def _lose_slices(
        self, batch: ArrowBatch, times: Times, lost: Sequence[tuple[int, Rows]], kept: Mask
    ) -> Iterator[ArrowBatch]:
        """Loses the rows of some slices, and takes them out of `kept`; both arrays have shape (rows,)."""
        if not lost:
            return
        late, nowhere = np.zeros((2, len(batch)), np.bool_)
        last_times = times.copy()
        for start, rows in lost:
            at = _index(rows)
            ends = self._layout.ends_of(start)
            if ends:
                last_times[at] = ends[-1] - 1
            # A row of no window is late by its own time.
            late[at] = bool(ends) | (times[at] <= self.watermark - self._lateness)
            nowhere[at] = ~late[at]
        kept &= ~(late | nowhere)
        yield from self._lose(batch, times, last_times, late, nowhere)

    def _add(self, records: pa.RecordBatch, times: Times) -> Iterator[ArrowBatch]:
        """Adds rows to their slices; gives the windows that fire again for late rows."""
        keys = self._columns.key_columns(records)
        slots = self._slots_of(keys)
        columns = self._read_columns(records, times)
        assert self._keys is not None
        size = self._keys.size
        self._fired.reserve(size)
        fires: dict[int, list[Slots]] = {}
        for part in parts_of(BatchRows(times, slots, columns, size), self._layout, self._new_states):
            self._merged.changed(part.start)
            try:
                part.add_to(self._live.open(part.start, self.watermark, self._new_states))
            except SumOverflowError as error:
                at = int(np.flatnonzero(slots == error.slot)[0])
                where = f" in the slice of windows from {part.start} to {part.start + self._layout.step} ms"
                raise self._columns.overflow(error, keys, at, where) from None
            self._fire_for_late(part.start, part.slots, fires)
        for end in sorted(fires):
            yield from self._results(end, np.unique(np.concatenate(fires[end])))

    def _fire_for_late(self, start: int, slots: Slots, fires: dict[int, list[Slots]]) -> None:
        """Notes the windows of a slice that fire because rows (slots: int64, shape (rows,)) have come behind them."""
        last, again = self._live.reached(start, self.watermark)
        if last is not None:
            self._fired.mark(slots, last)
            for end in again:
                fires.setdefault(end, []).append(slots)
        if self._fired.is_ahead_of(self.watermark):
            for end in self._live.pending(start):
                self._fired.fire_again(slots, end)

    # ------------------------------------------------------------------ windows that fire

    @property
    def event_timers_due(self) -> bool:
        end = self._live.next_end
        return end is not None and end - 1 <= self.watermark

    def fire_event_timers(self, deadline: float) -> Iterator[ArrowBatch]:
        self._owes = False
        while self.event_timers_due:
            end = self._live.next_end
            assert end is not None
            merged = self._merged_window(end)
            slots = self._fired.due(slots_of_any([merged] if merged else self._live.of_window(end)), end)
            for at in range(0, len(slots), MOST_ROWS):
                piece = slots[at : at + MOST_ROWS]
                self._fired.mark(piece, end)
                yield from self._results(end, piece, merged)
                if perf_counter() >= deadline and at + MOST_ROWS < len(slots):
                    return
            self._live.has_fired()
            self.fired_timers += 1
            self._forget_slices()
            if perf_counter() >= deadline:
                return
        self._forget_slices()

    def _merged_window(self, end: int) -> SliceStates | None:
        """A window out of slices that were merged before; None = its slices have to be merged for it alone."""
        # Rows are not fewer when they are merged.
        if not self._layout.overlap or self._keys is None or self._function is not None:
            return None
        try:
            return self._merged.window(end, self._keys.size)
        except SumOverflowError:
            # Maybe no sum of a whole window is too large. If that of this one is, its own merge names it.
            self._merged.forget()
            return None

    def _results(self, end: int, slots: Slots, merged: SliceStates | None = None) -> Iterator[ArrowBatch]:
        """The results of a window for slots that have rows in it (int64, shape (slots,), ascending)."""
        for at in range(0, len(slots), MOST_ROWS):
            piece = slots[at : at + MOST_ROWS]
            start = np.full(len(piece), self._layout.start_of(end), np.int64)
            values = self._values(end, piece) if merged is None else merged.values(piece)
            made, failing = self._result(piece, start, np.full(len(piece), end, np.int64), values)
            if len(failing):
                lost = piece.take(failing)
                self._lost.put(end, lost, self._counts(end, lost))
            if made is not None:
                yield made

    def _values(self, end: int, slots: Slots) -> list[pa.Array]:
        """The result of each aggregate in a window, for some slots (int64, shape (slots,), ascending)."""
        if self._lost.may_have(end):
            (kept,) = self._values_of_slices(end, slots)
            return [self._lost.left(end, slots, kept, self._counts(end, slots))]
        return self._values_of_slices(end, slots)

    def _counts(self, end: int, slots: Slots) -> dict[int, Times]:
        """How many rows some slots have in each slice of a window, in order of time: int64, shape (slots,)."""
        slices = ((start, self._live.at(start)) for start in self._layout.slices_of(end))
        return {
            start: states.values(slots)[0].value_lengths().to_numpy()
            for start, states in slices
            if states is not None
        }

    def _values_of_slices(self, end: int, slots: Slots) -> list[pa.Array]:
        """As `_values`, with the rows that the window has lost."""
        slices = self._live.of_window(end)
        if len(slices) == 1:
            return slices[0].values(slots)
        merged = self._new_states()
        for states in slices:
            places = np.flatnonzero(states.holds(slots))
            try:
                merged.merge(places, states, slots.take(places), len(slots))
            except SumOverflowError as error:
                assert self._keys is not None
                where = f" in the window from {self._layout.start_of(end)} to {end} ms"
                keys = self._keys.columns_at(slots[error.slot : error.slot + 1])
                raise self._columns.overflow(error, keys, 0, where) from None
        return merged.values(np.arange(len(slots)))

    def end_keys(self) -> Iterator[ArrowBatch]:
        self.watermark = MAX_TIMESTAMP
        yield from self.fire_event_timers(inf)
        self.watermark = MIN_TIMESTAMP
        self._empty()
        self._keys = None

    # ------------------------------------------------------------------ slices and keys that are gone

    def _forget_slices(self) -> None:
        """Forgets slices that no window needs any more and, from time to time, the keys that have none left."""
        for states in self._live.gone(self.watermark):
            self._usage.leave(states.present)
        self._lost.forget(lambda start: self._live.at(start) is None)
        keys = self._keys
        if keys is None or not self._usage.is_to_be_looked_at(len(self._live), keys.size):
            return
        kept = self._usage.kept([states.present for _, states in self._live], keys.size)
        if kept is not None:
            self._keep(keys, kept)

    def _keep(self, keys: KeySlots, kept: Slots) -> None:
        """Makes slots, arrays and marks anew for some of the keys (slots: int64, shape (slots,))."""
        self._keys, new_slots = keys.kept(kept)
        size = self._keys.size
        slot_of = np.full(keys.size, -1, np.int64)
        slot_of[kept] = new_slots
        for start, states in list(self._live):
            held, made = states.slots(), self._new_states()
            made.merge(slot_of.take(held), states, held, size)
            self._live.replace(start, made)
        self._merged.forget()
        self._fired.reserve(keys.size)
        self._fired = self._fired.kept(kept, new_slots, size)
        self._lost = self._lost.kept(kept, new_slots)

    # ------------------------------------------------------------------ snapshots

    @property
    def entry_count(self) -> int:
        """Number of keys with state."""
        return len(slots_of_any([states for _, states in self._live])) or len(self._restored[0])

    def _frozen(self, keys: KeySlots) -> Pieces:
        """Keys and values: the states of each slice by its start, and what windows of the key have fired and lost."""
        size, names = keys.size, self._columns.state_names
        keys_of, fired, lost = keys.frozen_keys(), self._fired.frozen(size), self._lost.of_slots()
        slices = [(start, states.frozen(size)) for start, states in self._live]

        def pieces() -> Iterator[tuple[list[Any], list[Any]]]:
            for first in range(0, size, PIECE):
                end = min(first + PIECE, size)
                held: dict[int, dict[int, dict[str, Any]]] = {}
                for start, states in slices:
                    places, entries = states.entries(first, end, names)
                    if not held:
                        held = {at: {start: entry} for at, entry in zip(places, entries, strict=True)}
                        continue
                    for at, entry in zip(places, entries, strict=True):
                        held.setdefault(at, {})[start] = entry
                if held:
                    piece, through, again = keys_of(first, end), *fired.between(first, end)
                    nothing: list[int] = []
                    yield (
                        [piece[at] for at in held],
                        [
                            {"slices": of_key, "fired": through[at], "again": again.get(at, nothing)}
                            | ({"lost": lost[first + at]} if first + at in lost else {})
                            for at, of_key in held.items()
                        ],
                    )

        return pieces()

    def _restore(self, values: Sequence[dict[str, Any]]) -> None:
        size = len(values)
        for start in sorted({start for value in values for start in value["slices"]}):
            if not self._layout.ends_of(start):
                continue  # The windows were others before the savepoint: none has these rows now.
            entries = [value["slices"].get(start) for value in values]
            states = self._live.open(start, None, self._new_states)
            self._columns.restore(states.states, entries)
            held = np.fromiter((entry is not None for entry in entries), np.bool_, size)
            states.restore_present(np.flatnonzero(held), size)
        pairs = [(slot, end) for slot, value in enumerate(values) for end in value["again"]]
        self._fired.restore([value["fired"] for value in values], pairs)
        for slot, value in enumerate(values):
            self._lost.restore(slot, value.get("lost", ()))


def _index(rows: Rows) -> slice | Slots:
    """The rows as an index of arrays."""
    return slice(rows.start, rows.stop) if isinstance(rows, range) else rows
