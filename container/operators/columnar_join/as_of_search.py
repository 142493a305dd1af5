"""AsOfSearch: the rule of as-of joins for many left rows at once: their versions, and when these are known.

Owner: the task thread; pure. The rule is that of `AsOfRule`. Must not know state, keys or operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from yarrow.container.operators.columnar_join.near_rows import NearRows, first_from, last_up_to, none_of
from yarrow.container.operators.columnar_join.row_words import Numbers, RowWords
from yarrow.container.operators.columnar_join.sorted_runs import Flags, SortedRun
from yarrow.container.operators.join.as_of_rule import AsOfRule
from yarrow.runtime.data.elements import MAX_TIMESTAMP

#: The time of a version that does not exist.
_NEVER: Final = MAX_TIMESTAMP


class KnownVersions(NamedTuple):
    """The versions of left rows."""

    versions: NearRows
    #: The least watermark at which each is final: int64, shape (rows,).
    due: Numbers


class AsOfSearch(NamedTuple):
    """The search of one join."""

    rule: AsOfRule

    def look(self, ordering: RowWords, runs: Sequence[SortedRun], words: Numbers) -> KnownVersions:
        """The versions that left rows meet as far as they have come; words: int64, shape (rows,)."""
        rule, tolerance = self.rule, MAX_TIMESTAMP if self.rule.tolerance is None else self.rule.tolerance
        slots, times = ordering.slots(words), ordering.times(words)
        before = behind = none_of(len(words))
        if rule.looks_back:
            before = last_up_to(runs, ordering.shifted(slots, times, -tolerance), words)
        if not rule.looks_ahead:
            return KnownVersions(before, times)
        behind = first_from(runs, words, ordering.shifted(slots, times, tolerance))
        ahead = np.where(behind.found, ordering.times(behind.word) - times, _NEVER)
        back = np.where(before.found, times - ordering.times(before.word), _NEVER)
        # A version behind the row would have to be nearer than that before it.
        wait = np.minimum(np.minimum(ahead, tolerance), np.maximum(back - 1, 0))
        due = np.where(times > MAX_TIMESTAMP - wait, MAX_TIMESTAMP, times + wait)
        return KnownVersions(behind.where(ahead < back, before), due)

    def useless_until(self, least: int) -> int | None:
        """The last time of versions that no left row from time `least` on can meet; None = none by time alone."""
        if not self.rule.looks_back:
            return least - 1
        return None if self.rule.tolerance is None else least - 1 - self.rule.tolerance

    def holds(self, ordering: RowWords, words: Numbers, least_times: Numbers) -> Flags:
        """The versions that a left row can meet: in its reach, and replaced by no later one; bool, shape (rows,).

        words: int64, shape (rows,), sorted; equal ones stand as they came. least_times: the least time of a left row of
        each key, int64, shape (slots,).
        """
        holds = np.ones(len(words), np.bool_)
        slots, later = ordering.slots(words), words[1:]
        least = least_times[slots]
        holds[:-1] = (slots[1:] != slots[:-1]) | ((ordering.times(later) > least[1:]) & (later != words[:-1]))
        reach = self.rule.tolerance if self.rule.looks_back else 0
        if reach is not None:
            holds &= words >= ordering.shifted(slots, least, -reach)
        return holds
