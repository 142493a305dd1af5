"""GuardedOrder: puts rows of one time in the order of a comparator, and leaves out rows that cannot be compared.

Owner: the task thread. A row that cannot be compared with itself is left out first. Of two other rows that cannot be
compared, the one that came later is left out. Must not know letters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from yarrow.container.operators.cep.pending_rows import Waiting, by_comparator
from yarrow.container.operators.guarded_pattern.guarded_matcher import FailedRow


class GuardedOrder:
    """The order of one comparator."""

    def __init__(self, comparator: Callable[[Any, Any], int], is_fatal: Callable[[Exception], bool]) -> None:
        """`is_fatal`: whether an error is none of a row."""
        self._plain = by_comparator(comparator)
        self._key = cmp_to_key(comparator)
        self._is_fatal = is_fatal

    def ordered(self, rows: list[Waiting]) -> list[Waiting]:
        """Rows of one time in order, and behind them a FailedRow in place of each that is left out.

        `rows` stand as they came. Raises errors that are none of a row.
        """
        try:
            return self._plain(rows)
        except Exception as error:
            if self._is_fatal(error):
                raise
        failed: list[Waiting] = []
        kept: list[Waiting] = []
        # A row that fails with each other would else make later rows leave.
        for entry in self._comparable(rows, failed):
            key = self._key(entry[1])
            try:
                kept.insert(bisect_right(kept, key, key=self._key_of), entry)
            except Exception as error:
                failed.append(self._left_out(entry, error))
        return [*kept, *failed]

    def _comparable(self, rows: list[Waiting], failed: list[Waiting]) -> list[Waiting]:
        """The rows that can be compared with themselves; the others go to `failed`."""
        found: list[Waiting] = []
        for entry in rows:
            key = self._key_of(entry)
            try:
                bisect_right([entry], key, key=self._key_of)
            except Exception as error:
                failed.append(self._left_out(entry, error))
            else:
                found.append(entry)
        return found

    def _key_of(self, entry: Waiting) -> Any:
        return self._key(entry[1])

    def _left_out(self, entry: Waiting, error: Exception) -> Waiting:
        """Raises the error again if it is none of a row."""
        if self._is_fatal(error):
            raise error
        time, row = entry
        return time, FailedRow(row, time, error)
