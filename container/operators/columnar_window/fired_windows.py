"""FiredWindows: up to which window each key has fired, so that a firing may be cut, and no window fires twice.

Owner: the task thread. Windows fire in the order of their ends, so one number a key says what has fired. A restored
subtask may begin below the watermark of a former one. A row may then reach windows that have fired for its key: these
fire again. Must not know slices or aggregates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from yarrow.container.operators.columnar.aggregate_state import LEAST
from yarrow.container.operators.columnar.vectorized_index import Slots, grown
from yarrow.runtime.data.elements import MIN_TIMESTAMP


class FiredWindows:
    """The windows that have fired, by the slots of keys."""

    def __init__(self) -> None:
        #: The end of the last window that has fired for each slot, int64, shape (any number of slots,).
        self._through: npt.NDArray[np.int64] = np.full(LEAST, MIN_TIMESTAMP, np.int64)
        self._latest = MIN_TIMESTAMP
        #: Slots for which a window fires again, by its end; ascending.
        self._again: dict[int, Slots] = {}

    def reserve(self, size: int) -> None:
        """Makes room for `size` slots."""
        self._through = grown(self._through, size, MIN_TIMESTAMP)

    def due(self, slots: Slots, end: int) -> Slots:
        """Returns the slots (int64, shape (slots,), ascending) whose window with this end has to fire."""
        due = self._through.take(slots) < end
        again = self._again.get(end)
        if again is not None:
            due |= np.isin(slots, again)
        return slots[due]

    def mark(self, slots: Slots, end: int) -> None:
        """Notes that all windows up to `end` have fired for these slots (int64, shape (slots,))."""
        self._through[slots] = np.maximum(self._through.take(slots), end)
        self._latest = max(self._latest, end)
        if end in self._again:
            left = np.setdiff1d(self._again.pop(end), slots)
            if len(left):
                self._again[end] = left

    def is_ahead_of(self, watermark: int) -> bool:
        """True if windows that the watermark has not reached have fired for some keys."""
        return self._latest - 1 > watermark

    def fire_again(self, slots: Slots, end: int) -> None:
        """Lets a window fire once more for those of the slots (int64, shape (rows,)) for which it has fired."""
        fired = np.unique(slots[self._through.take(slots) >= end])
        if len(fired):
            known = self._again.get(end)
            self._again[end] = fired if known is None else np.union1d(known, fired)

    def kept(self, slots: Slots, new_slots: Slots, size: int) -> FiredWindows:
        """The same for some of the slots, which have new numbers below `size`; both int64, shape (slots,)."""
        made = FiredWindows()
        made.reserve(size)
        made._through[new_slots] = self._through.take(slots)
        made._latest = self._latest
        for end, again in self._again.items():
            among = np.isin(slots, again)
            if among.any():
                made._again[end] = np.sort(new_slots[among])
        return made

    # ------------------------------------------------------------------ snapshots

    def frozen(self, size: int) -> FiredWindows:
        """A copy of the first `size` slots, for `between` alone; another thread may call it."""
        everything = np.arange(size)
        self.reserve(size)
        return self.kept(everything, everything, size)

    def between(self, first: int, end: int) -> tuple[list[int], dict[int, list[int]]]:
        """What is stored of the slots from `first` to `end`, without `end`.

        First the end of the last window that has fired for each of them; MIN_TIMESTAMP = none. Then the ends of the
        windows that fire again, ascending, for those slots less `first` that have some.
        """
        again: dict[int, list[int]] = {}
        for window in sorted(self._again):
            slots = self._again[window]
            low, high = np.searchsorted(slots, [first, end]).tolist()
            for slot in slots[low:high].tolist():
                again.setdefault(slot - first, []).append(window)
        return self._through[first:end].tolist(), again

    def restore(self, through: Sequence[int], again: Iterable[tuple[int, int]]) -> None:
        """Restores what `between` gave: ends for slots 0 and on, and pairs of a slot and an end that fires again."""
        self.reserve(len(through))
        self._through[: len(through)] = through
        self._latest = max(through, default=MIN_TIMESTAMP)
        slots_of: dict[int, list[int]] = defaultdict(list)
        for slot, end in again:
            slots_of[end].append(slot)
        self._again = {end: np.array(sorted(slots), np.int64) for end, slots in slots_of.items()}
