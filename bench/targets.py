"""The tables of what must be shown: all rows of one in one session, engine and peers in turn, as a table in Markdown.

Sizes and rounds are such that each takes about twelve minutes on a quiet machine with two cores: five rounds where
they are cheap, three where not, and one of the peers that take longest.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.case import ROOT, Case, Program
from bench.cases import engine
from bench.peers import programs
from bench.runner import all_cases, quickly, run_all

END = "<!-- end of targets -->"


@dataclass(frozen=True)
class Target:
    """A row of the table: a case, what the table calls it, and how many rounds it takes."""

    case: str
    label: str
    rounds: int = 3


ROWS = (
    Target("keyed-rows", "keyed row job, 1000 keys", 5),
    Target("keyed-rows-undeclared", "the same without declared types"),
    Target("keyed-rows-tcp", "the same over TCP with mutual TLS"),
    Target("keyed-strings", "2 M distinct str keys"),
    Target("keyed-orders", "dataclass records of ten fields"),
    Target("keyed-columns", "columnar keyed sum, 1000 keys", 5),
    Target("keyed-columns-1m", "columnar keyed sum, 1 M keys"),
    Target("chain", "map-only chain"),
    Target("rebalance", "rebalance between two maps"),
    Target("latency", "keyed job at 200 k records/s, buffer timeout 10 ms: p99"),
    Target("start-up", "`python examples/word_count.py`, whole process", 5),
    Target("idle-memory", "idle embedded cluster, p=2: proportional set size"),
    Target("scheduling", "1000 subtasks scheduled and running"),
    Target("slow-map", "control behind a map of 20 ms a row: worst p99", 1),
    Target("slow-sink", "slow sink, 60 s: growth of memory after 10 s", 1),
)

STATE_ROWS = (
    Target("checkpoints", "keyed row job, heap, 1000 keys, a checkpoint every second, against none", 9),
    Target("checkpoints-2m", "the same with 2 M keys, a checkpoint every 10 s", 9),
    Target("rocksdb-random", "keyed row job, RocksDB, 5 M keys drawn uniformly at random", 9),
    Target("recovery-apart", "kill -9 of a worker, two regions in slots of their own: all running again", 1),
    Target("recovery-shared", "the same, both regions in one slot", 1),
    Target("unaligned", "unaligned barrier through a job whose sink is ten times too slow", 1),
    Target("increments", "RocksDB, 1 GB, 1 % changed between checkpoints: p99 of the pause of a task", 1),
    Target("heap-snapshot", "10 M keys with lists on the heap, snapshot under load: longest gap", 1),
)

BATCH_ROWS = (
    Target("batch-reduce", "map, key_by, reduce of 10 M records, 1000 keys"),
    Target("batch-reduce-1m", "the same with 1 M keys"),
    Target("batch-process", "KeyedProcessFunction, state and a timer a key, 10 M records, 100 000 keys"),
    Target("batch-columns", "columnar group-by of 50 M rows from Parquet"),
    Target("batch-map-batches", "the same behind one `map_batches`"),
    Target("batch-flights", "flights on Spark, from the shell, cold"),
    Target("batch-savepoint", "10 M keys of a DataFrame to a savepoint"),
    Target("batch-read-savepoint", "that savepoint as a DataFrame, with a sum"),
    Target("batch-one-key", "peak memory of a Python worker, one key of 5 M records of 100 bytes", 1),
)


@dataclass(frozen=True)
class Table:
    """The rows of one table, and the line of the page that it stands behind."""

    targets: tuple[Target, ...]
    begin: str
    #: On a machine so slow or busy that so many seconds have gone by, the rows that are left take one round each.
    full_rounds_seconds: float


ENGINE = Table(ROWS, "<!-- targets: written by bench/run targets -->", 600.0)
BATCH = Table(BATCH_ROWS, "<!-- targets: written by bench/run targets --batch -->", 900.0)
STATE = Table(STATE_ROWS, "<!-- targets: written by bench/run targets --state -->", 840.0)

#: Sizes for one measurement: the whole table shall not wait for the peers.
ONCE = {
    **{peer.name: (300_000, 1_500_000) for peer in programs.BYTEWAX},
    programs.PYFLINK.name: (30_000, 250_000),
    **{peer.name: (5_000_000, 35_000_000) for peer in programs.FLINK_SQL},
}
#: Shorter runs of programs that are measured in every round.
SHORTER = {
    programs.BARE_INTEGERS.name: (4_000_000, 16_000_000),
    programs.BARE_COLUMNAR_64K.name: (20_000_000, 140_000_000),
}
#: A limit must itself be this far above the best form of Bytewax, else it is no limit.
FIT_LIMIT = 8.0


def shortened(case: Case) -> Case:
    """The case with the sizes for the table."""

    def short(program: Program) -> Program:
        if program.name in ONCE:
            return replace(program, sizes=ONCE[program.name], once=True)
        return replace(program, sizes=SHORTER.get(program.name, program.sizes))

    return replace(case, peers=tuple(short(peer) for peer in case.peers))


def run_targets(wanted_table: Table, *, quick: bool, page: Path | None) -> int:
    """Runs all rows, prints lines and table, and puts the table into the page; 1 if anything is missed."""
    known = {case.name: case for case in all_cases()}
    load, started = os.getloadavg()[0], time.monotonic()
    chosen = [(target, shortened(known[target.case])) for target in wanted_table.targets]

    def plan() -> Iterator[tuple[Case, int]]:
        for target, case in chosen:
            late = time.monotonic() - started > wanted_table.full_rounds_seconds
            yield (quickly(case), 1) if quick else (case, 1 if late else target.rounds)

    results = [result for _, result in run_all(plan(), warm_up=False)]
    minutes = (time.monotonic() - started) / 60
    table = [
        f"{machine()} Load average {load:.1f} before and {os.getloadavg()[0]:.1f} after, "
        f"{minutes:.0f} minutes in all{', small sizes: no figures to keep' if quick else ''}.",
        "",
        "| job | measured | rounds | spread | wanted | against peers of the same run | reached |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (target, case), result in zip(chosen, results, strict=True):
        table.append(row(target, case, result))
        if target.case == engine.KEYED_ROWS.name and result is not None:
            table += limit_row(result)
    text = "\n".join(table) + "\n"
    print(text)
    if page is not None:
        write(page, text, wanted_table.begin)
    return int(any(result is None or result["missed"] for result in results))


def row(target: Target, case: Case, result: dict[str, Any] | None) -> str:
    """One line of the table."""
    if result is None:
        return f"| {target.label} | failed | | | {wanted(case, '')} | | no |"
    measured = shown(result["median"], result["unit"]) + behind(result)
    goals = {name: f"{least:g}" for name, least in case.at_least}
    goals |= {name: f"at most {most:g}" for name, most in case.at_most_of}
    against = [
        f"{peer['ratio']:g} x {name} ({shown(peer['median'], peer['unit'])}{behind(peer)})"
        + (f", wanted {goals[name]}" if name in goals else "")
        for name, peer in result["peers"].items()
    ]
    details = sentences(result.get("details", {}))
    verdict = "yes" if goals or case.at_most is not None else ""
    if result["missed"]:
        # Ratios and limits are in the row already.
        told = [f"{name}:" for name in goals] + [f"{result['median']} {result['unit']}, wanted"]
        verdict = "; ".join(["no", *(miss for miss in result["missed"] if not miss.startswith(tuple(told)))])
    spread = f"{result['spread']:.0%}" if len(result["values"]) > 1 else ""
    cells = [target.label, measured, str(len(result["values"])), spread, wanted(case, result["unit"])]
    return f"| {' | '.join([*cells, '. '.join(against) or details, verdict])} |"


def behind(result: dict[str, Any]) -> str:
    """Seconds of a cold start, of a program that has told them."""
    cold = result.get("details", {}).get("cold_s")
    return "" if cold is None else f"; cold {cold:g} s"


def limit_row(result: dict[str, Any]) -> list[str]:
    """Whether the bare loop is fit to judge by: its rate against Bytewax's best form."""
    names = [peer.name for peer in programs.BYTEWAX if peer.name in result["peers"]]
    if not names:
        return []
    best = max(names, key=lambda name: result["peers"][name]["median"])
    bare, bytewax = result["peers"][programs.BARE_INTEGERS.name], result["peers"][best]
    ratio = bare["median"] / bytewax["median"]
    reached = "yes" if ratio >= FIT_LIMIT else "no"
    rounds = str(len(bare["values"]))
    cells = [
        "(the bare loop itself)",
        shown(bare["median"], bare["unit"]),
        rounds,
        f"{bare['spread']:.0%}",
        "",
    ]
    return [f"| {' | '.join([*cells, f'{ratio:.1f} x {best}, wanted {FIT_LIMIT:g}', reached])} |"]


