"""Trades with the quote that held when they were made, and how far their price was from it.

python examples/joins/quotes_of_trades.py

An as-of join: of all quotes of a share, the last one up to the time of the trade counts, whatever comes first. A quote
that is older than ten seconds counts no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yarrow.common import Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import ProcessJoinFunction, StreamExecutionEnvironment

#: (share, second of the day, price in cents)
QUOTES = [("ACME", 1, 1000), ("ACME", 4, 1010), ("EMCA", 2, 500), ("ACME", 9, 990)]
TRADES = [("ACME", 3, 1002), ("ACME", 4, 1010), ("EMCA", 1, 499), ("EMCA", 8, 505), ("EMCA", 40, 520)]


class TimeOfRow(TimestampAssigner):
    """The event time is in the second field of both."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1000


class Distance(ProcessJoinFunction[Any, Any, str]):
    """Emits a line for each trade."""

    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[str]:
        share, second, price = left
        beside = "no quote" if right is None else f"{price - right[2]:+d} from the quote of {right[1]} s"
        yield f"{share} at {second} s: {price}, {beside}"


def quotes_of_trades() -> None:
    """Prints each trade with its quote."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    row = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfRow())
    trades, quotes = (
        env.from_collection(sorted(rows, key=lambda row: row[1]), row)
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda row: row[0], Types.STRING())
        for rows in (TRADES, QUOTES)
    )
    joined = trades.as_of_join(quotes).backward(Time.seconds(10)).left_outer()
    joined.process(Distance(), Types.STRING()).print()
    env.execute("quotes of trades")


if __name__ == "__main__":
    quotes_of_trades()
