"""Operators of event time, in pairs beside the keyed reduce or the columnar sum of this engine on the same rows."""

from __future__ import annotations

from bench.case import Case, Program, engine
from bench.cases.engine import REBALANCE, rows


def operators(job: str, sizes: tuple[int, int], *options: str) -> Program:
    """A job of operators.py, which checkpoints each second."""
    name = " ".join(["Yarrow,", job, *(option.removeprefix("--") for option in options)])
    return engine("operators.py", "--job", job, *options, name=name, sizes=sizes, quick=100_000, module=True)


def with_share(name: str, program: Program, base: Program, at_least: float) -> Case:
    """A case that must have this share of the rate of another program."""
    return Case(name, program, (base,), at_least=((base.name, at_least),), paired=True)


def beside(name: str, job: str, other: str, sizes: tuple[int, int], at_least: float, *options: str) -> Case:
    """A case that must have this share of the rate of another job on rows."""
    return with_share(name, operators(job, sizes, *options), operators(other, sizes, *options), at_least)


def sessions(job: str) -> Program:
    """A job of sessions.py."""
    sizes = (1_000_000, 4_000_000)
    return engine(
        "sessions.py", "--job", job, name=f"Yarrow, bursts, {job}", sizes=sizes, quick=100_000, module=True
    )


def beside_keyed_reduce(name: str, job: str, sizes: tuple[int, int], at_least: float, *options: str) -> Case:
    """A case that must have this share of the rate of the keyed reduce."""
    return beside(name, job, "keyed-reduce", sizes, at_least, *options)


def columns(job: str, sizes: tuple[int, int], *options: str) -> Program:
    """A job of column_operators.py, which checkpoints each second."""
    name = " ".join(["Yarrow, columns,", job, *(option.removeprefix("--") for option in options)])
    return engine(
        "column_operators.py", "--job", job, *options, name=name, sizes=sizes, quick=500_000, module=True
    )


#: 1000 keys have a row a second each, and so as many results of windows by a second as rows.
ROW_A_RESULT = "--rows-a-second", "1000"
MANY_KEYS = "--keys", "1000000"
#: 10 000 keys, of whose rows 10 % match each step, or 1 %.
TENTHS = "--keys", "10000", "--percent", "10"
HUNDREDTHS = "--keys", "10000", "--percent", "1"
OF_ROWS, OF_COLUMNS = (500_000, 2_000_000), (10_000_000, 60_000_000)
JOINED = operators("interval-join", OF_ROWS)

CASES = [
    beside_keyed_reduce("tumbling", "tumbling-count", (1_000_000, 6_000_000), 0.85),
    beside_keyed_reduce("tumbling-1m", "tumbling-count", (4_000_000, 16_000_000), 0.85, *MANY_KEYS),
    Case(
        "sessions",
        sessions("sessions"),
        (sessions("keyed-reduce"),),
        at_least=(("Yarrow, bursts, keyed-reduce", 0.45),),
        paired=True,
    ),
    beside("sliding", "sliding-minute", "tumbling-count", (200_000, 1_200_000), 0.5, *ROW_A_RESULT),
    beside("sliding-long", "sliding-10-minutes", "sliding-minute", (800_000, 2_000_000), 0.9, *ROW_A_RESULT),
    beside_keyed_reduce("custom-trigger", "custom-trigger", (200_000, 1_000_000), 0.2),
    beside_keyed_reduce("in-order", "in-order", (500_000, 2_000_000), 0.6),
    beside_keyed_reduce(
        "tumbling-rocksdb", "tumbling-reduce", (1_000_000, 4_000_000), 0.6, *MANY_KEYS, "--backend", "rocksdb"
    ),
    Case("processing-timers", operators("processing-timers", OF_ROWS, "--keys", "10000")),
    with_share("interval-join", JOINED, operators("keyed-reduce", OF_ROWS), 0.4),
    with_share("interval-join-columns", columns("interval-join", OF_COLUMNS), JOINED, 5.0),
    with_share(
        "patterns", operators("pattern", OF_ROWS, *TENTHS), operators("keyed-reduce", OF_ROWS, *TENTHS), 0.4
    ),
    with_share(
        "patterns-columns",
        columns("pattern", (500_000, 3_000_000), *TENTHS),
        operators("pattern", OF_ROWS, *TENTHS),
        3.0,
    ),
    with_share(
        "patterns-columns-rare",
        columns("pattern", (2_000_000, 12_000_000), *HUNDREDTHS),
        operators("pattern", OF_ROWS, *HUNDREDTHS),
        10.0,
    ),
    with_share("tumbling-columns", columns("tumbling", OF_COLUMNS), columns("keyed-sum", OF_COLUMNS), 0.7),
    with_share(
        "tumbling-columns-1m",
        columns("tumbling", OF_COLUMNS, *MANY_KEYS),
        columns("keyed-sum", OF_COLUMNS, *MANY_KEYS),
        0.65,
    ),
    with_share(
        "sliding-columns", columns("sliding-minute", OF_COLUMNS), columns("tumbling", OF_COLUMNS), 0.75
    ),
    with_share("loop", rows("loop", (1_000_000, 6_000_000)), REBALANCE, 0.5),
]
