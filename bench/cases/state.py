"""What checkpoints, state backends and recovery cost: each program against the same without, or against a limit."""

from __future__ import annotations

from bench.case import Case, Measure, Program, engine
from bench.cases.engine import reporting, rows
from bench.peers import programs

#: Long enough for several checkpoints in each run.
THOUSAND = rows("integers", (6_000_000, 42_000_000))
THOUSAND_CHECKPOINTED = rows("integers", (6_000_000, 42_000_000), "--checkpoint=1")
MANY = rows("two-million", (6_000_000, 50_000_000))
MANY_CHECKPOINTED = rows("two-million", (6_000_000, 50_000_000), "--checkpoint=10")
RANDOM_ROCKSDB = rows("random", (6_000_000, 12_000_000), "--backend=rocksdb")


def recovery(layout: str) -> Program:
    """kill -9 of a slot's worker; `layout` says where the two regions run."""
    return engine("recovery.py", "--layout", layout, name=f"Yarrow, recovery, {layout}", sizes=(5,), quick=1)


CASES = [
    Case("checkpoints", THOUSAND_CHECKPOINTED, (THOUSAND,), at_least=((THOUSAND.name, 0.9),)),
    Case("checkpoints-2m", MANY_CHECKPOINTED, (MANY,), at_least=((MANY.name, 0.75),)),
    Case(
        "rocksdb-random",
        RANDOM_ROCKSDB,
        (programs.BARE_ROCKSDB,),
        at_least=((programs.BARE_ROCKSDB.name, 0.6),),
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
