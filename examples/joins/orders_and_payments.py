"""Orders with the payments that came within an hour, and orders that nobody paid.

python examples/joins/orders_and_payments.py

An outer interval join: event time says when no payment can come any more, and only then an order leaves as unpaid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yarrow.common import Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import ProcessJoinFunction, StreamExecutionEnvironment

#: (number, minute of the day, amount)
ORDERS = [(1, 0, 30), (2, 10, 12), (3, 20, 80), (4, 200, 9)]
#: (number of the order, minute of the day, amount)
PAYMENTS = [(2, 15, 12), (1, 25, 10), (1, 55, 20), (3, 90, 80), (4, 201, 9)]


class TimeOfRow(TimestampAssigner):
    """The event time is in the second field of both."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 60_000


class Paid(ProcessJoinFunction[Any, Any, str]):
    """Emits a line for each payment of an order, or one for an order without any."""

    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[str]:
        number, ordered, amount = left
        if right is None:
            yield f"order {number}: {amount} not paid within an hour"
        else:
            yield f"order {number}: {right[2]} of {amount} paid after {right[1] - ordered} min"


def orders_and_payments() -> None:
    """Prints what was paid for each order."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    row = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfRow())
    orders, payments = (
        env.from_collection(rows, row)
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda row: row[0], Types.LONG())
        for rows in (ORDERS, PAYMENTS)
    )
    joined = orders.interval_join(payments).between(Time.seconds(0), Time.hours(1)).left_outer()
    joined.process(Paid(), Types.STRING()).print()
    env.execute("orders and payments")


if __name__ == "__main__":
    orders_and_payments()
