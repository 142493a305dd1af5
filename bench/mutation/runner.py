"""`bench/mutants`: applies each mutant to a copy of the checkout and runs the test that must fail by it.

One process a core, each with a copy of its own: the checkout itself is never changed. Ends with 1 when a mutant
survives. Must not know what a mutant means.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from queue import SimpleQueue

from bench.mutation import catalogue
from bench.mutation.mutant import PRODUCT, Mutant, Place, Sources, killers_of

ROOT = Path(__file__).parents[2]
#: Seconds after which a test that hangs by its mutant has noticed it.
_TIME_LIMIT = 120.0
#: What pytest ends with when tests failed.
_TESTS_FAILED = 1
Ended = subprocess.CompletedProcess[str]
_BEGIN, _END = "<!-- mutants: written by bench/mutants -->", "<!-- end of mutants -->"


class Outcome(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    #: The test did not run at all, so that it says nothing.
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one mutant, with the end of the test's output where that says why."""

    mutant: Mutant
    outcome: Outcome
    output: str = ""


def mutants_by_area() -> dict[str, tuple[Mutant, ...]]:
    """All mutants, by the module of the catalogue that lists them."""
    names = sorted(module.name for module in pkgutil.iter_modules(catalogue.__path__))
    return {name: importlib.import_module(f"{catalogue.__name__}.{name}").MUTANTS for name in names}


class Copy:
    """A copy of the checkout in which one mutant at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in (*PRODUCT, "tests", "conf", "bench"):
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=_NOT_COPIED)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def run(self, mutant: Mutant, place: Place, source: str, test: str) -> Result:
        """Runs the test with the mutant in the copy, which is as before afterwards."""
        path = self._folder / place.path.relative_to(ROOT)
        path.write_text(place.mutated(source, mutant))
        try:
            ended = self._ended(test)
        finally:
            path.write_text(source)
        return judged(mutant, ended, lambda: self._ended(test))

    def _ended(self, test: str) -> Ended | None:
        """How the test ended; None = it did not."""
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
        environment = {**os.environ, "PYTHONPATH": str(self._folder)}
        try:
            return subprocess.run(
                command,
                cwd=self._folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TIME_LIMIT,
            )
        except subprocess.TimeoutExpired:
            return None


def judged(mutant: Mutant, ended: Ended | None, without: Callable[[], Ended | None]) -> Result:
    """What became of a mutant whose test ended so; `without` runs the test without the mutant."""
    if ended is None:
        plain = without()
        if plain is not None and plain.returncode == 0:
            return Result(mutant, Outcome.KILLED, f"its test did not end in {_TIME_LIMIT:g} s")
        # A busy machine kills no mutant.
        why = f"its test does not pass in {_TIME_LIMIT:g} s without the mutant either: run it on a quiet machine"
        return Result(mutant, Outcome.BROKEN, why)
    if ended.returncode == _TESTS_FAILED:
        return Result(mutant, Outcome.KILLED)
    outcome = Outcome.SURVIVED if ended.returncode == 0 else Outcome.BROKEN
    return Result(mutant, outcome, (ended.stdout + ended.stderr)[-2000:])


_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc")


def run_all(mutants: Sequence[Mutant], processes: int) -> list[Result]:
    """Tries all of them, and prints each outcome, with the reason if no failed test killed it.

    Raises MutantDoesNotApplyError before anything runs.
    """
    sources = Sources(ROOT)
    places = {mutant: sources.place_of(mutant) for mutant in mutants}
    tests = killers_of(ROOT, [mutant for mutant in mutants if mutant.killer])
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(processes) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(processes):
            copies.put(Copy(Path(folder, str(number))))

        def try_one(mutant: Mutant) -> Result:
            if not mutant.killer:
                return Result(mutant, Outcome.EQUIVALENT)
            copy = copies.get()
            try:
                place = places[mutant]
                result = copy.run(mutant, place, sources.text_of(place.path), tests[mutant])
            finally:
                copies.put(copy)
            print(f"{result.outcome.value:10} {mutant}", flush=True)
            if result.output:
                print(result.output, flush=True)
            return result

        return list(pool.map(try_one, mutants))


def row(area: str, results: Sequence[Result], commit: str) -> str:
    """The row of an area: how many of its mutants came to what, at which commit."""
    counts = [sum(result.outcome is outcome for result in results) for outcome in Outcome]
    cells = [area, f"{commit}, {date.today().isoformat()}", str(len(results)), *map(str, counts)]
    return _line(cells)


def table(rows: Mapping[str, str]) -> str:
    """The table that docs keep, of the rows by area; the last row is their sum."""
    head = ["area", "commit", "mutants", *(outcome.value for outcome in Outcome)]
    numbers = [[int(cell) for cell in _cells(row)[2:]] for row in rows.values()]
    sums = [str(sum(column)) for column in zip(*numbers, strict=True)]
    return "\n".join([_line(head), _line(["---"] * len(head)), *rows.values(), _line(["all", "", *sums])])


def stored_rows(path: Path) -> dict[str, str]:
    """The rows that a document keeps, by area."""
    _, _, rest = path.read_text().partition(_BEGIN)
    lines = rest.partition(_END)[0].splitlines()
    found = {_cells(line)[0]: line for line in lines if line.startswith("| ")}
    return {area: line for area, line in found.items() if area not in ("area", "---", "all")}


def store(path: Path, rows: Mapping[str, str]) -> None:
    """Replaces these rows between the marks of a document, and keeps those of other areas of the catalogue."""
    known = mutants_by_area()
    every = {area: line for area, line in {**stored_rows(path), **rows}.items() if area in known}
    text = table({area: every[area] for area in sorted(every)})
    document = path.read_text()
    before, _, rest = document.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    path.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split("|")]


def main() -> int:
    """The command line. Returns the exit status: 1 = a mutant survived or its test did not run."""
    parser = argparse.ArgumentParser(prog="bench/mutants", description=__doc__)
    parser.add_argument("areas", nargs="*", metavar="AREA")
    parser.add_argument("--list", action="store_true", help="names the mutants and runs nothing")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="stores the rows in this page of docs")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    known = mutants_by_area()
    if unknown := [area for area in options.areas if area not in known]:
        parser.error(f"no area {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = {area: known[area] for area in options.areas or known}
    if options.list:
        for area, mutants in chosen.items():
            print(*(f"{area}: {mutant}" for mutant in mutants), sep="\n")
        return 0
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    found: set[Outcome] = set()
    rows: dict[str, str] = {}
    for area, mutants in chosen.items():
        results = run_all(mutants, options.processes)
        found |= {result.outcome for result in results}
        rows[area] = row(area, results, commit)
        # All areas take an hour or two. So each area is stored when it ends, in case a later one fails.
        if options.write:
            store(options.write, {area: rows[area]})
    print(table(rows))
    return int(Outcome.SURVIVED in found or Outcome.BROKEN in found)


if __name__ == "__main__":
    sys.exit(main())
