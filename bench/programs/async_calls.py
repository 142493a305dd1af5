"""Asynchronous calls on Yarrow: integers -> a call that waits a millisecond -> a sink that drops. Parallelism 2.

Up to 1000 records wait at a time, so the rate is what the engine costs. `--check` takes the results instead of dropping
them, and prints how many there were. The job cuts a checkpoint each second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile

from bench.programs.rows import DroppingSink
from yarrow.common import Configuration, Duration, Types, WatermarkStrategy
from yarrow.datastream import AsyncDataStream, StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.functions import AsyncFunction

CAPACITY = 1000


class AfterAMillisecond(AsyncFunction[int, int]):
    """Gives the record back after a millisecond."""

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0.001)
        return [value]


def main() -> None:
    """Runs the job over so many integers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=int)
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-checkpoints-") as folder:
        run(arguments, folder)


def run(arguments: argparse.Namespace, folder: str) -> None:
    """Runs the job with checkpoints in that folder."""
    options = {"execution.checkpointing.interval": "1 s", "execution.checkpointing.dir": folder}
    configuration = Configuration.from_dict(options)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    source = NumberSequenceSource(1, arguments.records)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "integers", Types.LONG())
    wait = AsyncDataStream.ordered_wait if arguments.ordered else AsyncDataStream.unordered_wait
    answers = wait(numbers, AfterAMillisecond(), Duration.of_minutes(1), CAPACITY, Types.LONG())
    if arguments.check:
        with answers.execute_and_collect() as found:
            print(json.dumps({"records": arguments.records, "kept": len(set(found))}))
    else:
        answers.sink_to(DroppingSink())
        env.execute("asynchronous calls")


if __name__ == "__main__":
    main()
