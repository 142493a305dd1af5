"""Runs benchmark cases and prints one line of JSON a case.

The programs of a case run in turn, forwards and backwards by round, each once as warm-up before; the figure
is the median of the rounds, beside it the spread and the peak memory of the whole process tree. A program
that fails is named and fails the run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

import bench.cases
from bench.case import ROOT, Case, Measure, Program
from bench.process_trees import kill_tree

#: Seconds between two looks at the memory of a process tree: rare, because the looks share the cores.
MEMORY_INTERVAL = 0.5
#: Seconds after which a program is taken to hang; the longest of the cases takes a minute and a half.
TIMEOUT = 300.0


class ProgramFailed(Exception):
    """A measured program ended with an error, or printed no value where it should."""


@dataclass
class Figures:
    """What the rounds of one program gave."""

    values: list[float] = field(default_factory=list)
    #: Rounds that gave no rate, because the larger size did not take longer than the smaller one.
    void: int = 0
    memory: int = 0
    unit: str = ""
    #: What a program that reports a value has said besides, in the last round.
    details: dict[str, Any] = field(default_factory=dict)
    #: What such a program has named as missed, in any round.
    failed: list[str] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Largest less smallest value, relative to the median."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "median": _short(self.median),
            "spread": round(self.spread, 3),
            "values": [_short(value) for value in self.values],
            "void": self.void,
            "unit": self.unit,
            "memory_mb": round(self.memory / 1e6),
        } | ({"details": self.details} if self.details else {})


@dataclass(frozen=True)
class Run:
    seconds: float
    memory: int
    output: str


def run_program(command: list[str], timeout: float = TIMEOUT) -> Run:
    """One run: wall time by this process's clock, peak resident memory of the tree, what it printed.

    A program that hangs is killed with all its descendants.
    """
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    ended = threading.Event()
    peak = [0]
    watcher = threading.Thread(target=_watch_memory, args=(process.pid, ended, peak))
    watcher.start()
    try:
        output, errors = process.communicate(timeout=timeout)
        seconds = time.perf_counter() - started
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"{' '.join(command)} had not ended after {timeout:g} s") from None
    finally:
        if process.poll() is None:
            kill_tree(process.pid)
            process.communicate()
        ended.set()
        watcher.join()
    if process.returncode:
        raise ProgramFailed(f"{' '.join(command)} ended with {process.returncode}:\n{errors[-2000:]}")
    return Run(seconds, peak[0], output)


def _watch_memory(pid: int, ended: threading.Event, peak: list[int]) -> None:
    while not ended.wait(MEMORY_INTERVAL):
        total = 0
        try:
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            pass
        peak[0] = max(peak[0], total)


def measure_once(program: Program, measure: Measure, figures: Figures) -> None:
    runs = [run_program(program.command(size)) for size in program.sizes]
    figures.memory = max(figures.memory, *(run.memory for run in runs))
    figures.unit = measure.value
    if measure is Measure.RATE:
        rate = slope(program.sizes, [run.seconds for run in runs])
        if rate is None:
            figures.void += 1
        else:
            figures.values.append(rate)
    elif measure is Measure.SECONDS:
        figures.values.append(runs[0].seconds)
    else:
        reported = _last_object(program, runs[0].output)
        figures.unit = str(reported.pop("unit", ""))
        figures.values.append(float(reported.pop("value")))
        figures.failed += [text for text in reported.pop("failed", ()) if text not in figures.failed]
        figures.details = reported


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float | None:
    """Records per second between two sizes; None where noise swallowed the difference."""
    if len(sizes) == 1:
        return sizes[0] / seconds[0]
    longer = seconds[1] - seconds[0]
    return (sizes[1] - sizes[0]) / longer if longer > 0 else None


def _last_object(program: Program, output: str) -> dict[str, Any]:
    lines = output.strip().splitlines()
    try:
        found = json.loads(lines[-1])
        if isinstance(found, dict) and "value" in found:
            return found
    except (IndexError, ValueError):
        pass
    raise ProgramFailed(f'{program.name} printed no JSON object with "value" as its last line')


def run_case(case: Case, rounds: int, *, warm_up: bool = True) -> dict[str, Any]:
    """All rounds of one case, as the object to print."""
    programs = [case.program, *case.peers]
    figures = {program.name: Figures() for program in programs}
    if case.prepare is not None:
        # A program that fills a topic in the first round would count that as its own time.
        run_program(case.prepare(max(size for program in programs for size in program.sizes)))
    for program in programs:
        if warm_up and not program.once:
            run_program(program.command(program.sizes[0]))
    for number in range(rounds):
        for program in programs if number % 2 == 0 else reversed(programs):
            if number == 0 or not program.once:
                measure_once(program, case.measure, figures[program.name])
    for program in programs:
        if not figures[program.name].values:
            raise ProgramFailed(f"{program.name}: no round gave a rate, its sizes are too near")
    return summary(case, figures)


def summary(case: Case, figures: dict[str, Figures]) -> dict[str, Any]:
    own = figures[case.program.name]
    peers = {
        program.name: {"ratio": _short(ratio(own, figures[program.name], paired=case.paired))}
        | figures[program.name].as_json()
        for program in case.peers
    }
    # The peer of the line is the best one: the smallest ratio, of times the largest.
    best = max if case.measure is Measure.SECONDS else min
    nearest = best(peers, key=lambda name: peers[name]["ratio"]) if peers else None
    ratios = [(name, peers[name]["ratio"], want) for name, want in case.at_least]
    missed = [f"{name}: {found}, wanted {want}" for name, found, want in ratios if found < want]
    times = [(name, peers[name]["ratio"], want) for name, want in case.at_most_of]
    missed += [f"{name}: {found}, wanted at most {want}" for name, found, want in times if found > want]
    void = [(name, one.void) for name, one in figures.items() if one.void]
    missed += [f"{name}: {rounds} void rounds, the median is not sound" for name, rounds in void]
    missed += own.failed
    if case.at_most is not None and own.median > case.at_most:
        missed.append(f"{_short(own.median)} {own.unit}, wanted at most {case.at_most}")
    return (
        {"name": case.name}
        | own.as_json()
        | {"ratio": peers[nearest]["ratio"] if nearest else None, "peer": nearest}
        | {"peers": peers, "missed": missed}
    )


def ratio(own: Figures, other: Figures, *, paired: bool) -> float:
    """How many times the other's number; by pairs where every round gave both."""
    if paired and len(own.values) == len(other.values):
        return statistics.median(a / b for a, b in zip(own.values, other.values, strict=True))
    return own.median / other.median


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def all_cases() -> list[Case]:
    """Every case of every module of bench/cases."""
    cases: list[Case] = []
    for info in pkgutil.iter_modules(bench.cases.__path__):
        cases += importlib.import_module(f"bench.cases.{info.name}").CASES
    return cases


