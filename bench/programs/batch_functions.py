"""The functions of the bounded programs: the engine's jobs and their peers in plain PySpark call the same ones.

Nothing here knows who calls it. Numbers become pairs, events or records of one key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from yarrow.common import Types
from yarrow.datastream import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.state import ValueState, ValueStateDescriptor

Pair = tuple[int, int]
#: Key, event time, value.
Event = tuple[int, int, int]

#: Mixed into numbers, so that events do not come in the order of their times.
_MIXED = 0x2A5A5
#: Milliseconds between the first event of a key that is processed and the key's timer.
_DELAY = 60_000
#: The size of a record of the program with one key, beside its key.
_PAYLOAD = b"x" * 92

#: The columns of the Parquet files, and those behind `weighted`.
COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.float64())])
#: The built-in aggregates: column, kind.
AGGREGATES: tuple[tuple[str | None, str], ...] = (("v", "sum"), ("w", "max"), (None, "count"))


def pair_of(keys: int) -> Callable[[int], Pair]:
    """The map: a number becomes a key and the value 1."""
    return lambda number: (number % keys, 1)


def key_of(record: tuple[int, ...]) -> int:
    """The key of pairs and events."""
    return record[0]


def add(one: Pair, other: Pair) -> Pair:
    """The reduce: the sum of both values."""
    return (one[0], one[1] + other[1])


def event_of(keys: int) -> Callable[[int], Event]:
    """The map: a number becomes an event."""
    return lambda number: (number % keys, number ^ _MIXED, 1)


def time_of(event: Event) -> int:
    """The event time."""
    return event[1]


class SumAtTimer(KeyedProcessFunction[int, Event, Pair]):
    """Adds up the values of a key; a timer, which the first event sets, emits the sum."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> None:
        total = self.total.value()
        if total is None:
            ctx.timer_service().register_event_time_timer(value[1] + _DELAY)
            total = 0
        self.total.update(total + value[2])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Pair]:
        total = self.total.value()
        assert total is not None
        yield ctx.get_current_key(), total


def record_of_one_key(number: int) -> tuple[int, bytes]:
    """The map of the program with one key: a record of 100 bytes."""
    return 0, number.to_bytes(8, "little") + _PAYLOAD


class CountAtTimer(KeyedProcessFunction[int, tuple[int, bytes], Pair]):
    """Counts the records of a key and emits their number at the end of the key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: tuple[int, bytes], ctx: KeyedProcessFunction.Context) -> None:
        count = self.count.value()
        if count is None:
            ctx.timer_service().register_event_time_timer(0)
            count = 0
        self.count.update(count + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Pair]:
        count = self.count.value()
        assert count is not None
        yield ctx.get_current_key(), count


def weighted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The user's function on columns: the weight becomes that of the value."""
    columns = [batch["k"], batch["v"], pc.multiply(batch["w"], pc.cast(batch["v"], pa.float64()))]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)


def weighted_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same for Spark's mapInArrow."""
    return map(weighted, batches)
