"""LostRows: the rows that a window of a key has lost, since its function has failed at them, by `on_error`.

Owner: the task thread. Overlapping windows share their rows, so a slice keeps a row that one of its windows has lost.
The rows of a slice stand as they came. So the number of the lost ones says which they are. Must not know times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.row_times import Times
from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.runtime.data.column_rows import rows_of_column

#: What windows have lost of a slice: end of the window -> slot of the key -> number of its first rows.
LostOfSlice = dict[int, dict[int, int]]


class LostRows:
    """Numbers of rows by slice, window and key."""

    def __init__(self) -> None:
        #: By the starts of slices.
        self._of: dict[int, LostOfSlice] = {}

    def has(self, end: int) -> bool:
        """True if the window with this end has lost rows of a key."""
        return any(end in of_slice for of_slice in self._of.values())

    def put(self, end: int, slots: Slots, counts: Mapping[int, Times]) -> None:
        """Notes that a window has lost all rows of some slots: int64, shape (slots,).

        `counts`: how many rows each slot has in each slice of the window, int64, shape (slots,).
        """
        for start, count in counts.items():
            lost = {slot: rows for slot, rows in zip(slots.tolist(), count.tolist(), strict=True) if rows}
            if lost:
                of_slice = self._of.setdefault(start, {})
                of_slice.setdefault(end, {}).update(lost)

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
            lost = self._of.get(start, {}).get(end, {})
            for at in np.flatnonzero(np.isin(slots, [*lost])).tolist():
                number = lost[int(slots[at])]
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
        made, numbers = LostRows(), dict(zip(slots.tolist(), new_slots.tolist(), strict=True))
        for start, of_slice in self._of.items():
            for end, lost in of_slice.items():
                moved = {numbers[slot]: rows for slot, rows in lost.items() if slot in numbers}
                made._of.setdefault(start, {})[end] = moved
        return made

    # ------------------------------------------------------------------ snapshots

    def of_slots(self) -> dict[int, list[tuple[int, int, int]]]:
        """Starts of slices, ends of windows and numbers of lost rows, by slot. A snapshot stores them."""
        found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for start, of_slice in self._of.items():
            for end, lost in of_slice.items():
                for slot, rows in lost.items():
                    found[slot].append((start, end, rows))
        return dict(found)

    def restore(self, slot: int, stored: Iterable[tuple[int, int, int]]) -> None:
        """Restores what `of_slots` gave of a slot."""
        for start, end, rows in stored:
            self._of.setdefault(start, {}).setdefault(end, {})[slot] = rows
