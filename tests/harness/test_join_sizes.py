"""Metrics of the state of joins: entries, bytes and oldest row of each side, over restores; and who holds time back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from tests.support.restarted_job import CANONICAL, RestartedJob
from yarrow.common.time import Time
from yarrow.container.operators.join.join_sizes import JoinSizes
from yarrow.datastream import DataStream, KeyedStream, ProcessJoinFunction
from yarrow.datastream.window import TumblingEventTimeWindows
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.testing.operator_harness import OperatorHarness

END = (1 << 63) - 1


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right


def interval(left: KeyedStream, right: KeyedStream) -> Any:
    return left.interval_join(right).between(Time.milliseconds(0), Time.milliseconds(5000)).full_outer()


def as_of(left: KeyedStream, right: KeyedStream) -> Any:
    return left.as_of_join(right).nearest(Time.milliseconds(5000))


def delayed(left: KeyedStream, right: KeyedStream) -> Any:
    return left.delayed_join(right).after(Time.milliseconds(5000))


JOINS = [interval, as_of, delayed]


def building(join: Callable[..., Any]) -> Callable[[DataStream, DataStream], DataStream]:
    def build(first: DataStream, second: DataStream) -> DataStream:
        left, right = (rows.key_by(lambda row: row[0]) for rows in (first, second))
        made: DataStream = join(left, right).process(Pairs()).uid("join")
        return made

    return build


def sizes_of(job: RestartedJob) -> list[JoinSizes]:
    found: list[Any] = [operator for operator in job.operators]
    return [operator.sizes for operator in found]


def entries(job: RestartedJob) -> tuple[int, int]:
    """The rows of each side in all subtasks."""
    sizes = sizes_of(job)
    return sum(each.left.entries for each in sizes), sum(each.right.entries for each in sizes)


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_sizes_follow_the_rows_over_restores(join: Any, backend: str) -> None:
    job = RestartedJob(building(join), inputs=2)
    job.start(2, backend)
    keys = list(range(50))
    job.push([(key, "left") for key in keys], [10_000 + key for key in keys])
    job.push([(key, "right") for key in keys[:20]], [70_000 + key for key in keys[:20]], 1)
    assert entries(job) == (50, 20)
    before = [(each.left.entries, each.left.oldest, each.left.bytes) for each in sizes_of(job)]
    assert all(oldest is not None and oldest <= 10_049 and size > 0 for _, oldest, size in before)
    job.stop(CANONICAL)
    # With the same parallelism nothing is estimated.
    job.start(2, backend)
    assert [(each.left.entries, each.left.oldest, each.left.bytes) for each in sizes_of(job)] == before
    job.watermark(60_000)
    assert entries(job) == (0, 20)
    job.stop(CANONICAL)
    # With another one it takes its share.
    job.start(3, backend)
    assert abs(entries(job)[1] - 20) <= 6
    job.watermark(END)
    assert entries(job) == (0, 0)
    job.stop(CANONICAL)


@pytest.mark.parametrize("join", JOINS)
def test_sizes_are_metrics_of_the_operator(join: Any) -> None:
    with OperatorHarness(building(join), inputs=2) as harness:
        harness.push((1, "a"), (2, "b"), timestamps=[60_000, 125_000])
        harness.push((1, "c"), input=1, timestamps=[180_000])
        read = {
            name.rpartition(".")[2]: value
            for task in harness.tasks
            for name, value in task.environment.metrics.values().items()
            if "StateEntries" in name or "StateBytes" in name or "StateOldestRow" in name
        }
        assert (read["leftStateEntries"], read["rightStateEntries"]) == (2, 1)
        assert read["leftStateBytes"] > read["rightStateBytes"] > 0
        assert read["leftStateOldestRow"] <= 60_000 < read["rightStateOldestRow"] <= 180_000


def test_a_warning_names_who_holds_time_back_while_rows_gather(caplog: pytest.LogCaptureFixture) -> None:
    with OperatorHarness(building(interval), inputs=2) as harness, caplog.at_level(logging.WARNING):
        harness.watermark(7000, 0)
        harness.watermark(5000, 1)
        harness.advance(10)
        harness.push(*[(1, number) for number in range(1500)], timestamps=[9000] * 1500)
        harness.advance(40)
        assert "event time stands" not in caplog.text
        harness.advance(30)
        (told,) = [record.getMessage() for record in caplog.records if "event time stands" in record.message]
    assert "'Interval Join': event time stands at 5000" in told
    assert "from 0 to 1500 rows (left 1500, right 0)" in told
    assert "The second stream holds it back: the watermark 5000 has come from" in told
    assert "(1/1)" in told
    assert "with_idleness" in told


def test_no_warning_comes_while_event_time_moves(caplog: pytest.LogCaptureFixture) -> None:
    with OperatorHarness(building(delayed), inputs=2) as harness, caplog.at_level(logging.WARNING):
        for step in range(10):
            time = 100_000 + step
            for input in range(2):
                harness.watermark(time, input)
            harness.push(*[(1, number) for number in range(500)], timestamps=[time + 1000] * 500)
            harness.advance(30)
        assert "holds it back" not in caplog.text


COLUMNS = pa.schema([("k", pa.int64()), ("n", pa.int64())])


def windows(left: Any, right: Any) -> Any:
    return left.window_join(right).window(TumblingEventTimeWindows.of(Time.milliseconds(5000)))


def of_columns(join: Callable[..., Any]) -> OperatorHarness:
    def build(first: DataStream, second: DataStream) -> DataStream:
        left, right = (rows.key_by("k") for rows in (first, second))
        made: DataStream = join(left, right).to_columns().uid("join")
        return made

    return OperatorHarness(build, inputs=2, types=[COLUMNS, COLUMNS])


def columns(number: int, time: int) -> ArrowBatch:
    rows = pa.RecordBatch.from_pydict({"k": [1] * number, "n": list(range(number))}, COLUMNS)
    return ArrowBatch(rows, pa.array([time] * number, pa.int64()))


@pytest.mark.parametrize("join", [interval, as_of, windows])
def test_a_join_of_columns_warns_like_one_of_rows(join: Any, caplog: pytest.LogCaptureFixture) -> None:
    with of_columns(join) as harness, caplog.at_level(logging.WARNING):
        harness.watermark(7000, 0)
        harness.watermark(5000, 1)
        harness.advance(10)
        harness.send(columns(1500, 9000))
        harness.send(columns(10, 9500), 1)
        harness.advance(40)
        assert "event time stands" not in caplog.text
        harness.advance(30)
        (told,) = [record.getMessage() for record in caplog.records if "event time stands" in record.message]
        # Each doubling is told, and nothing once time has moved.
        harness.send(columns(2000, 9000))
        harness.advance(20)
        assert caplog.text.count("event time stands") == 2
        harness.watermark(6000, 1)
        harness.advance(20)
        assert caplog.text.count("event time stands") == 2
    assert "event time stands at 5000" in told
    assert "from 0 to 1510 rows (left 1500, right 10)" in told
    assert "The second stream holds it back: the watermark 5000 has come from" in told
    assert "(1/1)" in told


def test_a_join_of_columns_does_not_look_when_its_input_has_ended() -> None:
    with of_columns(interval) as harness:
        head = harness.tasks[0].chain.head
        assert head.seconds_until_upkeep() is not None
        head.finish()
        assert head.seconds_until_upkeep() is None
