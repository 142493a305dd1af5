"""Small figures that the design notes quote: classes by name or by value, compact placements, the key index.

    python -m bench.design_numbers

Prints one JSON line each. Times are CPU times of this process, the best of several tries, so that other work on the
machine disturbs them little; sizes do not depend on the machine.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass

import cloudpickle
import msgspec
import numpy as np
import pyarrow as pa

from yarrow.container.operators.columnar.vectorized_index import ColumnIndex, ObjectIndex, WordIndex
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.rpc.messages import VertexPlacement

SUBTASKS = 1000
BATCH_ROWS = 65_536
BATCHES = 10


@dataclass
class Order:
    """A record whose class is the main program's."""

    id: int
    customer: int
    amount: int
    product: str
    quantity: int
    price: float


def best(work: Callable[[], object], tries: int = 7) -> float:
    """The least CPU seconds of several tries."""
    seconds = []
    for _ in range(tries):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


def classes() -> dict[str, object]:
    """A batch of records and a single one, with the class by name (pickle) and by value (cloudpickle)."""
    rows = [Order(number, number % 1000, 1, "product", 1, 9.5) for number in range(4096)]
    found: dict[str, object] = {"case": "class of a record"}
    for name, dumps in (("by_name", lambda value: pickle.dumps(value, 5)), ("by_value", cloudpickle.dumps)):
        found[name] = {
            "bytes_of_one": len(dumps(rows[0])),
            "us_of_one": round(best(lambda dumps=dumps: [dumps(rows[0]) for _ in range(200)]) * 5000, 1),  # type: ignore[misc]
            "us_a_record_of_4096": round(best(lambda dumps=dumps: dumps(rows)) / 4096 * 1e6, 2),  # type: ignore[misc]
        }
    return found


def placements() -> dict[str, object]:
    """Where the subtasks of one vertex run, as sent and as the list it stands for."""
    compact = VertexPlacement(
        vertex_id=JobVertexID("b" * 32),
        graph_id="a" * 32,
        workers=tuple(number % 100 for number in range(SUBTASKS)),
        attempts=(0,) * SUBTASKS,
    )
    return {
        "case": f"placements of {SUBTASKS} subtasks",
        "bytes_as_sent": len(msgspec.msgpack.encode(compact)),
        "bytes_as_list": len(msgspec.msgpack.encode(compact.subtasks)),
    }


def rate(index: ColumnIndex, batches: list[pa.Array]) -> float:
    """Million rows a second whose keys are known."""

    def work() -> None:
        for batch in batches:
            index.slots(batch)

    work()
    return round(BATCHES * BATCH_ROWS / best(work, 5) / 1e6, 1)


def key_index(keys: int) -> dict[str, object]:
    """Both indexes on int64 keys, and a dict asked row by row."""
    random = np.random.default_rng(1)
    batches = [pa.array(random.integers(0, keys, BATCH_ROWS)) for _ in range(BATCHES)]
    known: dict[int, int] = {}

    def loop() -> None:
        for batch in batches:
            for key in batch.to_pylist():
                if key not in known:
                    known[key] = len(known)

    loop()
    return {
        "case": f"index of {keys} keys, {BATCH_ROWS} rows a batch",
        "unit": "million rows/s",
        "words": rate(WordIndex(), batches),
        "objects": rate(ObjectIndex(pa.int64()), batches),
        "dict_row_by_row": round(BATCHES * BATCH_ROWS / best(loop, 5) / 1e6, 1),
    }


def main() -> None:
    """Prints all of them."""
    for line in (classes(), placements(), key_index(1000), key_index(1_000_000)):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
