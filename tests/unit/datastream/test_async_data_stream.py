"""AsyncDataStream builds an operator that heads its chain, and refuses wrong arguments at the program's line."""

from __future__ import annotations

from typing import Any

import pytest

from yarrow.common import Duration, Time, Types
from yarrow.datastream import AsyncDataStream, StreamExecutionEnvironment
from yarrow.datastream.data_stream import operator_of
from yarrow.datastream.functions import AsyncFunction, AsyncRetryStrategy, CheckpointedFunction, MapFunction
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.operator_spec import AsyncWaitOperator
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
    ("method", "ordered"),
    [
        ("ordered_wait", True),
        ("unordered_wait", False),
        ("ordered_wait_with_retry", True),
        ("unordered_wait_with_retry", False),
    ],
)
def test_the_operator_heads_its_chain(method: str, ordered: bool) -> None:
    strategy = [AsyncRetryStrategy.no_restart()] if method.endswith("retry") else []
    stream = getattr(AsyncDataStream, method)(
        numbers(), Itself(), Time.seconds(2), *strategy, 7, Types.STRING()
    )
    made = operator_of(stream)
    assert isinstance(made.spec, AsyncWaitOperator)
    assert (made.spec.timeout_ms, made.spec.capacity, made.spec.ordered) == (2000, 7, ordered)
    assert made.chaining is ChainingStrategy.HEAD
    assert made.output_type == Types.STRING()


def test_a_hundred_records_are_in_flight_unless_the_program_says_otherwise() -> None:
    spec = operator_of(AsyncDataStream.unordered_wait(numbers(), Itself(), SECOND)).spec
    assert isinstance(spec, AsyncWaitOperator) and spec.capacity == 100


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((Itself(), SECOND, 0), ValueError, "capacity of an async function must be at least 1"),
        ((Itself(), Duration.of_millis(0)), ValueError, "timeout of an async function must be at least 1 ms"),
        ((Plain(), SECOND), InvalidProgramError, r"Plain.async_invoke is no coroutine function.*async def"),
        ((WithState(), SECOND), UnsupportedFeatureError, "WithState is a CheckpointedFunction"),
        ((Itself, SECOND), TypeError, "takes an object, not a class"),
        ((NoFunction(), SECOND), TypeError, "takes a AsyncFunction, not a NoFunction"),
        ((lambda value: [value], SECOND), TypeError, "takes a AsyncFunction"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        AsyncDataStream.ordered_wait(numbers(), *arguments)


def test_a_strategy_and_a_stream_are_needed() -> None:
    with pytest.raises(TypeError, match="takes an AsyncRetryStrategy"):
        AsyncDataStream.ordered_wait_with_retry(numbers(), Itself(), SECOND, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a DataStream, not list"):
        AsyncDataStream.ordered_wait([1], Itself(), SECOND)  # type: ignore[arg-type]
