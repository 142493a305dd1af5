"""Functions and values of user classes for tests of the state processor: found by name when they are read."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from yarrow.common import Duration, Types
from yarrow.datastream import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from yarrow.state_processor import KeyedStateBootstrapFunction, KeyedStateReaderFunction

COUNT: ValueStateDescriptor[int] = ValueStateDescriptor("count", Types.LONG())
NAMES: ListStateDescriptor[str] = ListStateDescriptor("names", Types.STRING())
BY_DAY: MapStateDescriptor[str, float] = MapStateDescriptor("by day", Types.STRING(), Types.DOUBLE())
SUM: ReducingStateDescriptor[int] = ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
EXPIRING: ValueStateDescriptor[int] = ValueStateDescriptor("expiring", Types.LONG())
EXPIRING.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_days(36_500)).build())


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: float | None
    tags: tuple[str, ...] = ()


class Pair(NamedTuple):
    left: str
    right: int


class Unsafe:
    """Has no safe form: it is pickled."""

    def __reduce__(self) -> Any:
        return (Unsafe, ())


class Bootstrap(KeyedStateBootstrapFunction[str, Any]):
    """Count, names and timers of each key, of rows (key, name)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.names = runtime_context.get_list_state(NAMES)
        self.sum = runtime_context.get_reducing_state(SUM)

    def process_element(self, value: Any, ctx: KeyedStateBootstrapFunction.Context) -> None:
        self.count.update((self.count.value() or 0) + 1)
        self.names.add(value[1])
        self.sum.add(len(value[1]))
        ctx.timer_service().register_event_time_timer(1000 * len(value[1]))
        if ctx.get_current_key() == "a":
            ctx.timer_service().register_processing_time_timer(7_258_118_400_000)


class BootstrapOfColumns(Bootstrap):
    """The same of rows with the columns `name` and `word`."""

    def process_element(self, value: Any, ctx: KeyedStateBootstrapFunction.Context) -> None:
        if value.word == "broken":
            raise LookupError(f"no rate for {value.name}")
        super().process_element((value.name, value.word), ctx)


class Overdue(KeyedStateBootstrapFunction[str, Any]):
    """Timers of rows (key, timestamp), some of which are deleted again; the count is the time of the machine."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value: Any, ctx: KeyedStateBootstrapFunction.Context) -> None:
        timers = ctx.timer_service()
        if value[1] < 0:
            timers.delete_processing_time_timer(-value[1])
        else:
            timers.register_processing_time_timer(value[1])
        self.count.update(timers.current_processing_time())


class Job(KeyedProcessFunction[str, Any, Any]):
    """Goes on with what Bootstrap has made."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.names = runtime_context.get_list_state(NAMES)
        self.sum = runtime_context.get_reducing_state(SUM)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.names.add(value[1])
        self.sum.add(len(value[1]))
        yield (value[0], count, list(self.names.get()), self.sum.get())

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield (ctx.get_current_key(), "timer", timestamp)


class Everything(KeyedStateReaderFunction[str, Any]):
    """One row a key, of several states and the timers."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.names = runtime_context.get_list_state(NAMES)

    def read_key(self, key: str, ctx: KeyedStateReaderFunction.Context) -> Iterable[Any]:
        yield {
            "key": key,
            "count": self.count.value(),
            "names": list(self.names.get()),
            "event": ctx.registered_event_time_timers(),
            "processing": len(ctx.registered_processing_time_timers()),
        }
