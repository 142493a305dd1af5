"""The limit for keyed row programs whose state is in RocksDB: two processes, hand-written loops, nothing else.

integers -> one of 5 million keys, uniformly at random -> running sum -> even sums. Each process owns half of the keys
and a database with the engine's own options and cache; it reads the keys of a batch by one multi-get and writes them by
one write batch. Nothing crosses between the processes, there is no source, no log, no checkpoint and no metric. The
rate printed is that of the records behind those that fill the state.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import struct
import tempfile
import time
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from rocksdict import Rdict, WriteBatch

from yarrow.container.state.rocksdb.memory import WORKER_MEMORY
from yarrow.container.state.rocksdb.options import database_settings, rocksdb_options, write_options
from yarrow.runtime.config.settings import Settings

KEYS = 5_000_000
#: Cache and write buffers of a process, as the job has them in each slot.
MEMORY = "256 mb"
Results: TypeAlias = "multiprocessing.SimpleQueue[tuple[int, int, float]]"
#: Numbers whose keys are computed at once.
BLOCK = 1 << 18


def keys_of(index: int, records: int) -> Iterator[int]:
    """The keys of the numbers below `records` that the process owns, in their order: splitmix64, then modulo."""
    for low in range(0, records, BLOCK):
        z = np.arange(low, min(low + BLOCK, records), dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys = ((z ^ (z >> np.uint64(31))) % np.uint64(KEYS)).astype(np.int64)
        yield from keys[(keys & 1) == index].tolist()


def batches_of(index: int, records: int, size: int) -> Iterator[list[int]]:
    """The same, a batch at a time."""
    batch: list[int] = []
    for key in keys_of(index, records):
        batch.append(key)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def reduce_pairs(database: Rdict, batches: Iterator[list[int]], before: int) -> tuple[int, int, float]:
    """Even sums; records after the first `before`, and the seconds that they took."""
    key_bytes, pack = struct.Struct(">q").pack, struct.Struct(">qq").pack
    unpack = struct.Struct(">qq").unpack
    kept, seen, counted = 0, 0, 0
    started = time.perf_counter()
    for batch in batches:
        if seen < before <= seen + len(batch):
            started, counted = time.perf_counter(), -len(batch)
        seen += len(batch)
        counted += len(batch)
        encoded = [key_bytes(key) for key in batch]
        sums: dict[bytes, tuple[int, int]] = {}
        found = database.get(encoded)  # type: ignore[arg-type]
        assert found is not None
        for key, name, data in zip(batch, encoded, found, strict=True):
            pair = sums.get(name)
            if pair is None:
                pair = (key, 0) if data is None else unpack(data)
            total = pair[1] + 1
            sums[name] = (key, total)
            if not total & 1:
                kept += 1
        writes = WriteBatch(raw_mode=True)
        put = writes.put
        for name, (key, total) in sums.items():
            put(name, pack(key, total))
        database.write(writes)
    return kept, counted, time.perf_counter() - started


def half(index: int, records: int, before: int, batch: int) -> tuple[int, int, float]:
    """One of the two processes: its half of the keys."""
    gc.disable()
    settings = Settings({"state.backend.rocksdb.memory.fixed-per-slot": MEMORY})
    options = rocksdb_options(database_settings(settings), WORKER_MEMORY.acquire(settings))
    with tempfile.TemporaryDirectory(prefix="bare-rocksdb-") as folder:
        database = Rdict(folder, options)
        waiting = write_options()
        waiting.no_slowdown = False
        database.set_write_options(waiting)
        reduced = reduce_pairs(database, batches_of(index, before + records, batch), before // 2)
        database.close()
    return reduced


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--records-before", type=int, default=0, help="not counted: they fill the state")
    arguments.add_argument("--batch", type=int, default=1024)
    given = arguments.parse_args()
    # Spawned: an open database must not be there when a process forks, and none of the two is the parent's own.
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    sizes = (given.records, given.records_before, given.batch)
    processes = [context.Process(target=run, args=(results, index, *sizes)) for index in range(2)]
    for process in processes:
        process.start()
    reduced = [results.get() for _ in processes]
    for process in processes:
        process.join()
    rate = sum(counted / seconds for _, counted, seconds in reduced)
    print(json.dumps({"value": round(rate), "unit": "records/s", "kept": sum(kept for kept, *_ in reduced)}))


def run(
    results: multiprocessing.SimpleQueue[tuple[int, int, float]],
    index: int,
    records: int,
    before: int,
    batch: int,
) -> None:
    results.put(half(index, records, before, batch))


if __name__ == "__main__":
    main()
