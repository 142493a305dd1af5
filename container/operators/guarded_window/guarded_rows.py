"""GuardedRows: windows that keep all rows, and put them aside where the function of a window fails.

Owner: the task thread. The rows of such a window leave it as letters, so that no later firing has them again. Results
leave only when function and evictor have finished. Must not know triggers, timers or merging sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from yarrow.container.operators.failed_records import FailedRecords
from yarrow.container.operators.window.evicting_windows import Evicting, EvictingWindows, Fold
from yarrow.container.operators.window.window_contents import Call, Copier
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.protocol.failure import short_record
from yarrow.container.state.value_table import MISSING
from yarrow.datastream.connectors.dead_letters import ROW_OF_WINDOW
from yarrow.datastream.window import TimestampedValue
from yarrow.runtime.data.elements import MIN_TIMESTAMP

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
        failed: FailedRecords,
        copier: Callable[[Any], Any] | None,
    ) -> None:
        """`copier`: copies a result that could change; None = nobody copies."""
        super().__init__(values, fix, operator, evicting, fold)
        self._failed = failed
        self._copier = copier

    def fire(self, window: Any, state_window: W, key: Any, call: Call) -> Iterator[Any]:
        """As the base class; if a function fails, the letters of all rows, which the window loses."""
        content = self.values.get(state_window, key)
        if content is MISSING:
            return
        rows, failed, copier = list(content), self._failed, self._copier
        failed.seen[0] += len(rows)
        fired = super().fire(window, state_window, key, call)
        try:
            # A generator may change an object after it has emitted it.
            results = list(fired) if copier is None else [copier(result) for result in fired]
        except Exception as error:
            if failed.is_fatal(error):
                raise
            self.values.remove(state_window, key)
            told = f"all {len(rows)} rows of the window {short_record(window)} leave"
            timed = ((row, None if stamp == MIN_TIMESTAMP else stamp) for row, stamp in rows)
            yield from failed.letters_of_rows(error, ROW_OF_WINDOW, timed, told)
            if failed.is_bounded:
                # Windows end without rows, too.
                failed.check()
            return
        yield from results

    def _elements(self, content: Any) -> list[TimestampedValue[Any]]:
        # A function may change a row before it fails, and the letter holds the row as it came.
        elements, fix = super()._elements(content), self._fix
        if fix is not None and self._failed.wants_letters:
            return [TimestampedValue(fix(each.value), each.timestamp) for each in elements]
        return elements
