"""The programs whose plans are stored beside this file: one of each kind of shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from yarrow.datastream.functions import CoMapFunction, KeyedCoProcessFunction, SinkFunction, SourceFunction

Program = Callable[[StreamExecutionEnvironment], object]

CANCELLED = OutputTag("cancelled", Types.STRING())
COUNTED = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])


class Route(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield CANCELLED, value


class Keep(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield value


class Both(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


class Join(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value


class Ticks(SourceFunction[int]):
    def run(self, ctx: SourceFunction.SourceContext[int]) -> None:
        ctx.collect(1)

    def cancel(self) -> None:
        return None


class Drop(SinkFunction[Any]):
    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        return None


def map_and_print(env: StreamExecutionEnvironment) -> None:
    env.from_collection(["a", "b"]).map(str.upper).print()


def word_count(env: StreamExecutionEnvironment) -> None:
    words = env.from_collection(["to be", "or not"]).flat_map(str.split).map(lambda word: (word, 1))
    words.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).print()


def side_output(env: StreamExecutionEnvironment) -> None:
    flights = env.from_sequence(1, 9).process(Route()).name("Route")
    flights.key_by(lambda flight: flight).process(Keep()).uid("delays").print()
    flights.get_side_output(CANCELLED).print("cancelled").name("Cancelled flights")


def union_of_two(env: StreamExecutionEnvironment) -> None:
    left, right = env.from_sequence(1, 9), env.from_sequence(10, 19).filter(lambda x: x > 12)
    left.union(right).map(lambda x: x).add_sink(Drop())


def connected(env: StreamExecutionEnvironment) -> None:
    env.from_sequence(1, 9).connect(env.from_collection(["a"])).map(Both(), Types.STRING()).print()


def keyed_join(env: StreamExecutionEnvironment) -> None:
    orders, payments = env.from_sequence(1, 9), env.from_sequence(1, 9)
    joined = orders.connect(payments).key_by(lambda x: x, lambda x: x).process(Join())
    joined.uid("join").add_sink(Drop()).name("Shop")


def all_partitioners(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_sequence(1, 9)
    for number, stream in enumerate(
        [
            numbers.forward(),
            numbers.shuffle(),
            numbers.rebalance(),
            numbers.rescale(),
            numbers.broadcast(),
            numbers.global_(),
            numbers.key_by(lambda x: x),
            numbers.partition_custom(lambda key, count: key % count, lambda x: x),
        ]
    ):
        stream.map(lambda x: x).name(f"Map {number}")


def divided_chain(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_sequence(1, 9).map(lambda x: x)
    numbers.filter(lambda x: x > 3).print("large")
    numbers.filter(lambda x: x <= 3).print("small")


def groups_and_chains(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_sequence(1, 9).slot_sharing_group("readers")
    parsed = numbers.map(lambda x: x).name("Parse").start_new_chain()
    slow = parsed.map(lambda x: x).name("Slow").slot_sharing_group("slow").set_parallelism(4)
    slow.map(lambda x: x).name("Alone").disable_chaining().set_max_parallelism(64).print()


def source_function(env: StreamExecutionEnvironment) -> None:
    env.add_source(Ticks(), "Ticks", Types.LONG()).map(lambda x: (x, x)).project(1).print()


def columns(env: StreamExecutionEnvironment) -> None:
    schema = pa.schema([("word", pa.string()), ("length", pa.int64())])
    words = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    batches = words.map_batches(
        lambda batch: batch.rename_columns(["word", "length"]), schema
    ).filter_batches(lambda batch: pc.greater(batch["length"], 0))
    batches.key_by("word").aggregate([("length", "sum"), (None, "count")]).to_rows().print()


def columns_and_back(env: StreamExecutionEnvironment) -> None:
    rows = env.from_sequence(1, 9).map(lambda x: Row(word=str(x), count=x), COUNTED)
    rows.key_by(lambda row: row.word).map_batches(lambda batch: batch).map(lambda row: row).print()


def non_parallel_sink(env: StreamExecutionEnvironment) -> None:
    env.from_sequence(1, 9).key_by(lambda x: x % 10).sum().print().set_parallelism(1)


def same_source_twice(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_sequence(1, 9)
    numbers.union(numbers).key_by(lambda x: x).max().uid("maximum").print()


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        map_and_print,
        word_count,
        side_output,
        union_of_two,
        connected,
        keyed_join,
        all_partitioners,
        divided_chain,
        groups_and_chains,
        source_function,
        columns,
        columns_and_back,
        non_parallel_sink,
        same_source_twice,
    )
}
