"""Sessions of clicks: a user's clicks without a pause of 30 minutes between two of them, told when the pause is over.

python examples/sessions.py

Event time: what counts is when a click was made, not when it is read. The clicks below come out of order by up to ten
minutes; each sets a timer of its user, and one that no other click has put off ends a session.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from yarrow.common import Duration, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import (
    KeyedProcessFunction,
    ListStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
)

PAUSE_MS = 30 * 60 * 1000

#: (user, time of the click, page)
CLICKS = [
    ("ann", "2026-03-01T09:00:00", "/"),
    ("bob", "2026-03-01T09:05:00", "/news"),
    ("ann", "2026-03-01T09:20:00", "/cart"),
    ("ann", "2026-03-01T09:12:00", "/shoes"),
    ("bob", "2026-03-01T09:50:00", "/"),
    ("ann", "2026-03-01T10:40:00", "/orders"),
    ("bob", "2026-03-01T10:35:00", "/news"),
]


def milliseconds(time: str) -> int:
    """A time in UTC as milliseconds since 1970."""
    return round(datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp() * 1000)


class TimeOfClick(TimestampAssigner):
    """The event time of a click is in its second field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return milliseconds(value[1])


class Sessions(KeyedProcessFunction[str, Any, str]):
    """Emits a line for each session of a user, whatever the order in which the clicks came."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.clicks = runtime_context.get_list_state(ListStateDescriptor("clicks", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        time = ctx.timestamp()
        assert time is not None
        self.clicks.add(time)
        ctx.timer_service().register_event_time_timer(time + PAUSE_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        # A pause has passed since the click that set the timer. Sessions that ended before are gone: timers fire in
        # the order of their times.
        last = timestamp - PAUSE_MS
        clicks = sorted(self.clicks.get())
        session = [time for time in clicks if time <= last]
        later = [time for time in clicks if time > last]
        if session and not (later and later[0] < timestamp):
            self.clicks.update(later)
            began = datetime.fromtimestamp(session[0] / 1000, UTC)
            minutes = (last - session[0]) // 60_000
            yield f"{ctx.get_current_key()}: {len(session)} click(s) from {began:%H:%M}, {minutes} min"


def sessions() -> None:
    """Prints the sessions of all users."""
    env = StreamExecutionEnvironment.get_execution_environment()
    clicks = env.from_collection(CLICKS, Types.TUPLE([Types.STRING(), Types.STRING(), Types.STRING()]))
    in_time = clicks.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(10)).with_timestamp_assigner(
            TimeOfClick()
        )
    )
    in_time.key_by(lambda click: click[0], Types.STRING()).process(Sessions(), Types.STRING()).print()
    env.execute("sessions")


if __name__ == "__main__":
    sessions()
