"""Rules of the sessions of one key: a short list in the order of time, which rows prolong and join.

Owner: any thread; pure. Must not know state, timers or clocks. The rules are Flink's: the window of a row is
[time, time + gap), and windows that overlap or touch are one session.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from yarrow.runtime.data.elements import MAX_TIMESTAMP

#: A session as it is stored: start, end, time of its timer, what it keeps (None = nothing). A session whose timer is
#: due before its end has not fired. One that has fired waits for the end of its lateness.
Session = tuple[int, int, int, Any]
#: The sessions of a key as their list is in memory: see runtime.data.serializers.tuple_lists.
Sessions = tuple[Any, ...]
#: The number of parts of a session, and the place of its end among them.
WIDTH: Final = 4
END: Final = 1

_START: Final = itemgetter(0)
_END: Final = itemgetter(END)


def touching(sessions: Sequence[Session], start: int, end: int) -> tuple[int, int]:
    """The range of the sessions that overlap or touch [start, end): first position, and that behind the last one.

    The sessions are in order, and no two of them touch. Without any, both are the place of a new session.
    """
    behind = bisect_right(sessions, end, key=_START)
    return bisect_left(sessions, start, hi=behind, key=_END), behind


def begun(sessions: Sequence[Session], watermark: int) -> int:
    """The number of sessions that begin at the watermark or before: no timer of another one is due.

    A timer is due at the end of a row's window at the earliest, which is not before the session's start.
    """
    return bisect_right(sessions, watermark, key=_START)


def has_fired(session: Session) -> bool:
    """True if a session has fired for all its rows."""
    return session[2] >= session[1]


def time_of_removal(end: int, lateness_ms: int) -> int:
    """When a session that has fired is removed; the greatest time at the latest, when all input has ended."""
    return min(end - 1 + lateness_ms, MAX_TIMESTAMP)


def time_of_timer(joined: Sequence[Session], end: int, watermark: int, lateness_ms: int) -> int:
    """The time of the timer of a session that has come about from others, and ends there.

    If the watermark has not passed its end, a timer of its parts may come too early. Otherwise it has fired.
    """
    if end - 1 <= watermark:
        return time_of_removal(end, lateness_ms)
    return min((session[2] for session in joined if not has_fired(session)), default=end - 1)
