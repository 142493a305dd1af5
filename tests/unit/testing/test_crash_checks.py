"""Crashes behind each step: operators of all kinds hold, lost state is found, and what went wrong is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.support.gated_calls import Gated, loop_is_idle, new_gates
from yarrow.common import Duration, Time, Types
from yarrow.datastream import (
    AsyncDataStream,
    KeyedProcessFunction,
    MapFunction,
    StateTtlConfig,
    ValueStateDescriptor,
)
from yarrow.datastream.functions import AsyncFunction
from yarrow.datastream.window import TumblingEventTimeWindows
from yarrow.testing import CrashCheckError, OperatorHarness, check_crashes


class LastOfKey(KeyedProcessFunction[Any, Any, Any]):
    """Emits the last value of each key ten seconds of event time behind it."""

    def open(self, runtime_context: Any) -> None:
        self._last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self._last.update(value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), self._last.value()


class Doubled(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(0.001 * (3 - value[1] % 3))
        return [(value[0], 2 * value[1])]


STEPS = [
    lambda harness: harness.push(("a", 1), ("b", 2), timestamps=[1, 2]),
    lambda harness: harness.watermark(5),
    lambda harness: harness.push(("a", 3), ("c", 4), timestamps=[7, 14]),
    lambda harness: harness.watermark(12),
    lambda harness: harness.push(("b", 5), timestamps=[22]),
]


def keyed(rows: Any) -> Any:
    return rows.key_by(lambda row: row[0], Types.STRING())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_timers_and_state(backend: str) -> None:
    check_crashes(
        lambda rows: keyed(rows).process(LastOfKey()), STEPS, configuration={"state.backend.type": backend}
    )


def test_windows() -> None:
    windows = TumblingEventTimeWindows.of(Duration.of_millis(10))
    check_crashes(
        lambda rows: (
            keyed(rows).window(windows).reduce(lambda first, second: (first[0], first[1] + second[1]))
        ),
        STEPS,
    )


def test_asynchronous_functions_in_the_order_of_each_key() -> None:
    check_crashes(
        lambda rows: AsyncDataStream.ordered_by_key(keyed(rows), Doubled(), Duration.of_minutes(1)), STEPS
    )
    assert loop_is_idle()


def test_columns() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])

    def batch(*rows: tuple[str, int]) -> pa.RecordBatch:
        return pa.record_batch({"k": [k for k, _ in rows], "v": [v for _, v in rows]}, schema=schema)

    steps = [
        lambda harness: harness.push_batch(batch(("a", 1), ("b", 2))),
        lambda harness: harness.push_batch(batch(("a", 3))),
    ]
    check_crashes(lambda rows: rows.key_by("k").sum("v"), steps, types=[schema])


class Living(KeyedProcessFunction[Any, Any, Any]):
    """Counts the rows of a key; the count is forgotten a minute behind the last of them."""

    def open(self, runtime_context: Any) -> None:
        described: ValueStateDescriptor[int] = ValueStateDescriptor("count", Types.LONG())
        described.enable_time_to_live(StateTtlConfig.new_builder(Time.minutes(1)).build())
        self._count = runtime_context.get_state(described)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value, count


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_that_expires_by_a_step_is_there_when_that_is_taken_again(backend: str) -> None:
    def expire(harness: OperatorHarness) -> None:
        harness.push("a")
        harness.advance(61)

    steps = [lambda harness: harness.push("a"), expire, lambda harness: harness.push("a")]
    check_crashes(
        lambda rows: rows.key_by(lambda row: row, Types.STRING()).process(Living()),
        steps,
        configuration={"state.backend.type": backend},
    )


class Numbered(MapFunction[Any, Any]):
    """Counts in an attribute."""

    def open(self, runtime_context: Any) -> None:
        self._number = 0

    def map(self, value: Any) -> Any:
        self._number += 1
        return self._number


def test_lost_state_is_told_with_the_crash_and_the_rows() -> None:
    steps = [lambda harness: harness.push("a", timestamps=[5]), lambda harness: harness.push("b")]
    with pytest.raises(CrashCheckError) as caught:
        check_crashes(lambda rows: rows.map(Numbered()), steps, parallelisms=[1])
    assert str(caught.value) == (
        "a crash behind step 1 of 2, restored at 1: output 0 lacks 2 at None and has 1 at None too often"
    )


def test_a_snapshot_that_cannot_be_cut_is_refused() -> None:
    gates = new_gates()
    with OperatorHarness(
        lambda rows: AsyncDataStream.ordered_wait(rows, Gated(), Duration.of_minutes(1), 1)
    ) as harness:
        harness.push("a", "b")
        gates.until(lambda: gates.begun == ["a"])
        with pytest.raises(RuntimeError, match="1 tasks could not be cut, because records wait before them"):
            harness.snapshot()
