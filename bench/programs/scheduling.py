"""Scheduling of many subtasks on fake TaskExecutors over gRPC with mutual TLS, and of half as many.

Prints the seconds from submission until all run as the value; `times_half` is how much longer that is than half took.
Started from the root of the checkout as `python -m bench.programs.scheduling`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile

from bench.scheduling import schedule

MOST_TIMES_HALF = 3.0
#: A cluster that has not got all to run by then never will.
GIVE_UP_SECONDS = 120


async def seconds(subtasks: int, transport: str, folder: str) -> float:
    """One fresh cluster with ten slots a TaskExecutor."""
    return await asyncio.wait_for(schedule(subtasks, 10, transport, folder), GIVE_UP_SECONDS)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("subtasks", type=int)
    arguments.add_argument("--transport", choices=("inproc", "grpc"), default="grpc")
    given = arguments.parse_args()
    took = []
    # The first one imports and warms up.
    for subtasks in (given.subtasks // 4, given.subtasks // 2, given.subtasks):
        with tempfile.TemporaryDirectory(prefix="yarrow-bench-") as folder:
            took.append(asyncio.run(seconds(subtasks, given.transport, folder)))
    _, half, whole = took
    times = whole / half
    failed = [f"{times:.1f} times as long as half of them"] if times > MOST_TIMES_HALF else []
    result = {
        "value": round(whole, 3),
        "unit": "s",
        "seconds_half": round(half, 3),
        "times_half": round(times, 2),
    }
    print(json.dumps(result | {"failed": failed}))


if __name__ == "__main__":
    main()
