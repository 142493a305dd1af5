"""Columnar aggregates and broadcast state: history by BatchTasks, then the stream, equals the stream over all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collecting_graph, run_batch, shuffled
from tests.support.history_program import JOB, of_keys, strategy
from tests.support.split_rows import SplitRows
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream import (
    BroadcastProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
)
from yarrow.datastream.state import MapStateDescriptor, ValueStateDescriptor
from yarrow.runtime.config.options import batch
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.batch.history import history_job
from yarrow.state_processor import SavepointEnvironment, SavepointReader

SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64())])
PAIR: TypeInformation = Types.ROW_NAMED(["key", "number"], [Types.STRING(), Types.LONG()])
RULES: MapStateDescriptor[str, int] = MapStateDescriptor("rules", Types.STRING(), Types.INT())

rows = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-9, 9)), max_size=60)


def timed(found: list[Any], splits: int) -> list[list[Any]]:
    """Rows in splits, each at the time that is its position."""
    pairs = [(row, time) for time, row in enumerate(found)]
    return [pairs[number::splits] for number in range(splits)]


def aggregated(stream: DataStream) -> DataStream:
    columns = stream.map(tuple, Types.TUPLE([Types.STRING(), Types.LONG()])).to_arrow(SCHEMA).key_by("key")
    wanted = [("number", "sum"), ("number", "max"), ("number", "mean")]
    return columns.aggregate(wanted).uid("aggregate").to_rows()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    found=rows,
    until=st.integers(0, 61),
    splits=st.integers(1, 3),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_aggregates_of_columns_go_on_from_their_history(
    found: list[Any], until: int, splits: int, parallelism: int, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        env = environment(parallelism, {batch.HISTORY_UNTIL.key: str(batch.HistoryEnd(until))})
        env.set_max_parallelism(16)
        source = env.from_source(SplitRows(timed(found, splits)), strategy(0), "rows").uid("rows")
        graph = collecting_graph(env, aggregated(source))
        history = history_job(graph, JOB, path, graph.configuration, drops_rows=False)
        run = run_batch(history, {"execution.batch.max-rows": "7"}, deal=shuffled(seed))
        before = last_of_keys(run.rows())
        assert before == last_of_keys(streamed_sums(found[:until], None))
        behind = last_of_keys(streamed_sums(found[until:], path))
        assert {**before, **behind} == last_of_keys(streamed_sums(found, None))


def streamed_sums(found: list[Any], savepoint: str | None) -> list[Any]:
    with SavepointEnvironment(aggregated, savepoint, types=[PAIR], max_parallelism=16) as running:
        # A row a batch: each result of the stream can be seen.
        for row in found:
            running.push([row])
        return running.take()


def last_of_keys(results: list[Any]) -> dict[str, tuple[Any, ...]]:
    """How many columns agree in a batch depends on the batch: what counts is the last result of a key."""
    return {result[0]: tuple(result) for result in results}


class Ruled(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Emits each row with its key's rule and how many rows there were; its timers tell the rules too."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor[int]("count", Types.INT()))

    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        time = ctx.timestamp()
        assert time is not None
        ctx.timer_service().register_event_time_timer(time + 4)
        yield value[0], value[1], self.count.value(), ctx.get_broadcast_state(RULES).get(value[0])

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(*value)

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield (
            ctx.get_current_key(),
            -timestamp,
            self.count.value(),
            len(list(ctx.get_broadcast_state(RULES).items())),
        )


class RuledRows(BroadcastProcessFunction[Any, Any, Any]):
    """The same without keys."""

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        yield value[0], value[1], ctx.get_broadcast_state(RULES).get(value[0])

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(*value)


def ruled(stream: DataStream, rules: DataStream) -> DataStream:
    told = rules.broadcast(RULES)
    return stream.key_by(lambda row: row[0]).connect(told).process(Ruled()).uid("ruled")


def ruled_rows(stream: DataStream, rules: DataStream) -> DataStream:
    return stream.connect(rules.broadcast(RULES)).process(RuledRows()).uid("ruled")


def streamed(
    program: Any, rules: list[Any], found: list[tuple[Any, int]], savepoint: str | None, first: int | None
) -> list[Any]:
    """The rules are read before the rows, as in a stream whose rules come first."""
    with SavepointEnvironment(program, savepoint, inputs=2, max_parallelism=16) as running:
        running.push_timestamped(rules, input=1)
        running.watermark(MAX_TIMESTAMP, input=1)
        if first is not None:
            running.watermark(first)
            assert running.take() == [], "timers up to the watermark of the savepoint have fired"
        for row, time in found:
            running.watermark(time - 1)
            running.push_timestamped([(row, time)])
        running.watermark(MAX_TIMESTAMP)
        return running.take()


@pytest.mark.slow
@pytest.mark.parametrize("program", [ruled, ruled_rows])
@settings(max_examples=25, deadline=None)
@given(
    found=rows,
    rules=st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9)), max_size=8, unique_by=lambda r: r[0]
    ),
    until=st.integers(0, 61),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
    backend=st.sampled_from(["hashmap", "rocksdb"]),
)
def test_broadcast_state_goes_on_from_its_history(
    program: Any, found: list[Any], rules: list[Any], until: int, parallelism: int, seed: int, backend: str
) -> None:
    """Rules that came at the beginning are known to each row of history and of the stream, and to each timer."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        env = environment(parallelism, {batch.HISTORY_UNTIL.key: str(batch.HistoryEnd(until))})
        env.set_max_parallelism(16)
        stream = env.from_source(SplitRows(timed(found, 1)), strategy(0), "rows").uid("rows")
        told = [[(rule, -1) for rule in rules]]
        control = env.from_source(SplitRows(told), strategy(0), "rules").uid("rules")
        graph = collecting_graph(env, program(stream, control))
        history = history_job(graph, JOB, path, graph.configuration, drops_rows=False)
        values = {"execution.batch.max-rows": "3", "state.backend.type": backend}
        run = run_batch(history, values, deal=shuffled(seed))
        pairs = [(row, time) for time, row in enumerate(found)]
        results = run.rows() + streamed(program, [], pairs[until:], path, until - 1)
        early = [(rule, -1) for rule in rules]
        assert of_keys(results) == of_keys(streamed(program, early, pairs, None, None))
        if rules:
            with SavepointReader.read(path) as reader:
                stored = reader.read_broadcast_state("ruled", "rules").to_pylist()
            assert {row["key"]: row["value"] for row in stored} == dict(rules)
