"""Asynchronous functions of bounded jobs: capacity holds, everything is drained, and failures name the record."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.batch_runner import collect
from tests.support.gated_calls import loop_is_idle
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Duration, Row, Types, WatermarkStrategy
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream import AsyncDataStream
from yarrow.datastream.async_retry_predicates import has_exception_predicate
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.functions import AsyncBatchFunction, AsyncFunction, AsyncRetryStrategy
from yarrow.runtime.common.clock import SystemClock

COUNT = 3000
MINUTE = Duration.of_minutes(1)
#: What the present test has logged.
LOGGED: pytest.LogCaptureFixture


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


class Blocking(AsyncFunction[int, int]):
    """Blocks the event loop until that is told."""

    async def async_invoke(self, value: int) -> list[int]:
        for _ in range(300):
            if "has blocked" in LOGGED.text:
                break
            threading.Event().wait(0.1)
        return [value]


class InThreads(AsyncFunction[int, int]):
    def async_invoke(self, value: int) -> list[int]:
        return [2 * value]


class Batches(AsyncBatchFunction):
    """Doubles rows, or a column; notes how many rows it gets at once."""

    max_rows = 50
    most_rows = 0

    async def async_invoke(self, values: Any) -> Any:
        cls = type(self)
        cls.most_rows = max(cls.most_rows, len(values))
        await asyncio.sleep(0)
        if isinstance(values, pa.RecordBatch):
            return pa.record_batch({"n": pc.multiply(values.column("n"), 2)})
        return [2 * value for value in values]


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


def test_every_result_once_in_the_order_of_each_key() -> None:
    env = environment(2)
    keyed = numbers(env).key_by(lambda n: n % 7)
    answers = AsyncDataStream.ordered_by_key(keyed, Doubled(), MINUTE, 9, Types.LONG())
    found = collect(env, answers.map(lambda n: n))
    for key in range(7):
        assert [n for n in found if n // 2 % 7 == key] == [2 * n for n in range(1, COUNT + 1) if n % 7 == key]


def test_threads_call_functions() -> None:
    env = environment(2)
    rows = numbers(env, 300).rebalance()
    found = collect(env, AsyncDataStream.unordered_wait(rows, InThreads(), MINUTE, 9, threads=3))
    assert sorted(found) == [2 * n for n in range(1, 301)]
    assert loop_is_idle()


@pytest.mark.parametrize("ordered", [True, False])
def test_batches_of_rows(ordered: bool) -> None:
    env = environment(1)
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    Batches.most_rows = 0
    found = collect(env, wait(numbers(env), Batches(), MINUTE, 120, Types.LONG()))
    assert (found if ordered else sorted(found)) == [2 * n for n in range(1, COUNT + 1)]
    assert Batches.most_rows == 50


def test_batches_of_columns() -> None:
    env = environment(1)
    schema = pa.schema([("n", pa.int64())])
    rows = numbers(env).map(lambda n: Row(n=n), Types.ROW_NAMED(["n"], [Types.LONG()]))
    Batches.most_rows = 0
    made = AsyncDataStream.ordered_wait(rows.to_arrow(schema), Batches(), MINUTE, 120, schema)
    assert [row.n for row in collect(env, made.to_rows())] == [2 * n for n in range(1, COUNT + 1)]
    assert Batches.most_rows == 50


def test_a_function_that_blocks_the_loop_is_told(caplog: pytest.LogCaptureFixture) -> None:
    global LOGGED
    LOGGED = caplog
    env = environment(1)
    with caplog.at_level(logging.WARNING):
        rows = AsyncDataStream.ordered_wait(numbers(env, 1), Blocking(), MINUTE)
        assert collect(env, rows, clock=SystemClock()) == [1]
    assert "has blocked the event loop" in caplog.text


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


class RefusesTens(AsyncBatchFunction):
    max_rows = 64

    async def async_invoke(self, values: Any) -> Any:
        if any(number % 10 == 0 for number in values.column("n").to_pylist()):
            raise ValueError("one of them")
        return values


def test_failing_rows_of_record_batches_leave_as_letters() -> None:
    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(1, 200), WatermarkStrategy.no_watermarks(), "numbers")
    schema = pa.schema([("n", pa.int64())])
    columns = numbers.map(lambda n: Row(n=n), Types.ROW_NAMED(["n"], [Types.LONG()])).to_arrow(schema)
    made = AsyncDataStream.unordered_wait(columns, RefusesTens(), MINUTE, 100, schema).uid("calls")
    made = made.on_error("dead_letter", max_share=0.5)
    letters = made.dead_letters().map(lambda letter: f"{letter.operator} {letter.error}", Types.STRING())
    found = collect(env, made.to_rows().map(lambda row: str(row.n), Types.STRING()).union(letters))
    good = [str(n) for n in range(1, 201) if n % 10]
    assert sorted(found) == sorted([*good, *["calls ValueError: one of them"] * 20])
