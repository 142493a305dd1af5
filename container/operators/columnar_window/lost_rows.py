"""LostRows: the rows that a window of a key has lost, since its function has failed at them, by `on_error`.

Owner: the task thread. Overlapping windows share their rows, so a slice keeps a row that one of its windows has lost.
The rows of a slice stand as they came. So the number of the lost ones says which they are. Windows in a row mostly lose
the same rows of a slice, and share one number. Must not fire windows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.row_times import Times
from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.runtime.data.column_rows import rows_of_column
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP

#: Windows in a row: the end of the first and of the last one, and how many first rows of a slice each has lost.
Run = tuple[int, int, int]

_FIRST: Final = itemgetter(0)


def lost_by(end: int, runs: Sequence[Run]) -> int:
    """The number of first rows of a slice that the window with this end has lost; `runs` are in order of time."""
    at = bisect_right(runs, end, key=_FIRST) - 1
    return runs[at][2] if at >= 0 and end <= runs[at][1] else 0


def with_lost(end: int, number: int, runs: Sequence[Run], slide: int) -> list[Run]:
    """The runs, where the window with this end has lost this number of rows.

    Windows end each `slide` ms; 0 = they are those of other bounds, and no two make a run.
    """
    at = bisect_right(runs, end, key=_FIRST)
    before, behind, made = list(runs[:at]), list(runs[at:]), (end, end, number)
    if before and end <= before[-1][1]:
        first, last, had = before.pop()
        if first < end:
            before.append((first, end - slide, had))
        if end < last:
            behind.insert(0, (end + slide, last, had))
    if before and before[-1][1:] == (end - slide, number):
        made = before.pop()[0], end, number
    if behind and behind[0][0] == end + slide and behind[0][2] == number:
        made = made[0], behind.pop(0)[1], number
    return [*before, made, *behind]


class _LostOfSlice:
    """What windows have lost of one slice, by the slots of keys."""

    def __init__(self) -> None:
        self.of_slot: dict[int, list[Run]] = {}
        #: The least and the greatest end of these windows.
        self.first_end, self.last_end = MAX_TIMESTAMP, MIN_TIMESTAMP

    def may_have(self, end: int) -> bool:
        """False if the window with this end has lost nothing of the slice."""
        return self.first_end <= end <= self.last_end

    def put(self, slot: int, runs: list[Run]) -> None:
        """Sets the runs of a slot."""
        self.of_slot[slot] = runs
        self.first_end = min(self.first_end, runs[0][0])
        self.last_end = max(self.last_end, runs[-1][1])


class LostRows:
    """Numbers of rows by slice, key and window."""

    def __init__(self, slide: int) -> None:
        """`slide`: a window ends each so many milliseconds."""
        self._slide = slide
        #: By the starts of slices.
        self._of: dict[int, _LostOfSlice] = {}

    def may_have(self, end: int) -> bool:
        """False if the window with this end has lost no rows."""
        return any(of_slice.may_have(end) for of_slice in self._of.values())

    def put(self, end: int, slots: Slots, counts: Mapping[int, Times]) -> None:
        """Notes that a window has lost all rows of some slots: int64, shape (slots,).

        `counts`: how many rows each slot has in each slice of the window, int64, shape (slots,).
        """
        for start, count in counts.items():
            for at in np.flatnonzero(count).tolist():
                self._put(start, int(slots[at]), end, int(count[at]), self._slide)

    def _put(self, start: int, slot: int, end: int, number: int, slide: int) -> None:
        of_slice = self._of.setdefault(start, _LostOfSlice())
        of_slice.put(slot, with_lost(end, number, of_slice.of_slot.get(slot, ()), slide))

    def left(
        self, end: int, slots: Slots, kept: pa.LargeListArray, counts: Mapping[int, Times]
    ) -> pa.LargeListArray:
        """The rows that a window has still, of those of its slices: lists of shape (slots,).

        `slots` and `counts` (both int64) are as of `put`, with the slices in order of time.
        """
        rows, lengths = kept.flatten(), kept.value_lengths().to_numpy().copy()
        is_left = np.ones(len(rows), np.bool_)
        # Where the rows of each slot begin that lie in the next slice.
        begins = np.cumsum(lengths) - lengths
        for start, count in counts.items():
            of_slice = self._of.get(start)
            if of_slice is not None and of_slice.may_have(end):
                for at in np.flatnonzero(np.isin(slots, [*of_slice.of_slot])).tolist():
                    number = lost_by(end, of_slice.of_slot[int(slots[at])])
                    is_left[begins[at] : begins[at] + number] = False
                    lengths[at] -= number
            begins = begins + count
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        left = rows_of_column(rows, pa.array(np.flatnonzero(is_left)))
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), left)

    def forget(self, is_gone: Callable[[int], bool]) -> None:
        """Forgets the slices that are gone by their starts: rows may begin them anew."""
        for start in [start for start in self._of if is_gone(start)]:
            del self._of[start]

    def kept(self, slots: Slots, new_slots: Slots) -> LostRows:
        """The same for some of the slots, which have new numbers; both int64, shape (slots,)."""
        made, numbers = LostRows(self._slide), dict(zip(slots.tolist(), new_slots.tolist(), strict=True))
        for start, of_slice in self._of.items():
            for slot, runs in of_slice.of_slot.items():
                if slot in numbers:
                    made._of.setdefault(start, _LostOfSlice()).put(numbers[slot], runs)
        return made

    # ------------------------------------------------------------------ snapshots

    def of_slots(self) -> dict[int, list[tuple[int, ...]]]:
        """The stored form of each slot: slice, first and last end, slide and number of each run."""
        found: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for start, of_slice in self._of.items():
            for slot, runs in of_slice.of_slot.items():
                found[slot] += [(start, first, last, self._slide, number) for first, last, number in runs]
        return dict(found)

    def restore(self, slot: int, stored: Iterable[tuple[int, ...]]) -> None:
        """Restores what `of_slots` gave of a slot. Earlier versions stored a window each: slice, end, number."""
        for start, *ends, number in stored:
            first, last, slide = ends if len(ends) > 1 else (*ends, *ends, self._slide)
            # The program may have windows of another slide now, which end between these.
            own = slide if slide == self._slide else 0
            for end in range(first, last + 1, slide):
                self._put(start, slot, end, number, own)
