"""The peers by name, for the cases that are held against them.

Sizes are such that the larger run takes seconds longer than the smaller one at the usual rate.
"""

from __future__ import annotations

from bench.case import PYTHON, Program, peer


def bare_loop(variant: str, sizes: tuple[int, int]) -> Program:
    name = f"bare loop, {variant}"
    return peer("bare_loop.py", "--variant", variant, name=name, sizes=sizes, python=PYTHON)


def bare_columnar(keys: int, batch: int, merge: str, sizes: tuple[int, int]) -> Program:
    options = ("--keys", str(keys), "--batch", str(batch), "--merge", merge)
    name = f"bare columnar, {keys} keys, {batch} rows, {merge}"
    return peer("bare_columnar.py", *options, name=name, sizes=sizes, python=PYTHON)


BARE_INTEGERS = bare_loop("integers", (5_000_000, 20_000_000))
BARE_STRINGS = bare_loop("strings", (2_000_000, 10_000_000))
BARE_ORDERS = bare_loop("orders", (500_000, 2_500_000))


#: Two processes with a task of asyncio for each call.
BARE_ASYNC = peer("bare_async.py", name="bare asyncio", sizes=(100_000, 1_100_000), python=PYTHON)


#: Records that fill the state before a rate counts: few enough for nine pairs of runs in six minutes.
ROCKSDB_RECORDS_BEFORE = 2_500_000


def bare_rocksdb(size: int) -> list[str]:
    # As many records fill the state as in the job (bench/cases/state.py); fewer where it shall only be seen to work.
    before = str(min(ROCKSDB_RECORDS_BEFORE, 3 * size))
    return [PYTHON, "-m", "bench.peers.bare_rocksdb", str(size), "--records-before", before]


#: Reports its rate; the size is how many records count.
BARE_ROCKSDB = Program("bare RocksDB", bare_rocksdb, sizes=(1_200_000,), quick=50_000)


BARE_COLUMNAR_16K = bare_columnar(1000, 16_384, "dict", (20_000_000, 120_000_000))
BARE_COLUMNAR_64K = bare_columnar(1000, 65_536, "dict", (20_000_000, 170_000_000))
BARE_COLUMNAR_MANY_16K = bare_columnar(1_000_000, 16_384, "sorted", (10_000_000, 50_000_000))
BARE_COLUMNAR_MANY_64K = bare_columnar(1_000_000, 65_536, "sorted", (10_000_000, 50_000_000))

BYTEWAX = tuple(
    peer("bytewax_job.py", *options, name=f"Bytewax, {form}", sizes=(300_000, 1_800_000))
    for form, options in {
        "1 worker": (),
        "2 threads": ("--workers", "2"),
        "2 processes": ("--processes", "2"),
    }.items()
)
PYFLINK = peer("pyflink_job.py", name="PyFlink, bundle 10000", sizes=(30_000, 300_000))
FLINK_SQL = (
    peer("flink_sql.py", "--parallelism", "1", name="Flink SQL, p=1", sizes=(5_000_000, 50_000_000)),
    peer("flink_sql.py", name="Flink SQL, p=2", sizes=(5_000_000, 50_000_000)),
    peer("flink_sql.py", "--mini-batch", name="Flink SQL, p=2, mini-batch", sizes=(5_000_000, 100_000_000)),
)
