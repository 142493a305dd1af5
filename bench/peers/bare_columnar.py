"""The limit for columnar programs: two processes, numpy and Arrow kernels, nothing else.

integers -> key x % keys, value 1 -> by key -> sum. Each process makes half of the rows, hashes the key
column to 128 key groups, splits, passes one part by reference and sends the other as Arrow IPC over TCP
loopback; what arrives is summed by pyarrow's group_by, batch by batch, and merged into the totals so far,
known thereby after every batch.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import struct
import threading
from queue import Queue
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

LENGTH = struct.Struct("<I")
KEY_GROUPS = 128
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
Integers = npt.NDArray[np.int64]
Inbox = Queue[Any]


def key_groups(keys: Integers) -> npt.NDArray[np.uint64]:
    """A 64-bit mix of each key, modulo the number of key groups."""
    mixed = keys.astype(np.uint64)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    return mixed % np.uint64(KEY_GROUPS)


class Totals(Protocol):
    """The sum of each key so far."""

    def add(self, keys: pa.Array, sums: pa.Array) -> None: ...

    def total(self) -> int: ...


class DictTotals:
    """A plain dict: the best for few keys, and what a heap state is."""

    def __init__(self) -> None:
        self._sums: dict[int, int] = {}

    def add(self, keys: pa.Array, sums: pa.Array) -> None:
        totals = self._sums
        get = totals.get
        for key, value in zip(keys.to_pylist(), sums.to_pylist(), strict=True):
            totals[key] = get(key, 0) + value

    def total(self) -> int:
        return sum(self._sums.values())


class SortedTotals:
    """Sorted keys with their sums: merging costs a binary search a key, and a copy when keys are new."""

    def __init__(self) -> None:
        self._keys: Integers = np.empty(0, np.int64)
        self._sums: Integers = np.empty(0, np.int64)
        self._new: dict[int, int] = {}

    def add(self, keys: pa.Array, sums: pa.Array) -> None:
        wanted, values = keys.to_numpy(), sums.to_numpy()
        places = np.searchsorted(self._keys, wanted)
        known = np.zeros(len(wanted), bool)
        inside = places < len(self._keys)
        known[inside] = self._keys[places[inside]] == wanted[inside]
        self._sums[places[known]] += values[known]
        if not known.all():
            self._insert(wanted[~known], values[~known])

    def _insert(self, keys: Integers, values: Integers) -> None:
        new = self._new
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            new[key] = new.get(key, 0) + value
        # Merged when they are many: a copy of all keys for each batch of new ones would be quadratic.
        if len(new) * 8 > len(self._keys):
            joined = np.concatenate([self._keys, np.fromiter(new.keys(), np.int64, len(new))])
            sums = np.concatenate([self._sums, np.fromiter(new.values(), np.int64, len(new))])
            order = np.argsort(joined, kind="stable")
            self._keys, self._sums = joined[order], sums[order]
            new.clear()

    def total(self) -> int:
        return int(self._sums.sum()) + sum(self._new.values())


def produce(index: int, rows: int, size: int, keys: int, inbox: Inbox, connection: socket.socket) -> None:
    start, stop = index * rows // 2, (index + 1) * rows // 2
    for low in range(start, stop, size):
        x = np.arange(low, min(low + size, stop), dtype=np.int64)
        key = x % keys
        value = np.ones_like(key)
        second = key_groups(key) >= KEY_GROUPS // 2
        own = second if index else ~second
        batches = [pa.record_batch([key[part], value[part]], schema=SCHEMA) for part in (own, ~own)]
        inbox.put(batches[0])
        data = batches[1].serialize()
        connection.sendall(LENGTH.pack(data.size))
        connection.sendall(data)
    inbox.put(None)
    connection.sendall(LENGTH.pack(0))


def receive(connection: socket.socket, inbox: Inbox) -> None:
    stream = connection.makefile("rb", buffering=1 << 20)
    while length := LENGTH.unpack(stream.read(4))[0]:
        inbox.put(pa.ipc.read_record_batch(pa.py_buffer(stream.read(length)), SCHEMA))
    inbox.put(None)


def consume(inbox: Inbox, totals: Totals) -> int:
    ends = 0
    while ends < 2:
        batch = inbox.get()
        if batch is None:
            ends += 1
            continue
        table = pa.Table.from_batches([batch])
        grouped = table.group_by("key", use_threads=False).aggregate([("value", "sum")])
        totals.add(grouped["key"].combine_chunks(), grouped["value_sum"].combine_chunks())
    return totals.total()


def half(index: int, given: argparse.Namespace, connection: socket.socket) -> int:
    """One of the two processes: its half of the rows, its half of the key groups."""
    pa.set_cpu_count(1)
    inbox: Inbox = Queue(maxsize=8)
    totals = DictTotals() if given.merge == "dict" else SortedTotals()
    work = (index, given.rows, given.batch, given.keys, inbox, connection)
    threads = [
        threading.Thread(target=receive, args=(connection, inbox)),
        threading.Thread(target=produce, args=work),
    ]
    for thread in threads:
        thread.start()
    total = consume(inbox, totals)
    for thread in threads:
        thread.join()
    return total


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    for end in (client, accepted):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    return client, accepted


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("rows", type=int)
    arguments.add_argument("--keys", type=int, default=1000)
    arguments.add_argument("--batch", type=int, default=65_536)
    arguments.add_argument("--merge", choices=["dict", "sorted"], default="dict")
    given = arguments.parse_args()
    first, second = connected_pair()
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def child() -> None:
        first.close()
        results.put(half(1, given, second))

    process = context.Process(target=child)
    process.start()
    second.close()
    total = half(0, given, first) + results.get()
    process.join()
    print(json.dumps({"rows": given.rows, "total": total}))


if __name__ == "__main__":
    main()
