"""Columns in batch jobs, and inputs that are read whole before others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.batch_runner import collect, collecting_graph, run_batch, shuffled
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.container.batch.batch_task import BatchAttempt, BatchTask
from yarrow.container.batch.split_assignment import assign
from yarrow.datastream import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    OutputTag,
    ProcessFunction,
)
from yarrow.datastream.state import MapStateDescriptor
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.job_graph import JobGraph

SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64())])
RULES: MapStateDescriptor[str, int] = MapStateDescriptor("rules", Types.STRING(), Types.INT())
LATE = OutputTag("late")
ROWS = [(f"k{n * 7 % 10}", n) for n in range(1000)]


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow.compute as pc

    return pa.RecordBatch.from_arrays([batch["key"], pc.multiply(batch["number"], 2)], schema=SCHEMA)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_columns_run_through_a_batch_job(parallelism: int) -> None:
    env = environment(parallelism)
    rows = env.from_collection(ROWS, Types.TUPLE([Types.STRING(), Types.LONG()])).rebalance()
    columns = rows.to_arrow(SCHEMA).map_batches(doubled, SCHEMA)
    found = collect(env, columns.to_rows())
    assert sorted((row.key, row.number) for row in found) == sorted((key, 2 * n) for key, n in ROWS)


def task_of(graph: JobGraph, attempt: BatchAttempt, folder: Path) -> BatchTask:
    return BatchTask(graph, plan(graph), attempt, Settings(), ManualClock(), folder)


class Repeats:
    """Yields each batch many times, and notes how often it was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        large = pa.RecordBatch.from_arrays([["k"] * 70_000, [1] * 70_000], schema=SCHEMA)
        for _ in range(20):
            with self.path.open("a") as file:
                file.write("x")
            yield large


def test_a_function_that_makes_many_batches_is_asked_for_one_after_the_other(tmp_path: Path) -> None:
    env = environment(1)
    rows = env.from_collection(ROWS[:1], Types.TUPLE([Types.STRING(), Types.LONG()]))
    columns = rows.to_arrow(SCHEMA).rebalance().map_batches(Repeats(tmp_path / "asked"), SCHEMA)
    graph = collecting_graph(env, columns.rebalance().map_batches(doubled, SCHEMA).set_parallelism(2))
    first, second, *_ = graph.vertices
    splits = tuple(assign(graph, first.id, 1)[0])
    made = list(task_of(graph, BatchAttempt(vertex_id=first.id, subtask=0, splits=splits), tmp_path).run([]))
    attempt = BatchAttempt(vertex_id=second.id, subtask=0)
    chunks = task_of(graph, attempt, tmp_path).run(chunk for chunk in made if chunk.edge >= 0)
    for _ in range(2):
        next(chunks)
    assert len((tmp_path / "asked").read_text()) < 10
    assert sum(chunk.rows for chunk in chunks if chunk.edge >= 0) > 1_000_000


@pytest.mark.parametrize("seed", range(3))
def test_aggregates_of_columns_come_once_a_key(seed: int) -> None:
    env = environment(3)
    rows = env.from_collection(ROWS, Types.TUPLE([Types.STRING(), Types.LONG()])).rebalance()
    columns = rows.to_arrow(SCHEMA).map_batches(doubled, SCHEMA)
    aggregated = columns.key_by("key").sum("number")
    settings = {"execution.batch.max-rows": "10"}
    run = run_batch(collecting_graph(env, aggregated.to_rows()), settings, deal=shuffled(seed))
    expected = {key: sum(2 * n for other, n in ROWS if other == key) for key, _ in ROWS}
    found = [tuple(row) for row in run.rows()]
    assert sorted(found) == sorted(expected.items())


class Reads(BroadcastProcessFunction[Any, Any, Any]):
    """Emits each row with the number of rules that it knows."""

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        yield value, len(list(ctx.get_broadcast_state(RULES).items()))

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(value, 1)


@pytest.mark.parametrize("seed", range(3))
def test_broadcast_inputs_are_read_whole_before_the_other(seed: int) -> None:
    env = environment(3)
    rules = env.from_collection([str(n) for n in range(50)]).rebalance().map(str).broadcast(RULES)
    rows = env.from_collection(range(100)).rebalance().map(lambda n: n)
    graph = collecting_graph(env, rows.connect(rules).process(Reads()))
    run = run_batch(graph, {"execution.batch.max-rows": "3"}, deal=shuffled(seed))
    assert sorted(run.rows()) == [(n, 50) for n in range(100)]


class KeyedReads(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """The same with a timer for each key."""

    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(9)
        yield value, len(list(ctx.get_broadcast_state(RULES).items()))

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(value, 1)

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), len(list(ctx.get_broadcast_state(RULES).items()))


def test_broadcast_beside_keys() -> None:
    env = environment(3)
    rules = env.from_collection([str(n) for n in range(50)]).rebalance().map(str).broadcast(RULES)
    rows = env.from_collection(range(100)).key_by(lambda n: -(n % 5) - 1)
    run = run_batch(collecting_graph(env, rows.connect(rules).process(KeyedReads())), deal=shuffled(1))
    assert sorted(run.rows()) == [(-key, 50) for key in range(5, 0, -1)] + [(n, 50) for n in range(100)]


class Sides(CoProcessFunction[Any, Any, Any]):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield 1, value

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield 2, value


def test_unkeyed_inputs_come_one_after_the_other() -> None:
    env = environment(1)
    first, second = env.from_collection(range(5)), env.from_collection(range(5, 10))
    found = collect(env, first.connect(second).process(Sides()), deal=shuffled(2))
    assert found == [(1, n) for n in range(5)] + [(2, n) for n in range(5, 10)]


class ThirdField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


class WithTime(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield tuple(value), ctx.timestamp()


@pytest.mark.parametrize("combine", ["true", "false"])
@pytest.mark.parametrize("producers", [1, 2, 3])
def test_an_aggregate_of_columns_has_the_latest_time_of_its_key(producers: int, combine: str) -> None:
    schema = pa.schema([("key", pa.int64()), ("number", pa.int64()), ("time", pa.int64())])
    env = environment(producers)
    timed = [(1, 10, 5), (1, 20, 3), (1, 30, 4), (2, 1, 9), (2, 1, 1)]
    rows = env.from_collection(timed, Types.TUPLE([Types.LONG()] * 3)).rebalance()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ThirdField())
    columns = rows.assign_timestamps_and_watermarks(strategy).to_arrow(schema)
    summed = columns.key_by("key").aggregate([("number", "sum")]).to_rows().process(WithTime())
    found = collect(env, summed, settings={"execution.batch.combine": combine})
    assert sorted(found) == [((1, 60), 5), ((2, 2), 9)]
