"""The keyed row job on Bytewax: integers -> (x % 1000, 1) -> by key -> running sum -> filter (even sums).

`--workers` are threads of one process, as `bytewax.run -w`; `--processes` are processes joined over TCP.
The source hands over batches, as its guide advises for rate. Keys are strings, because Bytewax takes no
others.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
from collections.abc import Iterable

import bytewax.operators as op

# What `python -m bytewax.run` and its testing form call: these take a flow instead of a module path.
from bytewax._bytewax import cluster_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.run import cli_main

BATCH = 1000


class Integers(StatelessSourcePartition[int]):
    def __init__(self, start: int, stop: int) -> None:
        self._next = start
        self._stop = stop

    def next_batch(self) -> Iterable[int]:
        if self._next >= self._stop:
            raise StopIteration
        batch = range(self._next, min(self._next + BATCH, self._stop))
        self._next = batch.stop
        return batch


class IntegerSource(DynamicSource[int]):
    def __init__(self, records: int) -> None:
        self._records = records

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Integers:
        return Integers(
            worker_index * self._records // worker_count, (worker_index + 1) * self._records // worker_count
        )


class Discard(StatelessSinkPartition[tuple[str, int]]):
    def write_batch(self, items: list[tuple[str, int]]) -> None:
        pass


class DiscardingSink(DynamicSink[tuple[str, int]]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Discard:
        return Discard()


def add(total: int | None, value: int) -> tuple[int, int]:
    total = value if total is None else total + value
    return total, total


def job(records: int) -> Dataflow:
    flow = Dataflow("keyed_sum")
    integers = op.input("integers", flow, IntegerSource(records))
    pairs = op.map("pair", integers, lambda x: (str(x % 1000), 1))
    sums = op.stateful_map("sum", pairs, add)
    even = op.filter("even", sums, lambda pair: pair[1] % 2 == 0)
    op.output("discard", even, DiscardingSink())
    return flow


def free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{end.getsockname()[1]}" for end in sockets]
    for end in sockets:
        end.close()
    return addresses


def run_process(index: int, records: int, addresses: list[str]) -> None:
    cluster_main(job(records), addresses, index, worker_count_per_proc=1)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--workers", type=int, default=1)
    arguments.add_argument("--processes", type=int, default=1)
    given = arguments.parse_args()
    if given.processes == 1:
        cli_main(job(given.records), workers_per_process=given.workers)
        return
    addresses = free_addresses(given.processes)
    processes = [
        multiprocessing.Process(target=run_process, args=(index, given.records, addresses))
        for index in range(given.processes)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
