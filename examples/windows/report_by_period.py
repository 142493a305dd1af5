"""Orders by day, week and month for a report: one stream, three kinds of windows, one of them an assigner of its own.

python examples/windows/report_by_period.py

Days and weeks have one length, months have not: `Months` gives an order the window of its month.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from yarrow.common import Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from yarrow.datastream.window import (
    EventTimeTrigger,
    TimeWindow,
    TimeWindowSerializer,
    Trigger,
    TumblingEventTimeWindows,
    WindowAssigner,
)

#: (time of the order, shop, amount)
ORDERS = [
    ("2026-01-29T10:00", "Rome", 20),
    ("2026-01-29T17:30", "Rome", 5),
    ("2026-01-31T09:00", "Oslo", 40),
    ("2026-02-01T12:00", "Rome", 10),
    ("2026-02-02T08:00", "Rome", 15),
    ("2026-02-28T23:00", "Rome", 30),
]


def milliseconds(time: datetime) -> int:
    """A time in UTC as milliseconds since 1970."""
    return round(time.replace(tzinfo=UTC).timestamp() * 1000)


class TimeOfOrder(TimestampAssigner):
    """The event time of an order is in its first field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return milliseconds(datetime.fromisoformat(value[0]))


class Months(WindowAssigner[Any, TimeWindow]):
    """Windows of calendar months in UTC."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        first = datetime.fromtimestamp(timestamp / 1000, UTC).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        years, month = divmod(first.month, 12)
        behind = first.replace(year=first.year + years, month=month + 1)
        return [TimeWindow(milliseconds(first), milliseconds(behind))]

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[Any, TimeWindow]:
        return EventTimeTrigger()

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True


class Report(ProcessWindowFunction[Any, str, str, TimeWindow]):
    """Emits a line with the number and the sum of the orders of a shop."""

    def __init__(self, period: str) -> None:
        self._period = period

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[str]:
        amounts = [amount for _, _, amount in elements]
        first = datetime.fromtimestamp(context.window().start / 1000, UTC)
        yield f"{self._period} from {first:%Y-%m-%d}, {key}: {len(amounts)} order(s), {sum(amounts)}"


def report() -> None:
    """Prints a line for each shop and period."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfOrder())
    orders = env.from_collection(
        ORDERS, Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])
    ).assign_timestamps_and_watermarks(strategy)
    by_shop = orders.key_by(lambda order: order[1], Types.STRING())
    # Weeks are counted from 1970-01-01, a Thursday. Those of a report begin on Mondays.
    periods: dict[str, WindowAssigner[Any, TimeWindow]] = {
        "day": TumblingEventTimeWindows.of(Time.days(1)),
        "week": TumblingEventTimeWindows.of(Time.days(7), Time.days(4)),
        "month": Months(),
    }
    for period, assigner in periods.items():
        by_shop.window(assigner).process(Report(period), Types.STRING()).print()
    env.execute("report by period")


if __name__ == "__main__":
    report()
