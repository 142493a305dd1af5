"""Asynchronous functions of bounded jobs: capacity holds, everything is drained, and failures name the record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.batch_runner import collect
from tests.support.gated_calls import loop_is_idle
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Duration, Types, WatermarkStrategy
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream import AsyncDataStream
from yarrow.datastream.async_retry_predicates import has_exception_predicate
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.functions import AsyncFunction, AsyncRetryStrategy
from yarrow.runtime.common.clock import SystemClock

COUNT = 3000
MINUTE = Duration.of_minutes(1)


class Doubled(AsyncFunction[int, int]):
    """Waits some turns of the loop; notes how many calls are open at a time."""

    open_calls = most_open_calls = 0

    async def async_invoke(self, value: int) -> list[int]:
        cls = type(self)
        cls.open_calls += 1
        cls.most_open_calls = max(cls.most_open_calls, cls.open_calls)
        for _ in range(value % 5):
            await asyncio.sleep(0)
        cls.open_calls -= 1
        return [2 * value]


class Failing(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        raise ValueError(f"no answer for {value}")


class Slow(AsyncFunction[int, int]):
    """Never answers; gives up after its time."""

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.Event().wait()
        return []

    def timeout(self, value: int) -> list[int]:
        return [-value]


class AtSecond(AsyncFunction[int, int]):
    """Fails once for each record."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    async def async_invoke(self, value: int) -> list[int]:
        if value not in self._seen:
            self._seen.add(value)
            raise OSError("the first call fails")
        return [value]


def numbers(env: Any, count: int = COUNT) -> Any:
    source = NumberSequenceSource(1, count)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("keyed", [True, False])
def test_every_result_once(ordered: bool, keyed: bool) -> None:
    env = environment(2)
    rows = numbers(env)
    rows = rows.key_by(lambda n: n % 7) if keyed else rows.rebalance()
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    Doubled.open_calls = Doubled.most_open_calls = 0
    found = collect(env, wait(rows, Doubled(), MINUTE, 9, Types.LONG()).map(lambda n: n + 1))
    assert sorted(found) == [2 * n + 1 for n in range(1, COUNT + 1)]
    assert Doubled.open_calls == 0
    assert 1 < Doubled.most_open_calls <= 9
    assert loop_is_idle()


def test_a_failing_call_is_told_with_its_record() -> None:
    env = environment(1)
    with pytest.raises(OperatorFailure) as caught:
        collect(env, AsyncDataStream.ordered_wait(numbers(env, 1), Failing(), MINUTE))
    assert (caught.value.operator_name, caught.value.record) == ("async wait operator", "1")
    assert str(caught.value.cause) == "no answer for 1"
    assert loop_is_idle()


def test_timeouts_and_retries_hold() -> None:
    env = environment(1)
    slow = AsyncDataStream.unordered_wait(numbers(env, 5), Slow(), Duration.of_millis(20), 2)
    assert sorted(collect(env, slow, clock=SystemClock())) == [-5, -4, -3, -2, -1]
    env = environment(1)
    strategy = AsyncRetryStrategy.fixed_delay(1, 1, None, has_exception_predicate)
    again = AsyncDataStream.ordered_wait_with_retry(numbers(env, 50), AtSecond(), MINUTE, strategy)
    assert collect(env, again) == list(range(1, 51))
