"""RowWords: the slot of a key and a time in one word, by which the rows of a columnar join are sorted and found.

Owner: any thread; pure. Words of one slot stand together and sort by time. Must not know keys, columns or state.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

#: Words, slots and times: int64, shape (rows,).
Numbers = npt.NDArray[np.int64]

#: Bits of a time: 139 years of milliseconds. The other bits but one, for the sign, are those of a slot.
TIME_BITS: Final = 42
MOST_SLOTS: Final = 1 << (63 - TIME_BITS)
_TIMES: Final = 1 << TIME_BITS
_LAST: Final = _TIMES - 1


class RowWords(NamedTuple):
    """The words of times from `base` on, in epoch milliseconds."""

    base: int

    @staticmethod
    def around(time: int) -> RowWords:
        """Words of times up to some 69 years before and behind a time."""
        return RowWords(time - _TIMES // 2)

    @property
    def middle(self) -> int:
        """The time around which these words were made."""
        return self.base + _TIMES // 2

    def outside(self, times: Numbers) -> npt.NDArray[np.bool_]:
        """The times that have no word: bool, shape (rows,). The two ends are those of `shifted`, and no row's."""
        return (times <= self.base) | (times >= self.base + _LAST)

    def within(self, time: int) -> int:
        """The time itself, or that end of all times which is nearer to it."""
        return min(max(time, self.base), self.base + _LAST)

    def words(self, slots: Numbers, times: Numbers) -> Numbers:
        """The words of rows, int64, shape (rows,)."""
        return (slots << TIME_BITS) | (times - self.base)

    def shifted(self, slots: Numbers, times: Numbers, by: int) -> Numbers:
        """The words of the same slots at times later by `by`, at most at the ends of the slot: int64, shape (rows,)."""
        by = max(-_TIMES, min(by, _TIMES))
        return (slots << TIME_BITS) | np.clip(times - self.base + by, 0, _LAST)

    def later(self, words: Numbers, by: int) -> Numbers:
        """As `shifted`, of the slots and times of words: int64, shape (rows,). Words that rise stay so."""
        if by == 0:
            return words
        return self.shifted(self.slots(words), self.times(words), by)

    def whole(self, slots: Numbers) -> tuple[Numbers, Numbers]:
        """The first and the last word of each slot: int64, shape (rows,) all."""
        first = slots << TIME_BITS
        return first, first | _LAST

    def times(self, words: Numbers) -> Numbers:
        """The times of words, int64, shape (rows,)."""
        return (words & _LAST) + self.base

    @staticmethod
    def slots(words: Numbers) -> Numbers:
        """The slots of words, int64, shape (rows,)."""
        return words >> TIME_BITS
