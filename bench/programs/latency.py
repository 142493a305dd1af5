"""Latency of the keyed job on Yarrow at a fixed rate: from the stamp at the source to the sink behind the reduce.

Parallelism 2 in two worker processes; the rate is kept by DataGeneratorSource, and the buffer timeout is 10 ms. Prints
p99 in milliseconds as the value, beside it p50, p95 and the largest; `from_schedule` counts from the moment at which
the rate would have had the record instead, so that records made late because the source was held up count in full.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors import Sink, SinkWriter, SinkWriterContext
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy

#: Width of a histogram's bucket and the last one, which holds everything later.
BUCKET_NS = 50_000
BUCKETS = 100_000
#: key, sum, stamp at the source (ns), index of the record
RECORD = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()])


def stamped(index: int) -> tuple[int, int, int, int]:
    """A record as the source makes it."""
    return index % 1000, 1, time.perf_counter_ns(), index


class LatencyWriter(SinkWriter[tuple[int, int, int, int]]):
    """Counts latencies by bucket, and leaves the counts in a file at the end."""

    def __init__(self, file: Path, records: int, rate: float, warm_up: float, readers: int) -> None:
        self._file = file
        self._half = records // readers
        self._period = 1e9 * readers / rate
        #: Index within its reader from which on a record counts.
        self._first = int(warm_up * rate / readers)
        self._counts = [0] * (BUCKETS + 1)
        self._scheduled = [0] * (BUCKETS + 1)
        #: Of each reader the moment at which its record 0 was due: the earliest that any record shows.
        self._due = [float("inf")] * readers

    def write(
        self, rows: Sequence[tuple[int, int, int, int]], timestamps: Sequence[int | None] | None
    ) -> None:
        now = time.perf_counter_ns()
        half, period, first, due = self._half, self._period, self._first, self._due
        counts, scheduled = self._counts, self._scheduled
        for _, _, stamp, index in rows:
            reader, number = divmod(index, half)
            start = stamp - number * period
            if start < due[reader]:
                due[reader] = start
            if number >= first:
                counts[min((now - stamp) // BUCKET_NS, BUCKETS)] += 1
                scheduled[min(int(now - due[reader] - number * period) // BUCKET_NS, BUCKETS)] += 1

    def close(self) -> None:
        self._file.write_text(json.dumps([self._counts, self._scheduled]))


class LatencySink(Sink[tuple[int, int, int, int]]):
    """Leaves one file of counts a subtask in a folder."""

    def __init__(self, folder: str, records: int, rate: float, warm_up: float) -> None:
        self._settings = folder, records, rate, warm_up

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> LatencyWriter:
        folder, records, rate, warm_up = self._settings
        file = Path(folder, f"{context.subtask_index}.json")
        return LatencyWriter(file, records, rate, warm_up, context.parallelism)


def percentiles(histograms: list[list[int]]) -> dict[str, float]:
    """In milliseconds, of several histograms together; upper edges of buckets."""
    counts = [sum(column) for column in zip(*histograms, strict=True)]
    total = sum(counts)
    found = {}
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)):
        seen = 0
        for bucket, count in enumerate(counts):
            seen += count
            if seen >= share * total:
                found[name] = round((bucket + 1) * BUCKET_NS / 1e6, 2)
                break
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("seconds", type=int)
    arguments.add_argument("--rate", type=int, default=200_000)
    arguments.add_argument(
        "--warm-up", type=float, default=4.0, help="seconds at the start that do not count"
    )
    given = arguments.parse_args()

    records = int(given.rate * (given.seconds + given.warm_up)) // 2 * 2
    options = {"parallelism.default": "2", "execution.buffer-timeout.interval": "10 ms"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    source = DataGeneratorSource(stamped, records, RateLimiterStrategy.per_second(given.rate), RECORD)
    with tempfile.TemporaryDirectory(prefix="yarrow-bench-") as folder:
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "stamped")
        sums = stream.key_by(lambda row: row[0], Types.LONG()).reduce(
            lambda a, b: (a[0], a[1] + b[1], b[2], b[3])
        )
        even = sums.filter(lambda row: row[1] % 2 == 0)
        even.sink_to(LatencySink(folder, records, given.rate, given.warm_up))
        started = time.perf_counter()
        env.execute("bench latency")
        took = time.perf_counter() - started
        found = [json.loads(Path(folder, name).read_text()) for name in sorted(os.listdir(folder))]
    latencies = percentiles([counts for counts, _ in found])
    # A job that took much longer than the records need has not kept the rate.
    kept = took < records / given.rate + 3.0
    print(
        json.dumps(
            {
                "value": latencies["p99"],
                "unit": "ms",
                **latencies,
                "from_schedule": percentiles([scheduled for _, scheduled in found]),
                "records": sum(sum(counts) for counts, _ in found),
                "failed": [] if kept else [f"the rate was not kept: {records} records took {took:.1f} s"],
            }
        )
    )


if __name__ == "__main__":
    main()
