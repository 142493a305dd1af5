"""The limit for asynchronous calls in this language: an event loop and 100 coroutines that share an iterator.

Each waits one turn of the loop for each integer. There are no timeouts, no order, no second thread and no state.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator

COROUTINES = 100


async def call(value: int) -> list[int]:
    """Gives the record back after a turn of the loop."""
    await asyncio.sleep(0)
    return [value]


async def work(values: Iterator[int], kept: list[int]) -> None:
    """Calls for one value after another; counts the results."""
    for value in values:
        found = await call(value)
        kept[0] += len(found)


async def run(records: int) -> int:
    """The number of results."""
    values, kept = iter(range(records)), [0]
    await asyncio.gather(*(work(values, kept) for _ in range(COROUTINES)))
    return kept[0]


def main() -> None:
    """Runs over so many integers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=int)
    records = parser.parse_args().records
    print(json.dumps({"records": records, "kept": asyncio.run(run(records))}))


if __name__ == "__main__":
    main()
