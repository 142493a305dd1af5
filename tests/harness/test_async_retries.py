"""Calls that are attempted again: predicates on results and errors, delays, limits, and timeouts over all attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.gated_calls import Forgiving, Gated, Gates, loop_is_idle, new_gates, run_until
from yarrow.common.time import Duration
from yarrow.datastream import AsyncDataStream
from yarrow.datastream.async_retry_predicates import empty_result_predicate, has_exception_predicate
from yarrow.datastream.async_retry_strategies import NoRetryStrategy
from yarrow.datastream.functions import AsyncFunction, AsyncRetryStrategy
from yarrow.testing.operator_harness import Fragment, FragmentFailedError, OperatorHarness

MINUTE = Duration.of_minutes(1)
RETRIES = "async_wait_operator.asyncRetries"


@pytest.fixture
def gates() -> Iterator[Gates]:
    yield new_gates()
    assert loop_is_idle()


def retrying(
    strategy: AsyncRetryStrategy[Any],
    function: AsyncFunction[Any, Any] | None = None,
    *,
    ordered: bool = True,
) -> Fragment:
    wait = AsyncDataStream.ordered_wait_with_retry if ordered else AsyncDataStream.unordered_wait_with_retry
    return lambda rows: wait(rows, function or Gated(), MINUTE, strategy, 4)


def fixed(attempts: int = 2, delay: int = 1, on_result: Callable[[Any], bool] | None = None) -> Any:
    return AsyncRetryStrategy.fixed_delay(attempts, delay, on_result, has_exception_predicate)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    "strategy",
    [
        fixed(on_result=empty_result_predicate),
        AsyncRetryStrategy.exponential_backoff(2, 1, 4, 2.0, empty_result_predicate, has_exception_predicate),
    ],
    ids=["fixed delay", "exponential backoff"],
)
def test_empty_results_and_errors_are_attempted_again(
    gates: Gates, strategy: AsyncRetryStrategy[Any], ordered: bool
) -> None:
    with OperatorHarness(retrying(strategy, ordered=ordered)) as harness:
        harness.push("a")
        gates.release("a", [])
        gates.release("a", OSError("the line is down"))
        gates.release("a", ["A"])
        run_until(harness, lambda: harness.output == ["A"])
        assert gates.begun == ["a"] * 3
        assert harness.metrics()[RETRIES] == 2


def test_the_outcome_of_the_last_attempt_stands(gates: Gates) -> None:
    with OperatorHarness(retrying(fixed(1, on_result=empty_result_predicate))) as harness:
        harness.push("a", "b")
        gates.release("a", [])
        gates.release("a", [])
        gates.release("b", ["B"])
        run_until(harness, lambda: harness.output == ["B"])
        assert gates.begun.count("a") == 2
        harness.push("c")
        gates.release("c", OSError("first"))
        gates.release("c", OSError("second"))
        with pytest.raises(FragmentFailedError, match="second"):
            run_until(harness, lambda: False)


def test_an_outcome_that_no_predicate_names_stands(gates: Gates) -> None:
    strategy = AsyncRetryStrategy.fixed_delay(9, 1, None, lambda error: isinstance(error, OSError))
    with OperatorHarness(retrying(strategy)) as harness:
        harness.push("a", "b")
        gates.release("a", [])
        gates.release("b", ValueError("this is no OSError"))
        with pytest.raises(FragmentFailedError, match="this is no OSError"):
            run_until(harness, lambda: False)
        assert sorted(gates.begun) == ["a", "b"]


def test_a_predicate_that_raises_fails_the_job_with_the_record(gates: Gates) -> None:
    def broken(result: Any) -> bool:
        raise KeyError("broken predicate")

    with OperatorHarness(retrying(fixed(on_result=broken))) as harness:
        harness.push("a")
        gates.release("a", ["A"])
        with pytest.raises(FragmentFailedError, match="broken predicate"):
            run_until(harness, lambda: False)
        assert harness.failures[0].record == "'a'"


def test_the_timeout_covers_the_delay_between_attempts(gates: Gates) -> None:
    with OperatorHarness(retrying(fixed(delay=3_600_000), Forgiving())) as harness:
        harness.push("a")
        gates.release("a", OSError())
        run_until(harness, lambda: harness.metrics()[RETRIES] == 1)
        harness.advance(59)
        harness.push("b")
        gates.release("b", ["B"])
        run_until(harness, lambda: gates.open_calls == 0)
        assert harness.output == []
        harness.advance(2)
        run_until(harness, lambda: harness.output == ["late a", "B"])
        assert gates.begun == ["a", "b"], "no attempt follows a timeout"


class EmptyWhenCancelled(Gated):
    """Gives an empty result although it was cancelled, and another one for its timeout."""

    async def async_invoke(self, value: Any) -> list[Any]:
        try:
            return await super().async_invoke(value)
        except asyncio.CancelledError:
            return []

    def timeout(self, value: Any) -> list[Any]:
        return [f"late {value}"]


def test_an_outcome_behind_the_timeout_is_not_attempted_again(gates: Gates) -> None:
    """As FLINK-30477 wants it: no attempt follows the timeout of a record, and its result leaves once."""
    strategy = fixed(9, on_result=empty_result_predicate)
    with OperatorHarness(retrying(strategy, EmptyWhenCancelled(), ordered=False)) as harness:
        harness.push("a")
        gates.until(lambda: gates.open_calls == 1)
        harness.advance(61)
        run_until(harness, lambda: harness.output == ["late a"])
        gates.until(lambda: gates.cancelled == ["a"])
        harness.push("b")
        gates.release("b", ["B"])
        run_until(harness, lambda: harness.output == ["late a", "B"])
        assert gates.begun == ["a", "b"]
        assert harness.metrics()[RETRIES] == 0


@pytest.mark.parametrize("attempts", [0, 1])
def test_a_result_before_the_timeout_stands(gates: Gates, attempts: int) -> None:
    """As FLINK-40456 wants it: of a result, or that of a further attempt, and the timeout one wins, exactly once."""
    with OperatorHarness(retrying(fixed(9), Forgiving())) as harness:
        harness.push("a")
        for _ in range(attempts):
            gates.release("a", OSError("the line is down"))
        gates.release("a", ["A"])
        gates.until(lambda: gates.open_calls == 0 and len(gates.begun) == attempts + 1)
        harness.advance(61)
        run_until(harness, lambda: harness.output == ["A"])
        harness.push("b")
        harness.advance(1)
        gates.release("b", ["B"])
        run_until(harness, lambda: harness.output == ["A", "B"])
        assert harness.metrics()["async_wait_operator.asyncTimeouts"] == 0


class NoPredicates(NoRetryStrategy):
    """Cannot tell what is attempted again."""

    def get_retry_predicate(self) -> Any:
        raise LookupError("there are no predicates")


def test_a_strategy_without_predicates_fails_the_job_and_leaves_no_thread(gates: Gates) -> None:
    with pytest.raises(FragmentFailedError, match="there are no predicates"):
        OperatorHarness(retrying(NoPredicates()))
    assert gates.closed == 1
