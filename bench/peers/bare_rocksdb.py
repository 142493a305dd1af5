"""The limit for keyed row programs whose state is in RocksDB: two processes, hand-written loops, nothing else.

integers -> one of 5 million keys, uniformly at random -> running sum -> even sums. Each process owns half of the keys
and a database with the engine's own options and cache; it reads the keys of a batch by one multi-get and writes them by
one write batch. Nothing crosses between the processes, there is no source, no log, no checkpoint and no metric.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import struct
import tempfile
from collections.abc import Iterator

import numpy as np
from rocksdict import Rdict, WriteBatch

from yarrow.container.state.rocksdb.memory import WORKER_MEMORY
from yarrow.container.state.rocksdb.options import database_settings, rocksdb_options, write_options
from yarrow.runtime.config.settings import Settings

KEYS = 5_000_000
#: Cache and write buffers of a process, as the job has them in each slot.
MEMORY = "256 mb"
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


def reduce_pairs(database: Rdict, batches: Iterator[list[int]]) -> int:
    key_bytes, pack = struct.Struct(">q").pack, struct.Struct(">qq").pack
    unpack = struct.Struct(">qq").unpack
    kept = 0
    for batch in batches:
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
    return kept


def half(index: int, records: int, batch: int) -> int:
    """One of the two processes: its half of the keys."""
    gc.disable()
    settings = Settings({"state.backend.rocksdb.memory.fixed-per-slot": MEMORY})
    options = rocksdb_options(database_settings(settings), WORKER_MEMORY.acquire(settings))
    with tempfile.TemporaryDirectory(prefix="bare-rocksdb-") as folder:
        database = Rdict(folder, options)
        waiting = write_options()
        waiting.no_slowdown = False
        database.set_write_options(waiting)
        kept = reduce_pairs(database, batches_of(index, records, batch))
        database.close()
    return kept


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--batch", type=int, default=1024)
    given = arguments.parse_args()
    # Spawned: an open database must not be there when a process forks, and none of the two is the parent's own.
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    processes = [
        context.Process(target=run, args=(results, index, given.records, given.batch)) for index in range(2)
    ]
    for process in processes:
        process.start()
    kept = sum(results.get() for _ in processes)
    for process in processes:
        process.join()
    print(json.dumps({"records": given.records, "kept": kept}))


def run(results: multiprocessing.SimpleQueue[int], index: int, records: int, batch: int) -> None:
    results.put(half(index, records, batch))


if __name__ == "__main__":
    main()
