"""Whether an operator of windows keeps anything: windows, timers, or state of one."""

from __future__ import annotations

from typing import Any

from yarrow.container.operators.sliced_window.windows_of_slices import WindowsOfSlices
from yarrow.container.operators.window.folding_windows import FoldingWindows
from yarrow.container.operators.window.session_windows import SessionWindows
from yarrow.container.operators.window.stored_forms import SESSIONS
from yarrow.container.operators.window.tumbling_windows import TumblingWindows
from yarrow.container.operators.window.window_operator import WindowingOperator
from yarrow.container.operators.window.windowing_base import WindowingBase


def keeps_nothing(operator: WindowingBase) -> bool:
    """True if no window, no timer and no state of a window is left."""
    timers = operator._timers
    kept: list[Any] = [len(timers.event_timers), len(timers.processing_timers)]
    states: list[Any] = [*operator._function_states.values]
    if isinstance(operator, SessionWindows):
        kept += operator.context.state.state_keys(SESSIONS)
    else:
        states.append(operator._contents.values)  # type: ignore[attr-defined]
    if isinstance(operator, TumblingWindows):
        kept += [*operator._ends, *operator._open, *operator._former]
    elif isinstance(operator, WindowsOfSlices):
        kept += [*operator._ends, *operator._ending, *operator._slices]
        kept += [] if operator._blocks is None else [operator._blocks.entries]
        whole = operator._whole
        states += [operator._standing, *([] if whole is None else [whole._contents.values])]
    elif isinstance(operator, WindowingOperator):
        states += operator._trigger_context.states.values
        kept += [] if operator._merger is None else operator.context.state.state_keys("_merging_windows")
    if isinstance(operator, FoldingWindows) and operator._fired is not None:
        kept += operator._fired.ahead
        states.append(operator._fired.contents.values)
    if isinstance(operator, FoldingWindows):
        # These operators drop each window when it ends, and look for no empty one.
        kept += [values.perhaps_empty for values in states]
    return not any(kept) and not any(values.tables.windows() for values in states)
