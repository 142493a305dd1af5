"""WholeWindows: windows that the general operator began, and a program goes on with by slices.

Owner: the task thread. Their content cannot be divided into slices. So it stays a content of its own, which is merged
into the result when the window fires. New rows go to slices. Must not know when windows fire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from yarrow.container.operators.base import OperatorContext, declared_type
from yarrow.container.operators.time_slices import TimeSlices
from yarrow.container.operators.window.stored_forms import other_windows, restored_names
from yarrow.container.operators.window.window_contents import (
    CONTENTS,
    WindowContents,
    contents_of,
    contents_type,
)
from yarrow.container.state.value_table import MISSING
from yarrow.container.state.window_tables import TIME_WINDOWS, WindowTables
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.graph.window_spec import WindowOperator


class WholeWindows:
    """The contents of such windows by key, which leave with their windows."""

    def __init__(self, contents: WindowContents[TimeWindow], own: Callable[[Any], Any] | None) -> None:
        """`own` copies a value that a merge could change; None = no value can change."""
        self._contents, self._own = contents, own
        self.tables: WindowTables[TimeWindow] = contents.values.tables

    @classmethod
    def restored(
        cls, spec: WindowOperator, context: OperatorContext, layout: TimeSlices, combining: Any
    ) -> Self | None:
        """The windows of the restored state; None = it has none. `combining` is the function of reduce or aggregate.

        Raises StateMigrationError for windows with other bounds than the program's.
        """
        if CONTENTS not in restored_names(context):
            return None
        kept = contents_type(declared_type(spec.kept_type), rows=False)
        tables: WindowTables[TimeWindow] = context.state.window_tables(CONTENTS, kept, TIME_WINDOWS)
        for window in tables.windows():
            ends = layout.ends_of(layout.slice_of(window.end - 1))
            if window.end not in ends or window.start != layout.start_of(window.end):
                raise other_windows(context, CONTENTS, f"the window {window!r}", "windows with other bounds")
        own = copier_for(declared_type(spec.kept_type))
        return cls(contents_of(spec, context, tables, combining), own)

    def drop(self, window: TimeWindow) -> None:
        """Removes a window."""
        self._contents.values.drop(window)

    def with_content(self, window: TimeWindow, key: Any, value: Any) -> Any:
        """Takes the content of a canonical key out of a window; returns it merged with `value`, None = there is none.

        `value` stays as it is.
        """
        content = self._contents.values.take(window, key)
        if content is MISSING:
            return value
        if value is None:
            return content
        return self._contents.merged(content, value if self._own is None else self._own(value))
