"""What checkpoints, state backends and recovery cost: each program against the same without, or against a limit.

The rates are those of a window of seconds in a job whose state is there: records that fill it do not count.
"""

from __future__ import annotations

from bench.case import PYTHON, Case, Measure, Program, engine
from bench.cases.engine import reporting
from bench.peers import programs


def window(name: str, seconds: int, records_before: int, *options: str) -> Program:
    """A keyed row job of state_rates.py; the size is the length of the window."""

    def command(size: int) -> list[str]:
        before = str(min(records_before, size * 500_000))
        module = [PYTHON, "-m", "bench.programs.state_rates"]
        return [*module, str(size), "--records-before", before, *options]

    return Program(f"Yarrow, {name}", command, (seconds,), quick=1)


# Windows of whole intervals, from the first checkpoint on: each holds the work of as many checkpoints.
THOUSAND = window("1000 keys", 5, 2_000_000, "--seconds-before=1.5")
THOUSAND_CHECKPOINTED = window(
    "1000 keys, checkpoints", 5, 2_000_000, "--seconds-before=1.5", "--checkpoint=1"
)
MANY = window("2 M keys", 10, 4_000_000, "--seconds-before=10", "--job=two-million")
MANY_CHECKPOINTED = window(
    "2 M keys, checkpoints", 10, 4_000_000, "--seconds-before=10", "--job=two-million", "--checkpoint=10"
)
# The window is about as many records long as those that the bare loop counts.
RANDOM_ROCKSDB = window(
    "random keys, RocksDB", 6, programs.ROCKSDB_RECORDS_BEFORE, "--job=random", "--backend=rocksdb"
)


def recovery(layout: str) -> Program:
    """kill -9 of a slot's worker; `layout` says where the two regions run."""
    name = f"Yarrow, recovery, {layout}"
    return engine("recovery.py", "--layout", layout, name=name, sizes=(9,), quick=1, module=True)


CASES = [
    Case(
        "checkpoints",
        THOUSAND_CHECKPOINTED,
        (THOUSAND,),
        measure=Measure.REPORTED,
        at_least=((THOUSAND.name, 0.9),),
        paired=True,
    ),
    Case(
        "checkpoints-2m",
        MANY_CHECKPOINTED,
        (MANY,),
        measure=Measure.REPORTED,
        at_least=((MANY.name, 0.75),),
        paired=True,
    ),
    Case(
        "rocksdb-random",
        RANDOM_ROCKSDB,
        (programs.BARE_ROCKSDB,),
        measure=Measure.REPORTED,
        at_least=((programs.BARE_ROCKSDB.name, 0.6),),
        paired=True,
    ),
    Case("recovery-apart", recovery("apart"), measure=Measure.REPORTED, at_most=1.5),
    Case("recovery-shared", recovery("shared"), measure=Measure.REPORTED, at_most=1.5),
    Case("unaligned", reporting("unaligned_barrier.py", 20, 6), measure=Measure.REPORTED, at_most=3.0),
    Case("increments", reporting("increments.py", 20, 4), measure=Measure.REPORTED, at_most=50.0),
    Case(
        "heap-snapshot",
        reporting("heap_snapshot.py", 10_000_000, 500_000),
        measure=Measure.REPORTED,
        at_most=100.0,
    ),
]
