"""GuardedRows: windows that keep all rows, of which letters may hold the rows as they came.

Owner: the task thread. Must not know triggers, timers, merging sets or letters.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from yarrow.container.operators.window.evicting_windows import Evicting, EvictingWindows, Fold
from yarrow.container.operators.window.window_contents import Copier
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.datastream.window import TimestampedValue

W = TypeVar("W")


class GuardedRows(EvictingWindows[W], Generic[W]):
    """All rows with their times, in the order in which they came."""

    def __init__(
        self,
        values: WindowValues[W],
        fix: Copier | None,
        operator: str,
        evicting: Evicting,
        fold: Fold,
        *,
        keeps_rows: bool,
    ) -> None:
        """`keeps_rows`: functions get copies of the rows, since they may change a row before they fail."""
        super().__init__(values, fix, operator, evicting, fold)
        self._keeps_rows = keeps_rows

    def _elements(self, content: Any) -> list[TimestampedValue[Any]]:
        elements, fix = super()._elements(content), self._fix
        if fix is not None and self._keeps_rows:
            return [TimestampedValue(fix(each.value), each.timestamp) for each in elements]
        return elements
