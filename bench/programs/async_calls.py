"""Asynchronous calls on Yarrow, parallelism 1: integers -> a call that waits one turn of the loop -> a sink that drops.

The answer takes no time, so the rate is what the engine costs. Up to 100 records wait at a time. `--check` takes the
results instead of dropping them, and prints how many there were.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from bench.programs.rows import DroppingSink
from yarrow.common import Duration, Types, WatermarkStrategy
from yarrow.datastream import AsyncDataStream, StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.functions import AsyncFunction

CAPACITY = 100


class AfterATurn(AsyncFunction[int, int]):
    """Gives the record back after a turn of the loop."""

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0)
        return [value]


def main() -> None:
    """Runs the job over so many integers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=int)
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    source = NumberSequenceSource(1, arguments.records)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "integers", Types.LONG())
    wait = AsyncDataStream.ordered_wait if arguments.ordered else AsyncDataStream.unordered_wait
    answers = wait(numbers, AfterATurn(), Duration.of_minutes(1), CAPACITY, Types.LONG())
    if arguments.check:
        with answers.execute_and_collect() as found:
            print(json.dumps({"records": arguments.records, "kept": len(set(found))}))
    else:
        answers.sink_to(DroppingSink())
        env.execute("asynchronous calls")


if __name__ == "__main__":
    main()
