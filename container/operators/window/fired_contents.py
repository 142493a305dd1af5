"""FiredContents: what windows keep once they have fired, until their lateness is over and no late row can come.

Owner: the task thread. A late row is added to the content of its window, which then fires again. Must not know how
windows keep their rows before they fire, nor call window functions. See docs/design/0034-fast-windows.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yarrow.container.operators.window.window_contents import WindowContents
from yarrow.container.operators.window.window_rules import is_window_late
from yarrow.container.state.window_tables import WindowTables
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.data.elements import MIN_TIMESTAMP


class FiredContents:
    """The contents of fired windows of event time, by window and key."""

    def __init__(self, contents: WindowContents[TimeWindow], lateness_ms: int, watermark: int) -> None:
        self.contents = contents
        self.tables: WindowTables[TimeWindow] = contents.values.tables
        self._lateness = lateness_ms
        self.note_ahead(watermark)

    def note_ahead(self, watermark: int) -> None:
        """Looks for restored windows that the watermark has not reached."""
        #: Restored windows that the watermark has not reached. They have fired for some keys only, since subtasks with
        #: different watermarks have become one.
        self.ahead: set[TimeWindow] = {
            window for window in self.tables.windows() if window.max_timestamp() > watermark
        }

    def __contains__(self, window: TimeWindow) -> bool:
        """Whether a window waits for late rows."""
        return window in self.tables.windows()

    def keeps(self, window: TimeWindow, watermark: int) -> bool:
        """Whether a window that fires waits for late rows."""
        return self._lateness > 0 and not is_window_late(window, self._lateness, watermark, event_time=True)

    def put(self, window: TimeWindow, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Keeps the values of canonical keys that have fired; they belong to the window from now on."""
        if keys:
            self.tables.table(window).put_all(keys, values)

    def due(self, watermark: int) -> list[TimeWindow]:
        """The windows whose lateness is over, by their end."""
        return self.tables.windows_until(max(watermark - self._lateness, MIN_TIMESTAMP))

    def drop(self, window: TimeWindow) -> None:
        """Removes a window."""
        self.ahead.discard(window)
        self.contents.values.drop(window)
