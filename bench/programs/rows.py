"""Row jobs on Yarrow, parallelism 2 in two worker processes: the keyed running sum in its variants, a chain, a shuffle.

The keyed job is that of the peers: integers -> map -> by key -> running sum -> filter (even sums) -> a sink that
drops them. `--check` takes the results instead of dropping them and prints how many there were.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.datastream.connectors import Sink, SinkWriter, SinkWriterContext
from yarrow.datastream.connectors.number_seq import NumberSequenceSource


@dataclass
class Order:
    """A record of ten fields, as programs have them; the one of the bare loop."""

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


class Dropping(SinkWriter[object]):
    """Takes rows and forgets them."""

    def write(self, rows: Sequence[object], timestamps: Sequence[int | None] | None) -> None:
        pass


class DroppingSink(Sink[object]):
    """For jobs of which only the rate counts."""

    def create_writer(self, context: SinkWriterContext, restored: Sequence[object] = ()) -> Dropping:
        return Dropping()


def declared_pairs(integers: DataStream) -> DataStream:
    """1000 integer keys, with declared types."""
    pairs = integers.map(lambda x: (x % 1000, 1), Types.TUPLE([Types.LONG(), Types.LONG()]))
    sums = pairs.key_by(lambda pair: pair[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return sums.filter(lambda pair: pair[1] % 2 == 0)


def undeclared_pairs(integers: DataStream) -> DataStream:
    """The same without declared types."""
    pairs = integers.map(lambda x: (x % 1000, 1))
    sums = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return sums.filter(lambda pair: pair[1] % 2 == 0)


def string_pairs(integers: DataStream) -> DataStream:
    """2 million distinct string keys."""
    declared = Types.TUPLE([Types.STRING(), Types.LONG()])
    pairs = integers.map(lambda x: (f"key-{x % 2_000_000}", 1), declared)
    sums = pairs.key_by(lambda pair: pair[0], Types.STRING()).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return sums.filter(lambda pair: pair[1] % 2 == 0)


def two_million_keys(integers: DataStream) -> DataStream:
    """2 million distinct integer keys, each after the other in an order without pattern."""
    pairs = integers.map(lambda x: (x * 1_299_709 % 2_000_000, 1), Types.TUPLE([Types.LONG(), Types.LONG()]))
    sums = pairs.key_by(lambda pair: pair[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return sums.filter(lambda pair: pair[1] % 2 == 0)


def random_key(x: int) -> int:
    """One of 5 million keys, uniformly: the splitmix64 finalizer of a number (Steele, Lea, Flood 2014)."""
    z = (x + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return (z ^ (z >> 31)) % 5_000_000


def random_keys(integers: DataStream) -> DataStream:
    """5 million integer keys, drawn uniformly at random."""
    pairs = integers.map(lambda x: (random_key(x), 1), Types.TUPLE([Types.LONG(), Types.LONG()]))
    sums = pairs.key_by(lambda pair: pair[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return sums.filter(lambda pair: pair[1] % 2 == 0)


def add_orders(a: Order, b: Order) -> Order:
    """The newer order with the sum of both amounts."""
    return Order(
        b.id, b.customer, a.amount + b.amount, b.product, b.quantity, b.price, b.currency, b.country,
        b.discount, b.express,
    )  # fmt: skip


def orders(integers: DataStream) -> DataStream:
    """Dataclass records of ten fields, 1000 integer keys."""
    made = integers.map(lambda x: Order(x, x % 1000, 1, "product", 1, 9.5, "EUR", "DE", 0.0, False))
    sums = made.key_by(lambda order: order.customer).reduce(add_orders)
    return sums.filter(lambda order: order.amount % 2 == 0)


def chain(integers: DataStream) -> DataStream:
    """Maps and a filter that share a task: no exchange."""
    return (
        integers.map(lambda x: x + 1).map(lambda x: x * 3).filter(lambda x: x % 2 == 0).map(lambda x: x - 1)
    )


def rebalance(integers: DataStream) -> DataStream:
    """A map, every row to the next subtask in turn, a map."""
    declared = Types.TUPLE([Types.LONG(), Types.LONG()])
    pairs = integers.map(lambda x: (x, 1), declared).rebalance()
    return pairs.map(lambda pair: (pair[1], pair[0]), declared)


def loop(integers: DataStream) -> DataStream:
    """Every row once round a loop, with a map in it."""
    declared = Types.TUPLE([Types.LONG(), Types.LONG()])
    begun = integers.map(lambda x: (x, 1), declared).iterate()
    stepped = begun.map(lambda pair: (pair[0], pair[1] - 1), declared)
    begun.close_with(stepped.filter(lambda pair: pair[1] == 0))
    return stepped


JOBS: dict[str, Callable[[DataStream], DataStream]] = {
    "integers": declared_pairs,
    "undeclared": undeclared_pairs,
    "strings": string_pairs,
    "two-million": two_million_keys,
    "random": random_keys,
    "orders": orders,
    "chain": chain,
    "rebalance": rebalance,
    "loop": loop,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--job", choices=JOBS, default="integers")
    arguments.add_argument("--tcp", action="store_true", help="exchange over TCP with mutual TLS")
    arguments.add_argument("--check", action="store_true", help="take the results and count them")
    arguments.add_argument("--checkpoint", type=float, default=0.0, help="seconds between checkpoints")
    arguments.add_argument("--backend", choices=("hashmap", "rocksdb"), default="hashmap")
    given = arguments.parse_args()

    options = {"parallelism.default": "2", "state.backend.type": given.backend}
    # As much as each process of the bare RocksDB loop has.
    options["state.backend.rocksdb.memory.fixed-per-slot"] = "256 mb"
    folder = tempfile.TemporaryDirectory(prefix="bench-checkpoints-")
    if given.checkpoint:
        options["execution.checkpointing.interval"] = f"{int(given.checkpoint * 1000)} ms"
        options["execution.checkpointing.dir"] = folder.name
    if given.tcp:
        options["taskmanager.data.transport"] = "tcp"
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    numbers = NumberSequenceSource(0, given.records - 1)
    results = JOBS[given.job](env.from_source(numbers, WatermarkStrategy.no_watermarks(), "integers"))
    if given.check:
        with results.execute_and_collect() as collected:
            print(json.dumps({"records": given.records, "kept": sum(1 for _ in collected)}))
        return
    results.sink_to(DroppingSink())
    with folder:
        env.execute(f"bench {given.job}")


if __name__ == "__main__":
    main()
