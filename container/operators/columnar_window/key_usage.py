"""KeyUsage: decides when keys that no slice holds any more give their slots back.

Owner: the task thread; no I/O. A key keeps its slot for a while behind its last slice, since most keys come again. Must
not know the keys.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from yarrow.container.operators.columnar.aggregate_state import LEAST, Bools
from yarrow.container.operators.columnar.vectorized_index import Slots, grown


class KeyUsage:
    """The slots that have left slices since the last look.

    A look comes when as many slices are gone as are there, so that it costs no more than their arrays do. Then the keys
    that are in no slice, and have left none since the look before, can go.
    """

    def __init__(self) -> None:
        self._gone = 0
        #: The slots of the slices that are gone since the last look.
        self._recent: Bools = np.zeros(LEAST, np.bool_)

    def leave(self, present: Bools) -> None:
        """Hears that a slice with these slots (bool, shape (any number of slots,)) is gone."""
        self._gone += 1
        self._recent = grown(self._recent, len(present), False)
        self._recent[: len(present)] |= present

    def is_to_be_looked_at(self, slices: int, size: int) -> bool:
        """True if it is time for a look at the slots, of which there are `size`, in so many slices."""
        return size > LEAST and self._gone > slices

    def kept(self, live: Iterable[Bools], size: int) -> Slots | None:
        """The slots to keep if at least half can go, else None: int64, shape (slots,), ascending.

        `live` are the slots of each slice: bool, shape (any number of slots,).
        """
        used = grown(self._recent, size, False)[:size]
        for present in live:
            held = present[:size]
            used[: len(held)] |= held
        self._gone, self._recent = 0, np.zeros(LEAST, np.bool_)
        kept = np.flatnonzero(used)
        return kept if 2 * len(kept) <= size else None
