"""What a benchmark case is: a program, the peers it is held against, and how a run becomes one number.

Only data; bench/runner.py does the running.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"
PROGRAMS = ROOT / "bench" / "programs"
#: Runs Yarrow, and the bare programs, which need numpy and pyarrow at most.
PYTHON = sys.executable
#: Runs the peers that bench/peers/install put into an environment of their own.
PEER_PYTHON = str(ROOT / ".bench-venv" / "bin" / "python")


class Measure(Enum):
    """How one run of a program becomes one number."""

    #: Records per second: the slope between the wall times of two sizes, so that start and end cancel out. With one
    #: size, as quick runs have, start and end count.
    RATE = "records/s"
    #: Wall time of the whole process at the first size.
    SECONDS = "s"
    #: The number under "value" in the JSON object that the program prints last, and its "unit", if any; what it
    #: names under "failed" is missed.
    REPORTED = "reported"


@dataclass(frozen=True)
class Program:
    """A command line to measure, built for a size (records, rows, subtasks: what the case counts)."""

    name: str
    command: Callable[[int], list[str]]
    #: The sizes to run: two for a rate, one for everything else.
    sizes: tuple[int, ...]
    #: The size that shows quickly whether it works at all; None = a tenth of the largest.
    quick: int | None = None
    #: Measured in the first round alone and without a warm-up: for peers that take long.
    once: bool = False


@dataclass(frozen=True)
class Case:
    """A program and its peers, run in turn in one session."""

    name: str
    program: Program
    peers: tuple[Program, ...] = ()
    measure: Measure = Measure.RATE
    #: What must be shown: the program's number divided by each named peer's, at least this.
    at_least: tuple[tuple[str, float], ...] = ()
    #: What must be shown where the number itself counts (times, memory): at most this.
    at_most: float | None = None
    #: What must be shown of times against peers: the program's number divided by each named peer's, at most this.
    at_most_of: tuple[tuple[str, float], ...] = ()
    #: The ratio to a peer is the median of the rounds' ratios, each of two runs that followed each other, and not the
    #: ratio of the medians: for programs that differ little on a machine whose pace changes.
    paired: bool = False
    #: A command that makes what the programs read, for the largest of their sizes. It runs before the first round.
    prepare: Callable[[int], list[str]] | None = None


def peer(script: str, *options: str, name: str, sizes: tuple[int, ...], python: str = PEER_PYTHON) -> Program:
    """A program of bench/peers, which takes the size as its first argument."""

    def command(size: int) -> list[str]:
        return [python, str(PEERS / script), str(size), *options]

    return Program(name, command, sizes)


def module_peer(
    script: str, *options: str, name: str, sizes: tuple[int, ...], quick: int | None = None
) -> Program:
    """A program of bench/peers that runs as a module in Yarrow's own environment; the size is its first argument."""

    def command(size: int) -> list[str]:
        return [PYTHON, "-m", f"bench.peers.{script}", str(size), *options]

    return Program(name, command, sizes, quick)


def engine(
    script: str,
    *options: str,
    name: str,
    sizes: tuple[int, ...],
    quick: int | None = None,
    module: bool = False,
) -> Program:
    """A program of bench/programs, which takes the size as its first argument: as users start it, or as a module."""
    start = ["-m", f"bench.programs.{script.removesuffix('.py')}"] if module else [str(PROGRAMS / script)]

    def command(size: int) -> list[str]:
        return [PYTHON, *start, str(size), *options]

    return Program(name, command, sizes, quick)
