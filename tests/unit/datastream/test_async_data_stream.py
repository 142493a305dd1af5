"""AsyncDataStream builds an operator that heads its chain, and refuses wrong arguments at the program's line."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from yarrow.common import Duration, Row, Time, Types
from yarrow.datastream import AsyncDataStream, StreamExecutionEnvironment
from yarrow.datastream.data_stream import operator_of
from yarrow.datastream.functions import (
    AsyncBatchFunction,
    AsyncFunction,
    AsyncRetryStrategy,
    CheckpointedFunction,
    MapFunction,
)
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.async_spec import (
    AsyncBatchLimits,
    AsyncByKeyOperator,
    AsyncColumnsOperator,
    AsyncWaitOperator,
    ResultOrder,
)
from yarrow.runtime.graph.operator_spec import StreamKind
from yarrow.runtime.graph.transformations import ChainingStrategy

SECOND = Duration.of_seconds(1)


class Itself(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


class Plain(AsyncFunction[Any, Any]):
    def async_invoke(self, value: Any) -> Any:
        return [value]


class WithState(Itself, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        raise AssertionError("never called")

    def snapshot_state(self, context: Any) -> None:
        raise AssertionError("never called")


class NoFunction(MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        return value


def numbers() -> Any:
    return StreamExecutionEnvironment.get_execution_environment().from_collection([1, 2], Types.LONG())


@pytest.mark.parametrize(
    ("method", "order"),
    [
        ("ordered_wait", ResultOrder.ORDERED),
        ("unordered_wait", ResultOrder.UNORDERED),
        ("ordered_wait_with_retry", ResultOrder.ORDERED),
        ("unordered_wait_with_retry", ResultOrder.UNORDERED),
    ],
)
def test_the_operator_heads_its_chain(method: str, order: ResultOrder) -> None:
    strategy = [AsyncRetryStrategy.no_restart()] if method.endswith("retry") else []
    stream = getattr(AsyncDataStream, method)(
        numbers(), Itself(), Time.seconds(2), *strategy, 7, Types.STRING()
    )
    made = operator_of(stream)
    assert isinstance(made.spec, AsyncWaitOperator)
    assert (made.spec.timeout_ms, made.spec.capacity, made.spec.order) == (2000, 7, order)
    assert made.chaining is ChainingStrategy.HEAD
    assert made.output_type == Types.STRING()


def test_a_hundred_records_are_in_flight_unless_the_program_says_otherwise() -> None:
    spec = operator_of(AsyncDataStream.unordered_wait(numbers(), Itself(), SECOND)).spec
    assert isinstance(spec, AsyncWaitOperator) and spec.capacity == 100


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((Itself(), SECOND, 0), ValueError, "capacity of an async function must be at least 1"),
        ((Itself(), SECOND, 2.5), TypeError, "capacity of an async function must be a whole number, not 2.5"),
        ((Itself(), Duration.of_millis(0)), ValueError, "timeout of an async function must be at least 1 ms"),
        ((Plain(), SECOND), InvalidProgramError, r"Plain.async_invoke is no coroutine function.*async def"),
        ((WithState(), SECOND), UnsupportedFeatureError, "WithState is a CheckpointedFunction"),
        ((Itself, SECOND), TypeError, "takes an object, not a class"),
        ((NoFunction(), SECOND), TypeError, "takes an AsyncFunction, not a NoFunction"),
        ((lambda value: [value], SECOND), TypeError, "takes an AsyncFunction"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        AsyncDataStream.ordered_wait(numbers(), *arguments)


class InBatches(AsyncBatchFunction):
    async def async_invoke(self, values: Any) -> Any:
        return values


def in_batches(**options: Any) -> InBatches:
    function = InBatches()
    vars(function).update(options)
    return function


def test_order_by_key_needs_a_key() -> None:
    made = operator_of(AsyncDataStream.ordered_by_key(numbers().key_by(lambda n: n), Itself(), SECOND, 7))
    assert isinstance(made.spec, AsyncByKeyOperator)
    assert (made.spec.order, made.spec.capacity) == (ResultOrder.BY_KEY, 7)
    assert made.spec.key_selector is not None
    assert made.chaining is ChainingStrategy.HEAD
    with pytest.raises(TypeError, match="ordered_by_key takes a keyed stream of rows, not a DataStream"):
        AsyncDataStream.ordered_by_key(numbers(), Itself(), SECOND)


def test_threads_take_the_place_of_a_coroutine() -> None:
    spec = operator_of(AsyncDataStream.unordered_wait(numbers(), Plain(), SECOND, threads=3)).spec
    assert isinstance(spec, AsyncWaitOperator) and spec.threads == 3
    with pytest.raises(InvalidProgramError, match=r"Itself\.async_invoke is a coroutine function"):
        AsyncDataStream.unordered_wait(numbers(), Itself(), SECOND, threads=3)
    with pytest.raises(ValueError, match="threads of an async function must be at least 0, not -1"):
        AsyncDataStream.unordered_wait(numbers(), Plain(), SECOND, threads=-1)


def test_limits_of_batches() -> None:
    spec = operator_of(AsyncDataStream.unordered_wait(numbers(), in_batches(), SECOND)).spec
    assert isinstance(spec, AsyncWaitOperator)
    assert spec.batch == AsyncBatchLimits(max_rows=64, max_wait_ms=10, latency_ms=500)
    function = in_batches(max_rows=5, max_wait=Duration.of_millis(0), latency=Duration.of_millis(80))
    spec = operator_of(AsyncDataStream.ordered_wait(numbers(), function, SECOND, 5)).spec
    assert isinstance(spec, AsyncWaitOperator)
    assert spec.batch == AsyncBatchLimits(max_rows=5, max_wait_ms=0, latency_ms=80)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rows": 0}, "max_rows of InBatches must be at least 1, not 0"),
        ({"max_rows": 101}, "capacity 100 is less than max_rows of InBatches, which is 101"),
        ({"max_wait": Duration.of_millis(-1)}, "max_wait of InBatches must be at least 0 ms"),
        ({"latency": Duration.of_millis(0)}, "latency of InBatches must be at least 1 ms"),
    ],
)
def test_wrong_limits_of_batches(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AsyncDataStream.ordered_wait(numbers(), in_batches(**options), SECOND)


def test_record_batches_go_in_and_come_out_where_the_stream_has_columns() -> None:
    schema = pa.schema([("n", pa.int64())])
    rows = numbers().map(lambda n: Row(n=n), Types.ROW_NAMED(["n"], [Types.LONG()]))
    made = operator_of(AsyncDataStream.ordered_wait(rows.to_arrow(schema), in_batches(), SECOND, 100, schema))
    assert isinstance(made.spec, AsyncColumnsOperator)
    assert made.output_kind is StreamKind.COLUMNAR
    assert made.spec.emitted_schema == made.output_schema is not None
    assert made.chaining is ChainingStrategy.HEAD
    # A function of single records gets rows.
    spec = operator_of(AsyncDataStream.ordered_wait(rows.to_arrow(schema), Itself(), SECOND)).spec
    assert type(spec) is AsyncWaitOperator
    with pytest.raises(TypeError, match="declare them by a pyarrow Schema"):
        AsyncDataStream.ordered_wait(rows.to_arrow(schema), in_batches(), SECOND, 100, Types.LONG())
    with pytest.raises(TypeError, match="a Schema declares record batches"):
        AsyncDataStream.ordered_wait(numbers(), in_batches(), SECOND, 100, schema)


def test_a_strategy_and_a_stream_are_needed() -> None:
    with pytest.raises(TypeError, match="takes an AsyncRetryStrategy"):
        AsyncDataStream.ordered_wait_with_retry(numbers(), Itself(), SECOND, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a DataStream, not list"):
        AsyncDataStream.ordered_wait([1], Itself(), SECOND)  # type: ignore[arg-type]
