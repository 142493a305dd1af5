"""Messages that are sent again by a client which got no answer: each goes on once.

python examples/deduplication.py

Keyed state has the time at which each id came first, and a timer forgets it after an hour of event time. So state does
not grow with the stream. A message that comes again behind the hour counts as a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yarrow.common import TimestampAssigner, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from yarrow.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from yarrow.datastream.state import ValueState, ValueStateDescriptor

HOUR_MS = 60 * 60 * 1000
#: (id, minute of the day, text)
MESSAGES = [
    ("a1", 0, "hello"),
    ("b7", 1, "order 12 pens"),
    ("a1", 2, "hello"),
    ("b7", 3, "order 12 pens"),
    ("c3", 4, "bye"),
    ("a1", 59, "hello"),
    ("a1", 61, "hello"),
]


class TimeOfMessage(TimestampAssigner):
    """The event time of a message is in its second field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 60_000


class BehindEachMessage(WatermarkGenerator):
    """Moves event time with each message."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp - 1)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class FirstOfId(KeyedProcessFunction[str, Any, str]):
    """Lets the first message of an id pass."""

    _first: ValueState[int]

    def open(self, runtime_context: RuntimeContext) -> None:
        self._first = runtime_context.get_state(ValueStateDescriptor("first", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        time, first = ctx.timestamp(), self._first.value()
        assert time is not None
        # The timer fires when event time has passed the hour: the next message may come before.
        if first is None or time >= first + HOUR_MS:
            self._first.update(time)
            ctx.timer_service().register_event_time_timer(time + HOUR_MS)
            yield f"minute {value[1]}: {value[2]}"

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        if self._first.value() == timestamp - HOUR_MS:
            self._first.clear()


def deduplication() -> None:
    """Prints each message once."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    strategy = WatermarkStrategy.for_generator(BehindEachMessage).with_timestamp_assigner(TimeOfMessage())
    messages = env.from_collection(MESSAGES, Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING()]))
    timed = messages.assign_timestamps_and_watermarks(strategy)
    timed.key_by(lambda message: message[0], Types.STRING()).process(FirstOfId(), Types.STRING()).print()
    env.execute("deduplication")


if __name__ == "__main__":
    deduplication()
