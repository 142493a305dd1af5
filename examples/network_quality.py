"""Network quality: a cell whose loss of packets rises three times in a row, and does not recover within five minutes.

python examples/network_quality.py

Strict steps, since each measurement counts, and a condition that compares with the measurement before. The end is a
measurement that must not come, so the order leaves when the time has passed, without a further one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from yarrow.cep import CEP, AfterMatchSkipStrategy, IterativeCondition, Pattern
from yarrow.common import Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment

#: Percent of lost packets from which a cell is bad.
BAD = 2.0


class Measurement(NamedTuple):
    """The loss of a cell in percent, at a minute of the day."""

    cell: str
    minute: int
    loss: float


MEASUREMENTS = [
    Measurement("north", 0, 0.1),
    Measurement("south", 0, 2.5),
    Measurement("north", 1, 2.1),
    Measurement("south", 1, 2.2),
    Measurement("north", 2, 3.0),
    Measurement("north", 3, 4.5),
    Measurement("south", 3, 2.6),
    Measurement("south", 4, 3.1),
    Measurement("south", 5, 0.2),
    Measurement("north", 7, 5.0),
]


class TimeOfMeasurement(TimestampAssigner):
    """The event time of a measurement is in its minute."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value.minute) * 60_000


class Worse(IterativeCondition):
    """True if a cell loses more than at the last measurement that the match has taken."""

    def filter(self, value: Any, ctx: IterativeCondition.Context) -> bool:
        before = ctx.get_events_for_pattern("worse") or ctx.get_events_for_pattern("bad")
        return bool(value.loss > before[-1].loss)


def failing() -> Pattern:
    """A bad measurement, two in a row that are worse still, and none that is good again in five minutes."""
    bad = Pattern.begin("bad", AfterMatchSkipStrategy.skip_past_last_event())
    bad = bad.where(lambda measurement: measurement.loss >= BAD)
    worse = bad.next("worse").where(Worse()).times(2).consecutive()
    good = worse.not_followed_by("good").where(lambda measurement: measurement.loss < BAD)
    return good.within(Time.minutes(5))


def order(match: dict[str, list[Any]]) -> str:
    """The order for those who repair a cell."""
    losses = [measurement.loss for measurement in match["bad"] + match["worse"]]
    return f"cell {match['bad'][0].cell}: loss {' -> '.join(map(str, losses))} %, and no recovery"


def quality() -> None:
    """Prints an order for each cell that fails."""
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfMeasurement())
    measurements = env.from_collection(MEASUREMENTS).assign_timestamps_and_watermarks(strategy)
    by_cell = measurements.key_by(lambda measurement: measurement.cell)
    CEP.pattern(by_cell, failing()).select(order, output_type=Types.STRING()).print()
    env.execute("network quality")


if __name__ == "__main__":
    quality()
