"""Savepoints between the operators of windows: one keeps a timer a key and window, the other none.

Owner: the task thread, while it sets up an operator. Both keep reduced rows and accumulators in one form. An operator
without timers leaves a mark in operator state, and contents of windows that have fired apart. So a custom trigger may
be added or removed over a savepoint. Must not fire windows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import OperatorContext, declared_type
from yarrow.container.operators.stored_watermark import StoredWatermark
from yarrow.container.operators.window.stored_forms import FIRED_CONTENTS, other_windows, restored_names
from yarrow.container.operators.window.window_contents import CONTENTS, contents_type
from yarrow.container.operators.window.window_rules import cleanup_time
from yarrow.container.operators.window.window_timers import WindowTimers
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.state.backend import Timer
from yarrow.container.state.window_tables import TIME_WINDOWS, WindowTables
from yarrow.datastream.state import ListState, ListStateDescriptor
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.graph.window_spec import WindowKind, WindowOperator

#: Name of the operator state that is not empty if windows have no timers.
WITHOUT_TIMERS = "_windows_without_timers"


def marks_of(context: OperatorContext) -> ListState[int]:
    """The operator state that says whether windows have timers: not empty = they have none."""
    return context.operator_state.union_list_state(ListStateDescriptor(WITHOUT_TIMERS, Types.LONG()))


def fired_tables(spec: WindowOperator, context: OperatorContext, name: str) -> WindowTables[TimeWindow]:
    """The contents of windows that have fired, in the state of that name."""
    stored = contents_type(declared_type(spec.kept_type), rows=False)
    tables: WindowTables[TimeWindow] = context.state.window_tables(name, stored, TIME_WINDOWS)
    return tables


def set_missing_timers(
    spec: WindowOperator,
    context: OperatorContext,
    contents: WindowTables[Any],
    timers: WindowTimers,
    *,
    event_time: bool,
) -> None:
    """Sets the timers of restored windows whose former operator had none.

    Raises StateMigrationError if the program now keeps all rows of a window.
    """
    marks = marks_of(context)
    is_marked = bool(marks.get())
    marks.update([])
    if not is_marked:
        return
    if spec.kind is WindowKind.ROWS:
        was = "windows with a reduced row or an accumulator"
        raise other_windows(context, CONTENTS, was, "windows with all rows")
    queue = timers.event_timers if event_time else timers.processing_timers

    def set_timers(window: TimeWindow, keys: Iterable[Any], *, fired: bool) -> None:
        namespace = TIME_WINDOWS.stored(window)
        times = {cleanup_time(window, spec.allowed_lateness_ms, event_time=event_time)}
        if not fired:
            times.add(cleanup_time(window, 0, event_time=event_time))
        for time in times - {None}:
            for key in keys:
                queue.register(cast(int, time), key, namespace)

    for window in contents.windows():
        for keys, _ in contents.rows(window):
            set_timers(window, keys, fired=False)
    if FIRED_CONTENTS in restored_names(context):
        values, fired = WindowValues(contents), fired_tables(spec, context, FIRED_CONTENTS)
        for window in fired.windows():
            for keys, kept in fired.take(window):
                set_timers(window, keys, fired=True)
                for key, value in zip(keys, kept, strict=True):
                    values.put(window, key, value)
            fired.drop(window)


class RestoredTimers:
    """Timers of a former operator: only which keys of a window had not fired counts. A TimerSection without timers."""

    def __init__(self) -> None:
        #: The keys whose window has not fired, by its stored form.
        self.unfired: dict[Any, set[Any]] = {}

    def snapshot_timers(self) -> Collection[Timer]:
        """There is none."""
        return ()

    def restore_timers(self, timers: Iterable[Timer]) -> None:
        """Notes the timers at the ends of windows."""
        for timer in timers:
            if timer.namespace is not None and timer.timestamp == timer.namespace[1] - 1:
                self.unfired.setdefault(timer.namespace, set()).add(timer.key)


def set_fired_apart(
    contents: WindowTables[TimeWindow],
    fired: WindowTables[TimeWindow],
    unfired: Mapping[Any, Collection[Any]],
    time: StoredWatermark,
) -> None:
    """Moves contents of windows that have fired to `fired`.

    A window has fired for a key whose former subtask had reached its end, unless `unfired` has the key.
    """
    values, of_fired = WindowValues(contents), WindowValues(fired)
    for window in contents.windows_until(time.greatest):
        waiting, end = unfired.get(TIME_WINDOWS.stored(window), ()), window.max_timestamp()
        left: list[tuple[Any, Any]] = []
        for keys, kept in contents.take(window):
            for key, value in zip(keys, kept, strict=True):
                if key in waiting or not time.had_reached(key, end):
                    left.append((key, value))
                else:
                    of_fired.put(window, key, value)
        for key, value in left:
            values.put(window, key, value)
        if not left:
            contents.drop(window)
