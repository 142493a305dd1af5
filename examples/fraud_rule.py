"""A fraud rule: two or more small payments of a card, and a large one within a minute of the first.

python examples/fraud_rule.py

A pattern with a loop and a time limit. The skip strategy reports each fraud once, with all its small payments. Times
are those of the payments, which come out of order by up to ten seconds.
"""

from __future__ import annotations

from typing import Any

from yarrow.cep import CEP, AfterMatchSkipStrategy, Pattern
from yarrow.common import Duration, Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment

#: (card, seconds of the day, amount)
PAYMENTS = [
    ("1111", 10, 1),
    ("2222", 12, 3),
    ("1111", 24, 2),
    ("1111", 20, 40),
    ("1111", 30, 950),
    ("2222", 40, 2),
    ("2222", 90, 800),
    ("1111", 200, 700),
]


class TimeOfPayment(TimestampAssigner):
    """The event time of a payment is in its second field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1000


def rule() -> Pattern:
    """Small payments, others in between, and a large one, all within a minute."""
    small = Pattern.begin("small", AfterMatchSkipStrategy.skip_past_last_event())
    small = small.where(lambda payment: payment[2] < 5).times_or_more(2).greedy()
    return small.followed_by("large").where(lambda payment: payment[2] > 500).within(Time.minutes(1))


def alarm(match: dict[str, list[Any]]) -> str:
    """A line on a match."""
    (large,) = match["large"]
    return f"card {large[0]}: {large[2]} at {large[1]} s, behind {len(match['small'])} small payments"


def fraud() -> None:
    """Prints an alarm for each card that the rule fits."""
    env = StreamExecutionEnvironment.get_execution_environment()
    payments = env.from_collection(PAYMENTS, Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()]))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(10))
    in_time = payments.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(TimeOfPayment()))
    by_card = in_time.key_by(lambda payment: payment[0], Types.STRING())
    CEP.pattern(by_card, rule()).select(alarm, output_type=Types.STRING()).print()
    env.execute("fraud rule")


if __name__ == "__main__":
    fraud()
