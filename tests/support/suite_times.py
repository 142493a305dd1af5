"""Sums the times of the last run's tests by parts of the product: `scripts/test --times` prints the sums.

scripts/test leaves a record of each run of pytest in build/times, in JUnit's form. Several processes run tests side by
side. So a part of the product takes a share of a run's time, as large as that of its tests in the seconds of all tests.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.support.cpu_seconds import CPU_SECONDS

#: Where scripts/test leaves its records.
RECORDS = Path("build/times")
#: The record of `scripts/test --quick`, which leaves out tests that take more than this CPU time.
QUICK, QUICK_SECONDS = "quick", 1.0
#: The record of `scripts/test PATH...`, which is no part of a run of the suite.
PATHS = "paths"
#: Files and tests that the report names, at the most.
NAMED = 20


class Part(NamedTuple):
    """A part of the product whose tests have a budget together."""

    name: str
    #: Minutes that its tests may take in a run of the whole suite.
    budget: float
    files: re.Pattern[str]


#: A file belongs to the first part whose pattern it has.
PARTS = (
    Part("batch on Spark", 10, re.compile(r"tests/(spark|yarn/batch)/")),
    Part("Kafka", 6, re.compile(r"tests/kafka/")),
    Part(
        "windows, joins, order, asynchronous calls, patterns, loops",
        7,
        re.compile(
            r"""tests/(cluster/embedded/test_examples\.py | (unit|harness|cluster|fault|format)/(.*/)?(
                (cep|asynchronous|columnar_(join|pattern|window)|event_time(_order)?|feedback|join|loop)/
                | (pre_aggregation|window)/
                | test_(\w+_)?(windows?|windowed|joins?|joined|async|as_of|patterns?|evict\w+|pre_aggregat\w+)(_|\.)
                | test_(loops?|sessions|iterative|overtaken|late_(records|ledger)|split_streams)(_|\.)
                | test_(\w+_)?(event_time|aligned|alignment|drift|operator_(fault_plans|guarantees)|bounded_fault)(_|\.)
            ))""",
            re.VERBOSE,
        ),
    ),
    Part("all other tests", 24, re.compile("")),
)


class Measured(NamedTuple):
    """A test that has run."""

    file: str
    name: str
    #: From its fixtures to their end.
    seconds: float
    #: Of its process, and of child processes that have ended.
    cpu_seconds: float


class Run(NamedTuple):
    """A run of pytest."""

    name: str
    seconds: float
    tests: Sequence[Measured]


class Taken(NamedTuple):
    """The tests of one part in all runs."""

    tests: int
    #: Share of the time of the runs.
    seconds: float
    cpu_seconds: float


def part_of(file: str) -> Part:
    """The part that a file of tests belongs to."""
    return next(part for part in PARTS if part.files.match(file))


def read(record: Path) -> Run:
    """Return the run of a record. Raises ValueError for another file."""
    try:
        suite = ElementTree.parse(record).getroot().find("testsuite")
    except ElementTree.ParseError as error:
        raise ValueError(f"{record} is no record of scripts/test: {error}") from None
    if suite is None:
        raise ValueError(f"{record} is no record of scripts/test: it has no element testsuite")
    return Run(record.stem, float(suite.get("time", 0)), [_measured(case) for case in suite.iter("testcase")])


def _measured(case: ElementTree.Element) -> Measured:
    cpu = next((each.get("value") for each in case.iter("property") if each.get("name") == CPU_SECONDS), None)
    return Measured(
        _file(case.get("classname", "")), case.get("name", ""), float(case.get("time", 0)), float(cpu or 0)
    )


def _file(dotted: str) -> str:
    """The file of a test from the names of its modules and classes."""
    names = dotted.split(".")
    end = next((place for place, name in enumerate(names, 1) if name.startswith("test_")), len(names))
    return "/".join(names[:end]) + ".py"


def by_part(runs: Iterable[Run]) -> dict[str, Taken]:
    """Return the times of the tests of each part; parts without tests are there too."""
    taken = {part.name: Taken(0, 0.0, 0.0) for part in PARTS}
    for run in runs:
        together = sum(test.seconds for test in run.tests) or 1.0
        for test in run.tests:
            name = part_of(test.file).name
            tests, seconds, cpu = taken[name]
            taken[name] = Taken(
                tests + 1, seconds + run.seconds * test.seconds / together, cpu + test.cpu_seconds
            )
    return taken


def report(runs: Sequence[Run]) -> Iterator[str]:
    """The lines of the report."""
    for run in runs:
        cpu = sum(test.cpu_seconds for test in run.tests)
        yield f"{clock(run.seconds):>7}  {run.name}: {len(run.tests)} tests, {cpu:.0f} s of CPU time"
    yield ""
    taken = by_part(runs)
    for part in PARTS:
        tests, seconds, cpu = taken[part.name]
        yield f"{clock(seconds):>7} of {part.budget:2.0f}:00  {part.name}: {tests} tests, {cpu:.0f} s of CPU time"
    yield ""
    for run in runs:
        if run.name == QUICK:
            yield from _too_long_for_quick(run)
    yield "Files by the seconds of their tests:"
    files: dict[str, float] = {}
    for test in (test for run in runs for test in run.tests):
        files[test.file] = files.get(test.file, 0.0) + test.seconds
    for file, seconds in sorted(files.items(), key=lambda entry: -entry[1])[:NAMED]:
        yield f"{seconds:7.1f}  {file}"


def _too_long_for_quick(run: Run) -> Iterator[str]:
    found = sorted(
        (test for test in run.tests if test.cpu_seconds > QUICK_SECONDS), key=lambda test: -test.cpu_seconds
    )
    yield f"Tests of the quick part that took more than {QUICK_SECONDS:.0f} s of CPU time: {len(found)}"
    for test in found[:NAMED]:
        yield f"{test.cpu_seconds:7.1f}  {test.file}::{test.name}"
    yield ""


def clock(seconds: float) -> str:
    """Minutes and seconds, as 4:05."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def main() -> int:
    """Print the report of the records that scripts/test has left, the oldest first."""
    records = sorted(RECORDS.glob("*.xml"), key=lambda record: record.stat().st_mtime)
    records = [record for record in records if record.stem != PATHS] or records
    if not records:
        print(f"There is no record in {RECORDS}: run scripts/test before.", file=sys.stderr)
        return 1
    try:
        print("\n".join(report([read(record) for record in records])))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
