"""What a program must not do, each with the message that says so."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import Duration, MemorySize, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.data_stream import CachedDataStream
from yarrow.datastream.utils import pickled_bytes_to_python_converter
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.executor import ProgramAborted, plan_only

Build = Callable[[StreamExecutionEnvironment], object]


class Keyed(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        return None


class Plain(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        return None


class PlainCo(CoProcessFunction[Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        return None

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return None


class KeyedCo(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        return None

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return None


class Identity(MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        return value


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value  # type: ignore[no-any-return]


class Batches(NumberSequenceSource):
    """Numbers that come as record batches."""

    def produced_schema(self) -> pa.Schema:
        return pa.schema([("value", pa.int64())])


BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))


def numbers(env: StreamExecutionEnvironment) -> Any:
    return env.from_sequence(1, 9)


def keyed(env: StreamExecutionEnvironment) -> Any:
    return numbers(env).key_by(lambda x: x)


def columns(env: StreamExecutionEnvironment) -> Any:
    return numbers(env).to_arrow(pa.schema([("value", pa.int64())]))


UNSUPPORTED: dict[str, tuple[Build, str]] = {
    "cached stream": (lambda env: CachedDataStream(), "no cached intermediate results"),
    "invalidated stream": (
        lambda env: CachedDataStream.__new__(CachedDataStream).invalidate(),
        "CachedDataStream.invalidate is refused: this version has no cached intermediate results",
    ),
    "pickles of Java": (
        lambda env: pickled_bytes_to_python_converter(b"", Types.STRING()),
        "this version has no Java objects",
    ),
    "assigner inside a columnar source": (
        lambda env: env.from_source(Batches(1, 9), BOUNDED.with_timestamp_assigner(Itself()), "batches"),
        "from_source of 'batches', which gives record batches, with a timestamp assigner is refused",
    ),
    "input format": (lambda env: env.create_input(None), "create_input takes an InputFormat of files"),
    "cache": (lambda env: numbers(env).cache(), "no cached intermediate results"),
    "group with resources": (
        lambda env: numbers(env).slot_sharing_group(
            SlotSharingGroup.builder("gpu")
            .set_cpu_cores(1)
            .set_task_heap_memory(MemorySize.of_mebi_bytes(1))
            .build()
        ),
        "'gpu' asks for resources of its own",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported(name: str) -> None:
    build, message = UNSUPPORTED[name]
    with pytest.raises(UnsupportedFeatureError, match=re.escape(message)):
        build(environment())


INVALID: dict[str, tuple[Build, str]] = {
    "union of types": (
        lambda env: numbers(env).union(env.from_collection(["a"], Types.STRING())),
        "Cannot union streams of different types: Long and String",
    ),
    "union of kinds": (lambda env: numbers(env).union(columns(env)), "Cannot union rows and columns"),
    "union of environments": (
        lambda env: numbers(env).union(numbers(environment())),
        "belong to two execution environments",
    ),
    "repartitioned keys": (
        lambda env: keyed(env).rebalance(),
        "A keyed stream is distributed by its key, which",
    ),
    "settings of a partition": (
        lambda env: numbers(env).shuffle().uid("u"),
        "uid() concerns an operator, but this stream is a partition",
    ),
    "settings of a union": (
        lambda env: numbers(env).union(numbers(env)).set_parallelism(1),
        "set_parallelism() concerns an operator, but this stream is a union",
    ),
    "parallel collection": (
        lambda env: env.from_collection([1]).set_parallelism(2),
        "Operator 'Collection Source' can only run with parallelism 1, not 2",
    ),
    "column name on rows": (
        lambda env: numbers(env).key_by("value"),
        "key_by('value'): only a columnar stream has columns to name",
    ),
    "unknown key column": (
        lambda env: columns(env).key_by("id"),
        "key_by: there is no column 'id'; the stream has ['value']",
    ),
    "several column names on rows": (
        lambda env: numbers(env).key_by("value", "day"),
        "key_by('value', 'day'): only a columnar stream has columns to name. Convert with to_arrow() first, or pass a"
        " function, such as lambda row: (row['value'], row['day'])",
    ),
    "unknown second key column": (
        lambda env: columns(env).key_by("value", "id"),
        "key_by: there is no column 'id'; the stream has ['value']",
    ),
    "key column named twice": (
        lambda env: columns(env).key_by("value", "value"),
        "key_by: the columns ['value'] are named twice; name each once",
    ),
    "key type of another shape": (
        lambda env: columns(env).map_batches(lambda batch: batch).key_by("a", "b", Types.STRING()),
        "key_by: the keys of the columns ['a', 'b'] are tuples of 2 values, not String; declare Types.TUPLE",
    ),
    "key type in the middle": (
        lambda env: columns(env).key_by("value", Types.LONG(), "day"),
        "is no name of a column; give names of columns, and behind them the type of the keys",
    ),
    "function and column": (
        lambda env: columns(env).key_by(lambda row: row.value, "day"),
        "key_by takes a function and the type of its keys, or names of columns",
    ),
    "key column and result of one name": (
        lambda env: columns(env).map_batches(lambda batch: batch).key_by("a", "b").sum("c", "b"),
        "aggregate: two columns of the result are named ['b']",
    ),
    "unknown aggregate column": (
        lambda env: columns(env).key_by("value").sum("amount"),
        "sum: there is no column 'amount'; the stream has ['value']",
    ),
    "unknown aggregate": (
        lambda env: columns(env).key_by("value").aggregate([("value", "median")]),
        "there is no kind 'median'; use one of ['count', 'max', 'mean', 'min', 'sum']",
    ),
    "result columns of one name": (
        lambda env: columns(env).key_by("value").aggregate([("value", "sum", "x"), (None, "count", "x")]),
        "two columns of the result are named ['x']",
    ),
    "columns of an undeclared type": (
        lambda env: numbers(env).map(lambda x: x).name("Parse").map_batches(lambda batch: batch),
        "map_batches() takes columns, but the rows of operator 'Parse' have no declared type",
    ),
    "columns of a type that Arrow lacks": (
        lambda env: (
            numbers(env)
            .map(lambda x: x, Types.ROW_NAMED(["n"], [Types.BIG_INT()]))
            .name("Parse")
            .map_batches(lambda batch: batch)
        ),
        "Operator 'Parse': its field 'n' has the type",
    ),
    "unknown container": (
        lambda env: columns(env).map_batches(lambda batch: batch, container="numpy"),
        "there is no container 'numpy'; use one of 'pyarrow'",
    ),
    "projected field": (
        lambda env: env.from_collection([(1, 2)], Types.TUPLE([Types.LONG(), Types.LONG()])).project(0, 2),
        "project: there is no field 2; the records have 2 fields, 0 to 1",
    ),
    "summed field": (
        lambda env: (
            env.from_collection([(1,)], Types.TUPLE([Types.LONG()])).key_by(lambda row: row[0]).sum(1)
        ),
        "sum(1): the records have 1 fields, 0 to 0",
    ),
    "tag of two types": (
        lambda env: _two_types(env),
        "The side output 'late' of operator 'Process' is asked for with two types",
    ),
    "missing file": (
        lambda env: env.add_python_file("missing.py"),
        "ships 'missing.py' (python_file), but there is no",
    ),
    "cached file of one name": (
        lambda env: _two_cached_files(env),
        "A cached file named 'model' is registered already",
    ),
    "watermark alignment behind a source": (
        lambda env: numbers(env).assign_timestamps_and_watermarks(
            BOUNDED.with_watermark_alignment("group", Duration.of_seconds(1))
        ),
        "assign_timestamps_and_watermarks cannot align watermarks (group 'group')",
    ),
    "watermark alignment without watermarks": (
        lambda env: env.from_source(
            NumberSequenceSource(1, 9),
            WatermarkStrategy.no_watermarks().with_watermark_alignment("group", Duration.of_seconds(1)),
            "numbers",
        ),
        "from_source with watermark alignment (group 'group') needs a strategy that makes watermarks",
    ),
}


def _two_cached_files(env: StreamExecutionEnvironment) -> None:
    env.register_cached_file(__file__, "model")
    env.register_cached_file(__file__, "model")


def _two_types(env: StreamExecutionEnvironment) -> None:
    stream = numbers(env).process(Plain())
    stream.get_side_output(OutputTag("late", Types.LONG()))
    stream.get_side_output(OutputTag("late", Types.STRING()))


@pytest.mark.parametrize("name", INVALID)
def test_invalid_at_the_call(name: str) -> None:
    build, message = INVALID[name]
    with pytest.raises(InvalidProgramError, match=re.escape(message)):
        build(environment())


WRONG_FUNCTIONS: dict[str, tuple[Build, str]] = {
    "class of a function": (
        lambda env: numbers(env).map(Identity),
        "not a class: pass Identity(...) instead",
    ),
    "other function": (
        lambda env: numbers(env).filter(Identity()),
        "filter takes a FilterFunction, not an Identity",
    ),
    "no function": (lambda env: numbers(env).map(3), "map takes a MapFunction or a callable, not 3"),
    "callable to process": (
        lambda env: numbers(env).process(lambda value, ctx: []),
        "process takes a ProcessFunction, not <function",
    ),
    "keyed function on a plain stream": (
        lambda env: numbers(env).process(Keyed()),
        "a KeyedProcessFunction on a keyed stream only: call key_by before it",
    ),
    "plain function on a keyed stream": (
        lambda env: keyed(env).process(Plain()),
        "process on a keyed stream takes a KeyedProcessFunction, not a Plain",
    ),
    "keyed function on connected streams": (
        lambda env: numbers(env).connect(numbers(env)).process(KeyedCo()),
        "a KeyedCoProcessFunction where both streams are keyed",
    ),
    "sink as function": (lambda env: numbers(env).add_sink(print), "add_sink takes a SinkFunction, not"),
    "source as function": (
        lambda env: env.add_source(lambda: 1),  # type: ignore[arg-type]
        "add_source takes a SourceFunction, not",
    ),
    "watermarks without strategy": (
        lambda env: numbers(env).assign_timestamps_and_watermarks("bounded"),
        "assign_timestamps_and_watermarks takes a WatermarkStrategy, such as",
    ),
    "time characteristic": (
        lambda env: env.set_stream_time_characteristic("event"),  # type: ignore[arg-type]
        "set_stream_time_characteristic takes a TimeCharacteristic, not 'event'",
    ),
    "output type": (lambda env: numbers(env).map(str, "string"), "output_type must be a TypeInformation"),
}


@pytest.mark.parametrize("name", WRONG_FUNCTIONS)
def test_wrong_functions(name: str) -> None:
    build, message = WRONG_FUNCTIONS[name]
    with pytest.raises(TypeError, match=re.escape(message)):
        build(environment())


def two_maps(env: StreamExecutionEnvironment) -> tuple[Any, Any]:
    first = numbers(env).map(lambda x: x).name("First")
    return first, first.map(lambda x: x).name("Second")


def test_forward_between_different_parallelisms() -> None:
    env = environment()
    numbers(env).forward().map(lambda x: x).set_parallelism(3)
    with pytest.raises(
        InvalidProgramError, match=r"'Source: Sequence Source' has 2, 'Map' has 3\. Make them equal"
    ):
        env.get_stream_graph()


def test_parallelism_above_max_parallelism() -> None:
    env = environment()
    two_maps(env)[1].set_parallelism(9).set_max_parallelism(8)
    with pytest.raises(
        InvalidProgramError, match="'Second' has parallelism 9, which is above its max parallelism 8"
    ):
        env.get_job_graph()


def test_parallelism_above_the_max_parallelism_of_the_job() -> None:
    env = environment().set_max_parallelism(128)
    two_maps(env)[1].set_parallelism(200)
    with pytest.raises(InvalidProgramError, match="parallelism 200, which is above its max parallelism 128"):
        env.get_job_graph()


def test_a_cycle_names_its_operators() -> None:
    env = environment()
    first, second = two_maps(env)
    first.transformation.reads = (second.transformation,)
    with pytest.raises(
        InvalidProgramError,
        match=r"a cycle that no iteration made: (First -> Second -> First|Second -> First -> Second)",
    ):
        env.get_stream_graph()


def test_an_empty_program() -> None:
    env = environment()
    env.from_sequence(1, 9)
    with pytest.raises(InvalidProgramError, match="The program defines no operators"):
        env.get_job_graph()


def test_undeclared_types_where_generic_types_are_disabled() -> None:
    env = environment()
    env.get_config().disable_generic_types()
    numbers(env).map(lambda x: x).print()
    with pytest.raises(InvalidProgramError, match=r"from 'Map' to 'Sink: Print.* has no declared type"):
        env.get_stream_graph()


def test_an_unknown_key_of_the_configuration() -> None:
    env = environment()
    env.get_configuration().set_string("paralelism.default", "2")
    two_maps(env)
    with pytest.raises(ValueError, match=r"paralelism\.default.*Did you mean parallelism\.default"):
        env.get_job_graph()


def test_streams_and_environments_stay_on_the_client() -> None:
    env = environment()
    stream = numbers(env)
    with pytest.raises(TypeError, match="a DataStream is part of the program that is being built"):
        pickle.dumps(stream)
    with pytest.raises(
        InvalidProgramError, match=r"'Map'.*the captured variable 'env'.*exists on the client only"
    ):
        stream.map(lambda x: env.get_parallelism() + x)


def test_an_unbounded_source_is_refused_by_name_where_its_end_is_waited_for() -> None:
    env = environment(settings={"execution.exchange-mode": "blocking"})
    env.socket_text_stream("localhost", 1).key_by(len).reduce(max).print()
    with pytest.raises(
        InvalidProgramError, match=r"'Socket Stream' is unbounded, and execution.exchange-mode is"
    ):
        env.get_job_graph()
    bounded = environment(settings={"execution.exchange-mode": "blocking"})
    bounded.from_sequence(1, 9).key_by(lambda value: value % 2).reduce(max).print()
    bounded.get_job_graph()
    # Nothing waits for the end of a source without an exchange behind it.
    alone = environment(settings={"execution.exchange-mode": "blocking", "parallelism.default": "1"})
    alone.socket_text_stream("localhost", 1).map(len).print()
    alone.get_job_graph()


def test_what_cannot_be_kept_is_refused_not_forgotten() -> None:
    env = environment(
        settings={"execution.exchange-mode": "blocking", "execution.checkpointing.interval": "1 s"}
    )
    env.from_sequence(1, 9).print()
    with pytest.raises(UnsupportedFeatureError, match="no barrier passes a result that"):
        env.execute()
    # Its plan may still be looked at.
    env.from_sequence(1, 9).print()
    with pytest.raises(ProgramAborted), plan_only():
        env.execute()