def wanted(case: Case, unit: str) -> str:
    """The goal of a number that counts by itself."""
    return "" if case.at_most is None else f"at most {case.at_most:g} {unit}".rstrip()


def sentences(details: dict[str, Any]) -> str:
    """What a program reported: single values as one sentence, then each group of values as a sentence of its own."""
    single = {name: value for name, value in details.items() if not isinstance(value, dict)}
    groups = [f"{name}: {listed(value)}" for name, value in details.items() if isinstance(value, dict)]
    return ". ".join(([listed(single)] if single else []) + groups)


def listed(values: dict[str, Any]) -> str:
    """Values behind their names; a name of several words stands in backticks."""
    return ", ".join(
        f"{f'`{name}`' if ' ' in name else name} {text(value)}" for name, value in values.items()
    )


def text(value: Any) -> str:
    """A value that a program reported, short."""
    if isinstance(value, dict):
        return f"({listed(value)})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def shown(value: float, unit: str) -> str:
    """A number as people read it."""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if unit == "records/s" and value >= size:
            return f"{value / size:.3g}{letter}/s"
    return f"{value:.3g} {'/s' if unit == 'records/s' else unit}".rstrip()


def machine() -> str:
    """What the figures were taken on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU"
    )
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = (
        subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    )
    versions = f"Python {platform.python_version()}, pyarrow {importlib.metadata.version('pyarrow')}"
    return f"{time.strftime('%Y-%m-%d')}, commit {commit}: {os.cpu_count()} cores of {model}, {versions}."


def write(page: Path, table: str, begin_line: str) -> None:
    """Puts the table between its marks in the page; without marks, at the end."""
    old = page.read_text() if page.exists() else ""
    before, begin, rest = old.partition(begin_line)
    after = rest.partition(END)[2] if begin else ""
    page.write_text(f"{before if begin else old}{begin_line}\n\n{table}\n{END}{after or chr(10)}")
    print(f"written to {page}", file=sys.stderr)
