"""Operators of event time on rows, each beside the keyed reduce of this engine on the same rows, in pairs."""

from __future__ import annotations

from bench.case import Case, Program, engine


def operators(job: str, sizes: tuple[int, int], *options: str) -> Program:
    """A job of operators.py, which checkpoints each second."""
    name = " ".join(["Yarrow,", job, *(option.removeprefix("--") for option in options)])
    return engine("operators.py", "--job", job, *options, name=name, sizes=sizes, quick=100_000, module=True)


def beside(name: str, job: str, other: str, sizes: tuple[int, int], at_least: float, *options: str) -> Case:
    """A case that must have this share of the rate of another job."""
    base = operators(other, sizes, *options)
    return Case(
        name, operators(job, sizes, *options), (base,), at_least=((base.name, at_least),), paired=True
    )


def sessions(job: str) -> Program:
    """A job of sessions.py."""
    sizes = (1_000_000, 4_000_000)
    return engine(
        "sessions.py", "--job", job, name=f"Yarrow, bursts, {job}", sizes=sizes, quick=100_000, module=True
    )


def beside_keyed_reduce(name: str, job: str, sizes: tuple[int, int], at_least: float, *options: str) -> Case:
    """A case that must have this share of the rate of the keyed reduce."""
    return beside(name, job, "keyed-reduce", sizes, at_least, *options)


#: 1000 keys have a row a second each, and so as many results of windows by a second as rows.
ROW_A_RESULT = "--rows-a-second", "1000"
MANY_KEYS = "--keys", "1000000"

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
]
