"""The list of a key's sessions against merged intervals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.window.session_rules import (
    Session,
    begun,
    has_fired,
    time_of_removal,
    time_of_timer,
    touching,
)
from yarrow.runtime.data.elements import MAX_TIMESTAMP


@given(st.lists(st.tuples(st.integers(-60, 60), st.integers(1, 9)), max_size=25))
def test_windows_that_overlap_or_touch_become_one(windows: list[tuple[int, int]]) -> None:
    sessions: list[Session] = []
    for start, gap in windows:
        end = start + gap
        first, behind = touching(sessions, start, end)
        joined = sessions[first:behind]
        low, high = min([start, *(s[0] for s in joined)]), max([end, *(s[1] for s in joined)])
        sessions[first:behind] = [(low, high, high - 1, None)]
    # A point belongs to a session if a window covers it; windows that touch cover the point between them.
    covered = {2 * at for start, gap in windows for at in range(start, start + gap + 1)}
    covered |= {2 * at + 1 for start, gap in windows for at in range(start, start + gap)}
    merged: list[list[int]] = []
    for point in sorted(covered):
        if merged and point == merged[-1][1] + 1:
            merged[-1][1] = point
        else:
            merged.append([point, point])
    assert [[2 * start, 2 * end] for start, end, _, _ in sessions] == merged


def test_sessions_behind_the_watermark_are_not_looked_at() -> None:
    sessions: list[Session] = [(0, 10, 9, None), (12, 20, 19, None), (30, 40, 39, None)]
    assert [begun(sessions, watermark) for watermark in (-1, 0, 11, 12, 29, 30, 99)] == [0, 1, 1, 2, 2, 3, 3]


def test_a_joined_session_keeps_the_earliest_timer_of_parts_that_have_not_fired() -> None:
    waiting, fired = [(0, 10, 4, None), (20, 30, 29, None)], (12, 14, 33, None)
    assert [has_fired(each) for each in (*waiting, fired)] == [False, False, True]
    assert time_of_timer([*waiting, fired], 31, 13, 20) == 4
    assert time_of_timer([fired], 16, 13, 20) == 15
    assert time_of_timer([], 16, 13, 20) == 15


def test_a_session_below_the_watermark_waits_for_its_removal() -> None:
    assert time_of_timer([(12, 14, 33, None)], 16, 15, 20) == 35
    assert has_fired((12, 16, 35, None))
    assert time_of_removal(16, 20) == 35
    assert time_of_removal(16, MAX_TIMESTAMP) == MAX_TIMESTAMP
