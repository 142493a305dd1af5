"""Searches for the row of a side that is nearest to a word, in one direction, for all rows of a batch at once.

Owner: the task thread; pure. Of rows with equal words the last that came holds. Must not know keys, directions of joins
or watermarks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from yarrow.container.operators.columnar_join.row_words import Numbers
from yarrow.container.operators.columnar_join.sorted_runs import Flags, SortedRun

#: The number of the run of a row that was not found.
NONE: Final = -1


class NearRows(NamedTuple):
    """A row for each word that was looked for, or none: int64, shape (words,) each."""

    #: The number of its run; NONE = there is no such row.
    run: Numbers
    #: Its place in the run.
    place: Numbers
    #: Its own word.
    word: Numbers

    @property
    def found(self) -> Flags:
        """Whether there is a row: bool, shape (words,)."""
        flags: Flags = self.run != NONE
        return flags

    def where(self, mask: Flags, other: NearRows) -> NearRows:
        """The rows of a mask (bool, shape (words,)), and those of another search for all other words."""
        return NearRows(*(np.where(mask, own, its) for own, its in zip(self, other, strict=True)))


def none_of(number: int) -> NearRows:
    """No row for each of so many words."""
    return NearRows(np.full(number, NONE, np.int64), *np.zeros((2, number), np.int64))


def last_up_to(runs: Sequence[SortedRun], first: Numbers, last: Numbers) -> NearRows:
    """The last row between two words, both included, for each pair of words: int64, shape (words,) each."""
    found = none_of(len(first))
    # Words are not negative.
    found.word[:] = -1
    for number, run in enumerate(runs):
        place = np.searchsorted(run.words, last, side="right") - 1
        word = run.words[np.maximum(place, 0)]
        # Later runs have the rows that came later.
        better = (place >= 0) & (word >= first) & (word >= found.word)
        _take(found, better, number, place, word)
    return found


def first_from(runs: Sequence[SortedRun], first: Numbers, last: Numbers) -> NearRows:
    """The first row between two words, both included, for each pair of words: int64, shape (words,) each."""
    found = none_of(len(first))
    found.word[:] = last
    for number, run in enumerate(runs):
        start = np.searchsorted(run.words, first, side="left")
        word = run.words[np.minimum(start, len(run.words) - 1)]
        better = (start < len(run.words)) & (word <= found.word)
        place = np.searchsorted(run.words, word, side="right") - 1
        _take(found, better, number, place, word)
    return found


def _take(found: NearRows, better: Flags, number: int, place: Numbers, word: Numbers) -> None:
    found.run[better] = number
    found.place[better] = place[better]
    found.word[better] = word[better]