def available(case: Case) -> tuple[Case | None, list[str]]:
    """The case without the peers that are not installed, and their names; None if its own program is not."""
    lost = [peer.name for peer in case.peers if not Path(peer.command(1)[0]).exists()]
    if not Path(case.program.command(1)[0]).exists():
        return None, [case.program.name, *lost]
    kept = tuple(peer for peer in case.peers if peer.name not in lost)
    goals = tuple(goal for goal in case.at_least if goal[0] not in lost)
    limits = tuple(limit for limit in case.at_most_of if limit[0] not in lost)
    return replace(case, peers=kept, at_least=goals, at_most_of=limits), lost


def quickly(case: Case) -> Case:
    """The case with one small size and no goals: shows that its programs work; rates are far below the real ones."""

    def small(program: Program) -> Program:
        size = max(1, program.sizes[-1] // 10) if program.quick is None else program.quick
        return replace(program, sizes=(size,))

    peers = tuple(small(program) for program in case.peers)
    return replace(case, program=small(case.program), peers=peers, at_least=(), at_most=None, at_most_of=())


def chosen(cases: Iterable[Case], names: list[str]) -> list[Case]:
    known = {case.name: case for case in cases}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"bench/run: no such case: {', '.join(unknown)}; bench/run --list names them")
    return [known[name] for name in names] if names else list(known.values())


def run_all(
    cases: Iterable[tuple[Case, int]], *, warm_up: bool = True
) -> Iterator[tuple[Case, dict[str, Any] | None]]:
    """Runs each case so many rounds and prints its line; None for one that failed, which is told on stderr."""
    for case, rounds in cases:
        runnable, lost = available(case)
        for name in lost:
            print(f"{case.name}: {name} is left out, not installed: run bench/peers/install", file=sys.stderr)
        result = None
        if runnable is not None:
            try:
                result = run_case(runnable, rounds, warm_up=warm_up)
                print(json.dumps(result), flush=True)
            except ProgramFailed as error:
                print(f"{case.name}: {error}", file=sys.stderr)
        yield case, result


def main() -> int:
    arguments = argparse.ArgumentParser(prog="bench/run", description="Runs the benchmarks.")
    arguments.add_argument("cases", nargs="*", help="names of cases (all); or `targets`, for the whole table")
    arguments.add_argument("--list", action="store_true", help="name the cases and end")
    arguments.add_argument("--runs", type=int, default=5, help="rounds of each case (5)")
    arguments.add_argument(
        "--quick", action="store_true", help="small sizes and one round: shows that cases work"
    )
    arguments.add_argument(
        "--state", action="store_true", help="with `targets`: the table of checkpoints, backends and recovery"
    )
    arguments.add_argument(
        "--batch", action="store_true", help="with `targets`: the table of bounded programs"
    )
    arguments.add_argument("--write", type=Path, help="with `targets`: the page whose table is replaced")
    given = arguments.parse_args()
    if given.cases == ["targets"]:
        # It builds on this module.
        from bench.targets import BATCH, ENGINE, STATE, run_targets

        table = BATCH if given.batch else STATE if given.state else ENGINE
        return run_targets(table, quick=given.quick, page=given.write)
    cases = chosen(all_cases(), given.cases)
    if given.list:
        print(*(case.name for case in cases), sep="\n")
        return 0
    if given.quick:
        results = [result for _, result in run_all([(quickly(case), 1) for case in cases], warm_up=False)]
        return int(None in results)
    results = [result for _, result in run_all([(case, given.runs) for case in cases])]
    return int(any(result is None or result["missed"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
