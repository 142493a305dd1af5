"""The limit for row programs in this language: two processes, hand-written loops, nothing else.

integers -> (x % 1000, 1) -> by key -> running sum -> filter (even sums). Each process has a source thread
(map inlined, routing by a cache of keys or their checksum), a reducer thread and a thread that receives;
half of the rows cross as pickled batches over TCP loopback, the other half pass by reference. There are no
metrics, checkpoints or credit: what an engine keeps of this rate is its worth.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import pickle
import socket
import struct
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from queue import Queue
from typing import Any

LENGTH = struct.Struct("<I")
Batch = list[Any]
#: None is the end of one sender's rows.
Inbox = Queue[Batch | None]


@dataclass
class Order:
    """A record of ten fields, as programs have them; every variant of this job builds the same one."""

    id: int
    customer: int
    amount: int
    product: str
    quantity: int
    price: float
    currency: str
    country: str
    discount: float
    express: bool


def route(key: int) -> bool:
    """Whether the second process owns the key."""
    return bool(zlib.crc32(key.to_bytes(8, "little")) & 1)


class Output:
    """Hands finished batches on: to the own inbox by reference, to the other process pickled."""

    def __init__(self, index: int, inbox: Inbox, connection: socket.socket) -> None:
        self._index = index
        self._inbox = inbox
        self._connection = connection

    def emit(self, of_first: Batch, of_second: Batch) -> None:
        own, other = (of_second, of_first) if self._index else (of_first, of_second)
        self._inbox.put(own)
        frame = pickle.dumps(other, 5)
        self._connection.sendall(LENGTH.pack(len(frame)) + frame)

    def end(self) -> None:
        self._inbox.put(None)
        self._connection.sendall(LENGTH.pack(0))


def source_of_integers(start: int, stop: int, size: int, output: Output) -> None:
    owner: dict[int, bool] = {}
    for low in range(start, stop, size):
        first: Batch = []
        second: Batch = []
        to_first, to_second = first.append, second.append
        for x in range(low, min(low + size, stop)):
            key = x % 1000
            try:
                (to_second if owner[key] else to_first)((key, 1))
            except KeyError:
                owner[key] = route(key)
                (to_second if owner[key] else to_first)((key, 1))
        output.emit(first, second)
    output.end()


def source_of_strings(start: int, stop: int, size: int, output: Output) -> None:
    # A cache of 2 M keys costs more than the checksum of one (1.0 against 1.4 M records/s): there is none.
    checksum = zlib.crc32
    for low in range(start, stop, size):
        first: Batch = []
        second: Batch = []
        to_first, to_second = first.append, second.append
        for x in range(low, min(low + size, stop)):
            key = f"key-{x % 2_000_000}"
            (to_second if checksum(key.encode()) & 1 else to_first)((key, 1))
        output.emit(first, second)
    output.end()


def source_of_orders(start: int, stop: int, size: int, output: Output) -> None:
    owner: dict[int, bool] = {}
    for low in range(start, stop, size):
        first: Batch = []
        second: Batch = []
        to_first, to_second = first.append, second.append
        for x in range(low, min(low + size, stop)):
            key = x % 1000
            order = Order(x, key, 1, "product", 1, 9.5, "EUR", "DE", 0.0, False)
            try:
                (to_second if owner[key] else to_first)(order)
            except KeyError:
                owner[key] = route(key)
                (to_second if owner[key] else to_first)(order)
        output.emit(first, second)
    output.end()


def reduce_pairs(inbox: Inbox) -> int:
    sums: dict[int | str, int] = {}
    get = sums.get
    kept = 0
    ends = 0
    while ends < 2:
        batch = inbox.get()
        if batch is None:
            ends += 1
            continue
        out: Batch = []
        keep = out.append
        for key, value in batch:
            total = get(key, 0) + value
            sums[key] = total
            if not total & 1:
                keep((key, total))
        kept += len(out)
    return kept


def reduce_orders(inbox: Inbox) -> int:
    sums: dict[int, Order] = {}
    get = sums.get
    kept = 0
    ends = 0
    while ends < 2:
        batch = inbox.get()
        if batch is None:
            ends += 1
            continue
        out: Batch = []
        keep = out.append
        for b in batch:
            key = b.customer
            a = get(key)
            if a is not None:
                b = Order(b.id, key, a.amount + b.amount, b.product, b.quantity, b.price, b.currency,
                          b.country, b.discount, b.express)  # fmt: skip
            sums[key] = b
            if not b.amount & 1:
                keep(b)
        kept += len(out)
    return kept


VARIANTS: dict[str, tuple[Callable[[int, int, int, Output], None], Callable[[Inbox], int]]] = {
    "integers": (source_of_integers, reduce_pairs),
    "strings": (source_of_strings, reduce_pairs),
    "orders": (source_of_orders, reduce_orders),
}


def receive(connection: socket.socket, inbox: Inbox) -> None:
    stream = connection.makefile("rb", buffering=1 << 20)
    while length := LENGTH.unpack(stream.read(4))[0]:
        inbox.put(pickle.loads(stream.read(length)))
    inbox.put(None)


def half(index: int, variant: str, records: int, batch: int, connection: socket.socket) -> int:
    """One of the two processes: its half of the integers, its half of the keys."""
    gc.disable()
    source, reduce = VARIANTS[variant]
    inbox: Inbox = Queue(maxsize=8)
    start, stop = index * records // 2, (index + 1) * records // 2
    output = Output(index, inbox, connection)
    threads = [
        threading.Thread(target=receive, args=(connection, inbox)),
        threading.Thread(target=source, args=(start, stop, batch, output)),
    ]
    for thread in threads:
        thread.start()
    kept = reduce(inbox)
    for thread in threads:
        thread.join()
    return kept


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    for end in (client, accepted):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return client, accepted


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--variant", choices=VARIANTS, default="integers")
    arguments.add_argument("--batch", type=int, default=8192)
    given = arguments.parse_args()
    first, second = connected_pair()
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def child() -> None:
        first.close()
        results.put(half(1, given.variant, given.records, given.batch, second))

    process = context.Process(target=child)
    process.start()
    second.close()
    kept = half(0, given.variant, given.records, given.batch, first) + results.get()
    process.join()
    print(json.dumps({"records": given.records, "kept": kept}))


if __name__ == "__main__":
    main()
