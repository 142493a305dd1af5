"""Which windows of a key become one, and where the content of a merged window is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.time import Time
from yarrow.container.operators.window.merging_windows import Merge, MergingWindowSet
from yarrow.datastream.window import EventTimeSessionWindows, MergingWindowAssigner, TimeWindow
from yarrow.runtime.common.errors import InvalidProgramError

SESSIONS = EventTimeSessionWindows.with_gap(Time.milliseconds(3))


def live_windows(*windows: tuple[int, int]) -> MergingWindowSet[TimeWindow]:
    found: MergingWindowSet[TimeWindow] = MergingWindowSet({})
    for start, end in windows:
        found.add(TimeWindow(start, end), SESSIONS)
    return found


def test_a_window_apart_keeps_its_own_content() -> None:
    live = live_windows((0, 3), (10, 13))
    assert live.state_windows == {TimeWindow(0, 3): TimeWindow(0, 3), TimeWindow(10, 13): TimeWindow(10, 13)}
    assert live.is_changed


def test_windows_that_touch_merge_and_the_content_stays() -> None:
    live = live_windows((0, 3))
    actual, merges = live.add(TimeWindow(3, 6), SESSIONS)
    assert actual == TimeWindow(0, 6)
    assert merges == [Merge(TimeWindow(0, 6), (TimeWindow(0, 3),), TimeWindow(0, 3), ())]
    assert live.state_windows == {TimeWindow(0, 6): TimeWindow(0, 3)}


def test_a_row_between_two_sessions_joins_them_and_moves_one_content() -> None:
    live = live_windows((0, 3), (4, 7))
    actual, merges = live.add(TimeWindow(2, 5), SESSIONS)
    assert actual == TimeWindow(0, 7)
    (merge,) = merges
    assert set(merge.merged) == {TimeWindow(0, 3), TimeWindow(4, 7)}
    assert {merge.state_window, *merge.merged_state_windows} == {TimeWindow(0, 3), TimeWindow(4, 7)}
    assert live.state_windows == {TimeWindow(0, 7): merge.state_window}


def test_a_window_inside_another_changes_nothing_else() -> None:
    live = live_windows((0, 3), (3, 6))
    actual, merges = live.add(TimeWindow(1, 4), SESSIONS)
    assert (actual, merges) == (TimeWindow(0, 6), [])
    assert live.state_windows == {TimeWindow(0, 6): TimeWindow(0, 3)}


def test_the_same_window_again_keeps_the_place_of_its_content() -> None:
    live = MergingWindowSet({TimeWindow(0, 6): TimeWindow(0, 3)})
    assert live.add(TimeWindow(0, 6), SESSIONS) == (TimeWindow(0, 6), [])
    assert live.state_window(TimeWindow(0, 6)) == TimeWindow(0, 3)
    assert not live.is_changed


def test_a_retired_window_is_gone() -> None:
    live = MergingWindowSet({TimeWindow(0, 6): TimeWindow(0, 3)})
    live.retire(TimeWindow(0, 6))
    assert live.is_changed
    assert live.state_window(TimeWindow(0, 6)) is None


def test_to_retire_an_unknown_window_changes_nothing() -> None:
    live = MergingWindowSet({TimeWindow(0, 6): TimeWindow(0, 3)})
    live.retire(TimeWindow(0, 3))
    assert not live.is_changed


class Inventing(EventTimeSessionWindows):
    """Merges a window that nobody has given it."""

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        callback.merge([*windows, TimeWindow(77, 80)], TimeWindow(0, 80))


def test_an_assigner_that_merges_unknown_windows_is_named() -> None:
    with pytest.raises(InvalidProgramError, match=r"assigner Inventing merged .*77.* two or more"):
        live_windows((0, 3)).add(TimeWindow(5, 8), Inventing(3))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=12))
def test_live_windows_are_the_sessions_of_all_rows(rows: list[tuple[int, int]]) -> None:
    live: MergingWindowSet[TimeWindow] = MergingWindowSet({})
    content: dict[TimeWindow, list[Any]] = {}
    for number, (start, gap) in enumerate(rows):
        actual, merges = live.add(TimeWindow(start, start + gap), SESSIONS)
        for merge in merges:
            for moved in merge.merged_state_windows:
                content.setdefault(merge.state_window, []).extend(content.pop(moved))
        state_window = live.state_window(actual)
        assert state_window is not None
        content.setdefault(state_window, []).append(number)
    expected: list[tuple[int, int, set[int]]] = []
    for number in sorted(range(len(rows)), key=lambda each: rows[each]):
        start, end = rows[number][0], sum(rows[number])
        if expected and start <= expected[-1][1]:
            first, last, numbers = expected[-1]
            expected[-1] = first, max(last, end), numbers | {number}
        else:
            expected.append((start, end, {number}))
    found = [
        (window.start, window.end, set(content[state]))
        for window, state in sorted(live.state_windows.items())
    ]
    assert found == expected
    assert len(content) == len(found)
