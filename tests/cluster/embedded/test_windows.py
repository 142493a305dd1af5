"""Windows through a cluster: the programs of PyFlink's documentation, two windows in a row, and a killed worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import KillWhenSeen, Traced, environment
from yarrow.common import Duration, Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkGenerator
from yarrow.datastream import DataStream
from yarrow.datastream.functions import ProcessWindowFunction, WindowFunction
from yarrow.datastream.window import (
    CountEvictor,
    CountTrigger,
    CountWindow,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeEvictor,
    TimeWindow,
    TumblingEventTimeWindows,
)
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

pytestmark = pytest.mark.cluster

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
VISITS = [("anna", at) for at in (1, 2, 3, 7, 8, 12, 16)] + [("ben", 17), ("anna", 30)]


class SecondField(TimestampAssigner):
    """The time is the second field of a record."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class CountOfWindow(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    """Key, bounds and number of records of a window."""

    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        return [(key, context.window().start, context.window().end, len(list(elements)))]

    def clear(self, context: Any) -> None:
        pass


class SumOfWindow(WindowFunction[Any, Any, str, CountWindow]):
    """Key and sum of a full window."""

    def apply(self, key: str, window: CountWindow, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, sum(number for _, number in inputs))]


class GapOfVisitor(SessionWindowTimeGapExtractor):
    """Ben's visits end later than those of others."""

    def extract(self, element: Any) -> int:
        return 20 if element[0] == "ben" else 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(slots=2, processes=False) as made:
        yield made


def visits(cluster: MiniCluster) -> Any:
    env = cluster.get_execution_environment().set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    stream = env.from_collection(VISITS, PAIR).assign_timestamps_and_watermarks(strategy)
    return stream.key_by(lambda visit: visit[0], Types.STRING())


def collected(stream: DataStream) -> list[Any]:
    with stream.execute_and_collect() as rows:
        return list(rows)


COUNTED = Types.TUPLE([Types.STRING(), Types.INT(), Types.INT(), Types.INT()])


def test_tumbling_time_windows(cluster: MiniCluster) -> None:
    windows = visits(cluster).window(TumblingEventTimeWindows.of(Time.milliseconds(5)))
    found = collected(windows.process(CountOfWindow(), COUNTED))
    assert sorted(found) == [
        ("anna", 0, 5, 3),
        ("anna", 5, 10, 2),
        ("anna", 10, 15, 1),
        ("anna", 15, 20, 1),
        ("anna", 30, 35, 1),
        ("ben", 15, 20, 1),
    ]


def test_sliding_time_windows(cluster: MiniCluster) -> None:
    windows = visits(cluster).window(SlidingEventTimeWindows.of(Time.milliseconds(6), Time.milliseconds(3)))
    found = [
        row for row in collected(windows.process(CountOfWindow(), COUNTED)) if row[0] == "ben" or row[1] < 7
    ]
    assert sorted(found) == [
        ("anna", -3, 3, 2),
        ("anna", 0, 6, 3),
        ("anna", 3, 9, 3),
        ("anna", 6, 12, 2),
        ("ben", 12, 18, 1),
        ("ben", 15, 21, 1),
    ]


def test_sessions_with_a_gap(cluster: MiniCluster) -> None:
    windows = visits(cluster).window(EventTimeSessionWindows.with_gap(Time.milliseconds(4)))
    found = collected(windows.process(CountOfWindow(), COUNTED))
    # Records whose distance is the gap are in one session: their windows touch.
    assert sorted(found) == [("anna", 1, 20, 7), ("anna", 30, 34, 1), ("ben", 17, 21, 1)]


def test_sessions_with_a_dynamic_gap(cluster: MiniCluster) -> None:
    windows = visits(cluster).window(DynamicEventTimeSessionWindows.with_dynamic_gap(GapOfVisitor()))
    found = collected(windows.process(CountOfWindow(), COUNTED))
    assert sorted(found) == [("anna", 1, 20, 7), ("anna", 30, 34, 1), ("ben", 17, 37, 1)]


def test_tumbling_count_windows(cluster: MiniCluster) -> None:
    found = collected(visits(cluster).count_window(2).apply(SumOfWindow(), PAIR))
    # The last visit of Ben never makes a full window.
    assert found == [("anna", 3), ("anna", 10), ("anna", 20), ("anna", 46)]


def summed(visit: Any, other: Any) -> Any:
    """Visitor and sum of two records."""
    return visit[0], visit[1] + other[1]


def test_windows_that_keep_one_value(cluster: MiniCluster) -> None:
    """These take the fast ways of count windows, sessions, and overlapping windows."""
    counts = visits(cluster).count_window(2).reduce(summed, output_type=PAIR)
    assert collected(counts) == [("anna", 3), ("anna", 10), ("anna", 20), ("anna", 46)]
    sessions = visits(cluster).window(EventTimeSessionWindows.with_gap(Time.milliseconds(4)))
    assert sorted(collected(sessions.reduce(summed, output_type=PAIR))) == [
        ("anna", 30),
        ("anna", 49),
        ("ben", 17),
    ]
    sliding = visits(cluster).window(SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(10)))
    assert sorted(collected(sliding.reduce(summed, output_type=PAIR))) == [
        ("anna", 21),
        ("anna", 28),
        ("anna", 30),
        ("anna", 30),
        ("anna", 49),
        ("ben", 17),
        ("ben", 17),
    ]


