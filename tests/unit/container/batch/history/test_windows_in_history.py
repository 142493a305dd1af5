"""Windows over history by BatchTasks, then over the stream from its savepoint, are those of the stream alone."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import run_batch, shuffled
from tests.support.history_program import Case, cases, history_graph, stream_results
from yarrow.common import Time, Types
from yarrow.datastream import DataStream, KeyedStream
from yarrow.datastream.functions import AggregateFunction, WindowFunction
from yarrow.datastream.window import (
    ContinuousEventTimeTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)

NUMBERS = Types.LIST(Types.LONG())


class Shown(WindowFunction[Any, Any, Any, Any]):
    """Key, bounds of the window, numbers."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, window.start, window.end, tuple(sorted(number for _, number, _ in inputs)))]


def tumbling(rows: KeyedStream) -> DataStream:
    return rows.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).apply(Shown())


def sliding(rows: KeyedStream) -> DataStream:
    windows = rows.window(SlidingEventTimeWindows.of(Time.milliseconds(9), Time.milliseconds(4)))
    return windows.allowed_lateness(5).apply(Shown())


def sessions(rows: KeyedStream) -> DataStream:
    return rows.window(EventTimeSessionWindows.with_gap(Time.milliseconds(6))).apply(Shown())


class Numbers(AggregateFunction[Any, Any, Any]):
    """The sorted numbers of a window."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        return [*accumulator, value[1]]

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(sorted(accumulator))

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


def sessions_in_lists(rows: KeyedStream) -> DataStream:
    windows = rows.window(EventTimeSessionWindows.with_gap(Time.milliseconds(6)))
    return windows.allowed_lateness(5).aggregate(Numbers(), accumulator_type=NUMBERS)


def counts(rows: KeyedStream) -> DataStream:
    return rows.count_window(3).aggregate(Numbers(), accumulator_type=NUMBERS)


class ShownNumbers(WindowFunction[Any, Any, Any, Any]):
    """Key, bounds of the window, numbers of an accumulator."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, window.start, window.end, *inputs)]


def incremental(
    assigner: WindowAssigner[Any, Any], *, pre_aggregate: bool = False, lateness: int = 0
) -> Callable[[KeyedStream], DataStream]:
    def build(rows: KeyedStream) -> DataStream:
        return (
            rows.window(assigner)
            .allowed_lateness(lateness)
            .aggregate(Numbers(), ShownNumbers(), accumulator_type=NUMBERS, pre_aggregate=pre_aggregate)
        )

    return build


#: Windows that history gives to the general operator, and a fast one goes on with.
FAST = [
    incremental(TumblingEventTimeWindows(10, 0)),
    incremental(SlidingEventTimeWindows(9, 4, 0)),
    incremental(CumulativeEventTimeWindows(12, 4, 0)),
    incremental(TumblingEventTimeWindows(10, 0), pre_aggregate=True),
    incremental(SlidingEventTimeWindows(9, 4, 0), pre_aggregate=True, lateness=5),
]


def repeated(rows: KeyedStream) -> DataStream:
    windows = rows.window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
    return windows.trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(5))).apply(Shown())


@pytest.mark.slow
@pytest.mark.parametrize("windows", [tumbling, sliding, sessions, sessions_in_lists, counts, repeated, *FAST])
@settings(max_examples=15, deadline=None)
@given(case=cases(), backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_history_and_stream_have_the_windows_of_the_stream(windows: Any, case: Case, backend: str) -> None:
    case = case._replace(function=windows)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        run = run_batch(history_graph(case, path), {"state.backend.type": backend}, deal=shuffled(case.seed))
        behind = [row for row in case.rows if row[2] >= case.until]
        results = run.rows() + stream_results(case, behind, path, case.until - case.delay - 1)
        assert Counter(results) == Counter(stream_results(case, case.rows, None, None))
