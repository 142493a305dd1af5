"""Rules of windows: when a window ends for good, whether it is late, and what a trigger's answer means.

Owner: any thread; pure. Must not know state, timers or clocks. The rules are Flink's: a window is [start, end), and
`max_timestamp` is end - 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yarrow.datastream.window import TriggerResult, Window
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import MAX_TIMESTAMP


def cleanup_time(window: Window, lateness_ms: int, *, event_time: bool) -> int | None:
    """When everything of a window is removed, in ms by the clock of its assigner; None = never.

    Windows of processing time know no lateness. A time beyond 64 bits never comes.
    """
    time = window.max_timestamp() + (lateness_ms if event_time else 0)
    return time if time < MAX_TIMESTAMP else None


def is_window_late(window: Window, lateness_ms: int, watermark: int, *, event_time: bool) -> bool:
    """True if the watermark has passed a window and its lateness, so that no row may open it any more."""
    if not event_time:
        return False
    time = cleanup_time(window, lateness_ms, event_time=True)
    return time is not None and time <= watermark


def is_row_late(timestamp: int, lateness_ms: int, watermark: int, *, event_time: bool) -> bool:
    """True if the watermark has passed a row and the lateness; asked for rows that no window contains."""
    return event_time and timestamp + lateness_ms <= watermark


def checked_result(result: Any, trigger: object) -> TriggerResult:
    """The answer of a trigger. Raises InvalidProgramError for anything else than a TriggerResult."""
    if isinstance(result, TriggerResult):
        return result
    raise InvalidProgramError(
        f"the trigger {type(trigger).__name__} answered {result!r}: return a TriggerResult, such as"
        " TriggerResult.CONTINUE"
    )


def listed_windows(found: Any, assigner: object) -> list[Any]:
    """The windows that an assigner has given. Raises InvalidProgramError if it gave none that can be listed."""
    if not isinstance(found, Iterable):
        raise InvalidProgramError(
            f"the assigner {type(assigner).__name__} gave {found!r}: assign_windows must return the windows of a"
            " record, such as a list of TimeWindow. An empty list says that the record has none"
        )
    return list(found)


def checked_window(window: Any, expected: type[Window], assigner: object) -> Window:
    """A window of an assigner. Raises InvalidProgramError for a window of another type than `expected`."""
    if isinstance(window, expected):
        return window
    raise InvalidProgramError(
        f"the assigner {type(assigner).__name__} gave {window!r} of type {type(window).__name__}: its windows must be"
        f" of type {expected.__name__}, which its serializer writes"
    )