def test_a_sliding_count_by_trigger_and_evictor(cluster: MiniCluster) -> None:
    windows = visits(cluster).window(GlobalWindows.create()).trigger(CountTrigger.of(2))
    found = collected(windows.evictor(CountEvictor.of(3)).apply(SumOfWindow(), PAIR))
    # Every second visit the sum of the last three; the visit of Ben is alone.
    assert found == [("anna", 3), ("anna", 12), ("anna", 27), ("anna", 58)]


def test_global_windows_fire_at_the_end_of_a_bounded_stream(cluster: MiniCluster) -> None:
    windows = visits(cluster).window(GlobalWindows.create_with_end_of_stream_trigger())
    latest = windows.evictor(TimeEvictor.of(Time.milliseconds(15)))
    found = collected(latest.reduce(lambda a, b: (a[0], a[1] + b[1]), output_type=PAIR))
    assert sorted(found) == [("anna", 46), ("ben", 17)]


def test_two_windows_in_a_row_have_the_same_bounds(cluster: MiniCluster) -> None:
    first = visits(cluster).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    counts = first.process(CountOfWindow(), COUNTED)
    # A result bears the last time of its window, so that it falls into the same window again.
    second = counts.key_by(lambda row: row[1]).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    found = collected(second.reduce(lambda a, b: ("both", a[1], a[2], a[3] + b[3])))
    assert sorted(found) == [
        ("anna", 0, 10, 5),
        ("anna", 30, 40, 1),
        ("both", 10, 20, 3),
    ]


#: So many that no subtask is done before the kill lets the rows pass.
ROWS, KEYS, SIZE = 30_000, 5, 100


class Itself(TimestampAssigner):
    """The time of a number is the number."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


@pytest.mark.parametrize("pre_aggregate", [False, True], ids=["rows", "pre-aggregated"])
def test_a_killed_worker_loses_and_doubles_no_window(tmp_path: Path, pre_aggregate: bool) -> None:
    killer = KillWhenSeen(tmp_path)
    with mini_cluster(task_executors=2, slots=1) as cluster:
        env = environment(cluster, parallelism=2)
        env.enable_checkpointing(100)
        env.get_config().set_auto_watermark_interval(20)
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1))
        rows = env.from_sequence(1, ROWS).map(Traced(tmp_path, "rows"), Types.LONG())
        timed = rows.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Itself()))
        keyed = timed.key_by(lambda number: number % KEYS)
        windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE)))
        found: Counter[Any] = Counter()
        fired = (
            windows.reduce(lambda a, b: a + b, Numbers(), pre_aggregate=True)
            if pre_aggregate
            else windows.apply(Numbers())
        )
        with fired.execute_and_collect() as results:
            killer.start()
            for number, result in enumerate(results):
                found[result] += 1
                if number == KEYS:
                    killer.seen.set()
            killer.join()
    expected: Counter[Any] = Counter()
    for number in range(1, ROWS + 1):
        expected[number % KEYS, number // SIZE * SIZE] += number
    assert found == Counter({(*window, total): 1 for window, total in expected.items()})
    assert killer.struck


class Numbers(WindowFunction[int, Any, int, TimeWindow]):
    """Key, start and sum of a window."""

    def apply(self, key: int, window: TimeWindow, inputs: Iterable[int]) -> Iterable[Any]:
        return [(key, window.start, sum(inputs))]


class EachRow(WatermarkGenerator):
    """A watermark behind each record, so that it is known which ones are late."""

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        pass


def test_the_end_of_a_job_tells_of_late_records(
    cluster: MiniCluster, caplog: pytest.LogCaptureFixture
) -> None:
    env = cluster.get_execution_environment().set_parallelism(1)
    strategy = WatermarkStrategy.for_generator(EachRow)
    stamped = strategy.with_timestamp_assigner(SecondField())
    stream = env.from_collection([("anna", 4), ("anna", 40), ("anna", 6), ("ben", 13)], PAIR)
    keyed = stream.assign_timestamps_and_watermarks(stamped).key_by(lambda visit: visit[0], Types.STRING())
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(5)))
    found = collected(windows.process(CountOfWindow(), COUNTED).name("Visits"))
    assert sorted(found) == [("anna", 0, 5, 1), ("anna", 40, 45, 1)]
    told = (
        "Operator 'Visits': 2 records late (2 dropped), at most 32 ms; an allowed lateness of 32 ms keeps"
        " 99 % of them."
    )
    wait_until(
        lambda: any(record.getMessage().endswith(told) for record in caplog.records), lambda: caplog.text
    )
