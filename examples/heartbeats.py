"""Hosts whose heartbeat stays out: told when the time of the next one is over, without a further record of the host.

python examples/heartbeats.py

Each heartbeat puts off the timer of its host. A timer that fires finds a silent host, and the next heartbeat says that
it is back. Event time comes from all hosts together, so a silent one is noticed while others speak.
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

#: A heartbeat comes each ten seconds; two may be missing.
PATIENCE_MS = 30_000
#: (host, second of the day)
HEARTBEATS = [
    ("red", 0),
    ("blue", 1),
    ("red", 10),
    ("blue", 11),
    ("red", 20),
    ("red", 30),
    ("red", 40),
    ("red", 50),
    ("blue", 55),
    ("red", 60),
    ("blue", 65),
]


class TimeOfHeartbeat(TimestampAssigner):
    """The event time of a heartbeat is in its second field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1000


class BehindEachHeartbeat(WatermarkGenerator):
    """Moves event time with each heartbeat."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp - 1)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class Watch(KeyedProcessFunction[str, Any, str]):
    """Emits a line when a host falls silent, and one when it is back."""

    _armed: ValueState[int]

    def open(self, runtime_context: RuntimeContext) -> None:
        # The time of the timer that is armed; 0 = the host is silent.
        self._armed = runtime_context.get_state(ValueStateDescriptor("armed", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        armed = self._armed.value()
        if armed:
            ctx.timer_service().delete_event_time_timer(armed)
        time = ctx.timestamp()
        assert time is not None
        self._armed.update(time + PATIENCE_MS)
        ctx.timer_service().register_event_time_timer(time + PATIENCE_MS)
        if armed == 0:
            yield f"{value[0]} is back at {value[1]} s"

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        self._armed.update(0)
        yield f"{ctx.get_current_key()} is silent since {(timestamp - PATIENCE_MS) // 1000} s"


def heartbeats() -> None:
    """Prints which hosts fall silent and come back. At the end of the input all of them are silent."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    strategy = WatermarkStrategy.for_generator(BehindEachHeartbeat).with_timestamp_assigner(TimeOfHeartbeat())
    beats = env.from_collection(HEARTBEATS, Types.TUPLE([Types.STRING(), Types.LONG()]))
    timed = beats.assign_timestamps_and_watermarks(strategy)
    timed.key_by(lambda beat: beat[0], Types.STRING()).process(Watch(), Types.STRING()).print()
    env.execute("heartbeats")


if __name__ == "__main__":
    heartbeats()
