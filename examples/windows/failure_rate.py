"""The failure rate of the last five minutes for each service, each minute, with an alarm when it passes a limit.

python examples/windows/failure_rate.py

A sliding window: each request counts in five windows. An alarm is set once, and again only after the rate has been
below the limit; keyed state remembers which services have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from yarrow.common import Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.datastream.window import SlidingEventTimeWindows, TimeWindow

#: Share of failed requests from which on there is an alarm.
LIMIT = 0.5
#: (service, minute of the day, whether the request failed)
REQUESTS = [
    ("pay", 0, False),
    ("ship", 0, False),
    ("pay", 1, True),
    ("ship", 1, True),
    ("pay", 2, False),
    ("pay", 3, True),
    ("pay", 4, True),
    ("ship", 5, False),
    ("pay", 6, False),
    ("pay", 8, False),
    ("pay", 9, False),
]
RATE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])


class TimeOfRequest(TimestampAssigner):
    """The event time of a request is in its second field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 60_000


class Failures(AggregateFunction[Any, Any, Any]):
    """The share of requests that failed."""

    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        failed, requests = accumulator
        return failed + value[2], requests + 1

    def get_result(self, accumulator: Any) -> Any:
        failed, requests = accumulator
        return failed / requests

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithEnd(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    """Adds service and end of the window, in minutes."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[Any]:
        for rate in elements:
            yield key, context.window().end // 60_000, rate


class Alarm(KeyedProcessFunction[str, Any, str]):
    """Emits a line when the rate of a service comes to the limit, and one when it falls below it."""

    _alarmed: ValueState[bool]

    def open(self, runtime_context: RuntimeContext) -> None:
        self._alarmed = runtime_context.get_state(ValueStateDescriptor("alarmed", Types.BOOLEAN()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        service, minute, rate = value
        alarmed = rate >= LIMIT
        if alarmed != bool(self._alarmed.value()):
            self._alarmed.update(alarmed)
            yield f"minute {minute}: {service} {'ALARM' if alarmed else 'well'}, {rate:.0%} failed"


def failure_rate() -> None:
    """Prints the changes of each service."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfRequest())
    requests = env.from_collection(
        REQUESTS, Types.TUPLE([Types.STRING(), Types.LONG(), Types.BOOLEAN()])
    ).assign_timestamps_and_watermarks(strategy)
    by_service = requests.key_by(lambda request: request[0], Types.STRING())
    windows = by_service.window(SlidingEventTimeWindows.of(Time.minutes(5), Time.minutes(1)))
    failures = Types.TUPLE([Types.LONG(), Types.LONG()])
    rates = windows.aggregate(Failures(), WithEnd(), failures, RATE)
    rates.key_by(lambda rate: rate[0], Types.STRING()).process(Alarm(), Types.STRING()).print()
    env.execute("failure rate")


if __name__ == "__main__":
    failure_rate()
