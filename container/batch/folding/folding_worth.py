"""FoldingWorth: decides whether folding rows by key pays, or rows leave as they come for a while.

Owner: the task thread, through the output that folds. It sees numbers of rows and keys alone.
"""

from __future__ import annotations

from typing import Final

#: Folding pays if it leaves at most this part of the rows.
_WORTH: Final = 0.5
#: A table that is filled to this part hints at what the whole table will leave: evenly spread keys of which a full
#: table leaves half of the rows are at most this part of the rows by then. Keys that come in turn do not repeat before
#: all of them have come, so the first table is filled whole.
_EARLY: Final = 0.25
_WORTH_EARLY: Final = 0.93
#: Rows that leave as they come before folding is tried again, for each key of a full table.
_RESTING: Final = 16


class FoldingWorth:
    """The decisions of one output."""

    def __init__(self) -> None:
        #: Rows at which folding is tried again.
        self._rests_until = 0
        #: A full table has not paid.
        self._has_rested = False

    def rests(self, rows: int) -> bool:
        """Whether rows leave as they come; `rows`: those of the output so far."""
        return rows < self._rests_until

    def gives_up_early(self, keys: int, folded: int, most_keys: int) -> bool:
        """Whether a table of so many keys from `folded` rows will not pay either, though it is not full."""
        return self._has_rested and keys >= _EARLY * most_keys and keys > _WORTH_EARLY * folded

    def gives_up(self, left: int, folded: int) -> bool:
        """Whether `folded` rows were not worth it: `left` rows stand for them."""
        return left > _WORTH * folded

    def rest(self, rows: int, most_keys: int) -> None:
        """From now on rows leave as they come for a while; `rows` as for `rests`."""
        self._rests_until = rows + _RESTING * most_keys
        self._has_rested = True
