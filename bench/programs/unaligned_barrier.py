"""How long unaligned checkpoints take through a job whose sink is ten times too slow, parallelism 2.

The size is the seconds that are looked at; the value printed is the longest end-to-end duration of a checkpoint in
seconds. Started as `python -m bench.programs.unaligned_barrier` from the root of the checkout.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from typing import Any

from bench.programs.checkpoint_reports import CheckpointReports, cancel, wait_until
from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import SinkFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy

#: Rows a second that the source brings; the two sinks take a tenth of it.
RATE = 4000
SECONDS_A_ROW = 2 * 10 / RATE
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class SlowSink(SinkFunction[Any]):
    """Takes its time for each record, in a thread of its own as functions that wait ask for."""

    blocking = True

    def invoke(self, value: Any, context: Any) -> None:
        time.sleep(SECONDS_A_ROW)


def measure(seconds: int) -> None:
    """The job in this process's embedded cluster."""
    with tempfile.TemporaryDirectory(prefix="bench-unaligned-") as folder:
        options = {
            "parallelism.default": "2",
            "execution.checkpointing.interval": "500 ms",
            "execution.checkpointing.dir": folder,
            "execution.checkpointing.unaligned.enabled": "true",
            "web.checkpoints.history": "1000",
        }
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
        source = DataGeneratorSource(
            lambda index: (index % 1000, 1), 1 << 40, RateLimiterStrategy.per_second(RATE), PAIR
        )
        rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows")
        sums = rows.key_by(lambda row: row[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
        sums.rebalance().add_sink(SlowSink()).name("slow sink")
        client: Any = env.execute_async("bench unaligned")
        reports = CheckpointReports(client)
        # Buffers are full before anything counts.
        time.sleep(5)
        before = reports.completed
        time.sleep(seconds)
        wait_until(lambda: reports.completed > before, 60, "a checkpoint")
        durations = [entry["end_to_end_duration"] / 1000 for entry in reports.history()[before:]]
        stored = max(entry["persisted_data"] for entry in reports.history())
        cancel(client)
    result = {"value": round(max(durations), 3), "unit": "s", "checkpoints": len(durations)}
    print(json.dumps(result | {"persisted_bytes": stored, "failed": []}))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("seconds", type=int)
    measure(arguments.parse_args().seconds)


if __name__ == "__main__":
    main()
