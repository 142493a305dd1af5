"""Asynchronous calls as programs of asyncio make them: two processes, each with a task of its own for each call.

Each call waits a millisecond. Up to 1000 calls of a process are under way, which a semaphore counts. There are no
timeouts, no order, no second thread and no state.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from concurrent.futures import ProcessPoolExecutor

PROCESSES = 2
CAPACITY = 1000


async def call(value: int) -> list[int]:
    """Gives the record back after a millisecond."""
    await asyncio.sleep(0.001)
    return [value]


async def calls(begin: int, end: int) -> int:
    """The number of results for the integers from `begin` to `end`."""
    free, kept = asyncio.Semaphore(CAPACITY), 0

    async def one(value: int) -> None:
        nonlocal kept
        try:
            found = await call(value)
            kept += len(found)
        finally:
            free.release()

    async with asyncio.TaskGroup() as group:
        for value in range(begin, end):
            await free.acquire()
            group.create_task(one(value))
    return kept


def run(begin: int, end: int) -> int:
    """The same, in a process of its own."""
    return asyncio.run(calls(begin, end))


def main() -> None:
    """Runs over so many integers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=int)
    records = parser.parse_args().records
    begins = [records * part // PROCESSES for part in range(PROCESSES)]
    ends = [*begins[1:], records]
    with ProcessPoolExecutor(PROCESSES) as processes:
        kept = sum(processes.map(run, begins, ends))
    print(json.dumps({"records": records, "kept": kept}))


if __name__ == "__main__":
    main()
