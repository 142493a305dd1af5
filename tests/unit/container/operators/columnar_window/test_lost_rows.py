"""LostRows: which first rows of a slice each window of a key has lost, against a dict, and how much it keeps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common import Time
from yarrow.common.typeinfo import Types
from yarrow.container.operators.columnar_window.lost_rows import LostRows, Run, lost_by, with_lost
from yarrow.datastream import DataStream, WindowGroups
from yarrow.datastream.window import SlidingEventTimeWindows
from yarrow.testing.operator_harness import OperatorHarness

SLIDE = 5
ENDS = range(0, 60, SLIDE)


@given(st.lists(st.tuples(st.sampled_from(ENDS), st.integers(1, 3)), max_size=20))
def test_runs_tell_the_number_of_each_window(puts: list[tuple[int, int]]) -> None:
    runs: list[Run] = []
    numbers: dict[int, int] = {}
    for end, number in puts:
        runs, numbers[end] = with_lost(end, number, runs, SLIDE), number
        assert {each: lost_by(each, runs) for each in ENDS} == {each: numbers.get(each, 0) for each in ENDS}
    # No two runs could be one.
    assert all(not (one[1] + SLIDE == other[0] and one[2] == other[2]) for one, other in pairwise(runs))


def left_of(lost: LostRows, end: int, counts: dict[int, int]) -> list[int]:
    """The numbers of the rows of slot 0 that a window has still, counted through its slices."""
    rows = pa.array([[*range(sum(counts.values()))]], pa.large_list(pa.int64()))
    of_slot = {start: np.array([count]) for start, count in counts.items()}
    if not lost.may_have(end):
        return [*range(sum(counts.values()))]
    (left,) = lost.left(end, np.array([0]), rows, of_slot).to_pylist()
    assert isinstance(left, list)
    return left


@pytest.mark.parametrize("slide", [5, 10, 15])
def test_a_restore_with_another_slide_keeps_what_each_window_has_lost(slide: int) -> None:
    lost = LostRows(SLIDE)
    for end in (20, 25, 30, 40):
        lost.put(end, np.array([0]), {10: np.array([2]), 15: np.array([0])})
    restored = LostRows(slide)
    restored.restore(0, lost.of_slots()[0])
    for end in range(0, 60, 5):
        expected = [2, 3] if end in (20, 25, 30, 40) else [0, 1, 2, 3]
        assert left_of(restored, end, {10: 3, 15: 1}) == expected


def test_a_savepoint_with_a_number_for_each_window_is_read() -> None:
    lost = LostRows(SLIDE)
    lost.restore(0, [(10, 20, 2), (10, 25, 2), (10, 40, 1)])
    assert lost.of_slots() == {0: [(10, 20, 25, SLIDE, 2), (10, 40, 40, SLIDE, 1)]}
    assert left_of(lost, 25, {10: 3}) == [2]


def fails(rows: pa.RecordBatch, groups: WindowGroups) -> Any:
    if -1 in rows["n"].to_pylist():
        raise ValueError("no good")
    return {"rows": np.diff(groups.offsets)}


@pytest.mark.parametrize("slices", [20, 40])
def test_one_bad_row_costs_a_number_for_each_slice(slices: int) -> None:
    size, schema = Time.milliseconds(slices), pa.schema([("k", pa.string()), ("n", pa.int64())])

    def build(stream: DataStream) -> DataStream:
        windows = stream.to_arrow(schema).key_by("k")
        keyed = windows.window(SlidingEventTimeWindows.of(size, Time.milliseconds(1)))
        made = keyed.allowed_lateness(1000).aggregate_batches(fails, pa.schema([("rows", pa.int64())]))
        return made.uid("windows").on_error("skip")

    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    with OperatorHarness(build, types=[pair]) as harness:
        times = range(2 * slices)
        rows = [("a", -1 if time == slices else time) for time in times]
        harness.push(*rows, timestamps=[*times])
        harness.watermark(3 * slices)
        (operator,) = [
            each for task in harness.tasks for each in task.chain.operators if hasattr(each, "_lost")
        ]
        kept: Any = operator
        # Each of the slices beside the bad row is lost by some windows in a row.
        assert 2 * slices - 1 == len(kept._lost.of_slots()[0])
        # A late row, which each window of the bad one takes, still leaves one number a slice.
        harness.push(("a", 7), timestamps=[slices])
        assert 2 * slices - 1 == len(kept._lost.of_slots()[0])
