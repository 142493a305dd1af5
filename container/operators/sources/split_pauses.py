"""SplitPauses: which splits of a reader must wait, because they are ahead of their group's bound.

Owner: none; pure, without clock, state or I/O. A split is ahead when its event time is above the bound. A reader whose
splits are all ahead is not read at all. A reader that cannot pause single splits goes by its slowest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from yarrow.runtime.data.elements import MIN_TIMESTAMP


class SplitPauses(NamedTuple):
    """The splits that wait; the id None stands for a reader whose records name no split."""

    paused: frozenset[str | None]
    #: All splits wait: the reader is not polled.
    whole_reader: bool


def pauses(reached: Mapping[str | None, int], bound: int | None, *, single_splits: bool) -> SplitPauses:
    """The splits that must wait, by the event time in ms that each has reached.

    Without a bound (None) a split waits as soon as it has reached any time. `single_splits`: the reader can pause
    single splits.
    """
    limit = MIN_TIMESTAMP if bound is None else bound
    ahead = frozenset(split_id for split_id, time in reached.items() if time > limit)
    if reached and len(ahead) == len(reached):
        return SplitPauses(ahead, True)
    return SplitPauses(ahead if single_splits else frozenset(), False)
