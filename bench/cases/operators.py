"""Operators of event time on rows, each beside the keyed reduce of this engine on the same rows, in pairs."""

from __future__ import annotations

from bench.case import Case, Program, engine


def operators(job: str, sizes: tuple[int, int], *options: str) -> Program:
    """A job of operators.py, which checkpoints each second."""
    name = " ".join(["Yarrow,", job, *(option.removeprefix("--") for option in options)])
    return engine("operators.py", "--job", job, *options, name=name, sizes=sizes, quick=100_000, module=True)


def beside_keyed_reduce(name: str, job: str, sizes: tuple[int, int], at_least: float, *options: str) -> Case:
    """A case that must have this share of the rate of the keyed reduce."""
    keyed = operators("keyed-reduce", sizes, *options)
    return Case(
        name, operators(job, sizes, *options), (keyed,), at_least=((keyed.name, at_least),), paired=True
    )


def sessions(job: str) -> Program:
    """A job of sessions.py."""
    sizes = (1_000_000, 4_000_000)
    return engine(
        "sessions.py", "--job", job, name=f"Yarrow, bursts, {job}", sizes=sizes, quick=100_000, module=True
    )


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
    beside_keyed_reduce("custom-trigger", "custom-trigger", (200_000, 1_000_000), 0.2),
    beside_keyed_reduce("in-order", "in-order", (500_000, 2_000_000), 0.6),
    beside_keyed_reduce(
        "tumbling-rocksdb", "tumbling-reduce", (1_000_000, 4_000_000), 0.6, *MANY_KEYS, "--backend", "rocksdb"
    ),
]
