"""Operators of event time on columns, parallelism 2 in two worker processes, beside the columnar keyed sum.

Batches of 65 536 rows of key, kind, value and time. 100 000 rows are one second of event time, out of order by up to
two seconds, and both readers run through the same times. Of 100 rows `--percent` have the kind 0, as many have 1, and
as many 2. Checkpoints come each second. The first argument is the number of rows.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from bench.programs.columnar import DroppingSink, NumberColumns
from bench.programs.operators import DISORDER_MS, PARALLELISM, ROWS_A_SECOND, checkpointed, with_disorder
from yarrow.cep import CEP, Pattern
from yarrow.common import Time, Types, WatermarkStrategy
from yarrow.datastream import ColumnarKeyedStream, DataStream
from yarrow.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from yarrow.table.expressions import col

TIMED: Final = pa.schema([("k", pa.int64()), ("kind", pa.int64()), ("v", pa.int64()), ("at", pa.int64())])


class Timed:
    """The map: key, kind, value and time of each number."""

    def __init__(self, keys: int, percent: int, share: int, *, apart: bool) -> None:
        """`share`: the numbers of one reader. `apart`: as StampsOfReader has it."""
        self._keys, self._percent, self._share, self._apart = keys, percent, share, apart

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        x = batch["x"].to_numpy()
        at = x % self._share * PARALLELISM * 1000 // ROWS_A_SECOND - x * 7919 % DISORDER_MS
        if self._apart:
            at += x // self._share
        return pa.record_batch(
            [x * 1_299_709 % self._keys, kind_of(x, self._percent), np.ones_like(x), at], schema=TIMED
        )


def kind_of(x: np.ndarray, percent: int) -> np.ndarray:
    """0, 1 and 2 for `percent` of all numbers each, without a pattern, and 3 for the others. int64 in and out."""
    kinds: np.ndarray = np.minimum(x * 2_654_435_761 % 1_000_003 % 100 // percent, 3)
    return kinds


def keyed_sum(rows: ColumnarKeyedStream) -> DataStream:
    return rows.sum("v", "total")


def tumbling(rows: ColumnarKeyedStream) -> DataStream:
    return rows.window(TumblingEventTimeWindows.of(Time.seconds(10))).sum("v")


def sliding_minute(rows: ColumnarKeyedStream) -> DataStream:
    return rows.window(SlidingEventTimeWindows.of(Time.seconds(60), Time.seconds(1))).sum("v")


def pattern(rows: ColumnarKeyedStream) -> DataStream:
    steps = Pattern.begin("a").where(col("kind") == 0)
    steps = steps.followed_by("b").where(col("kind") == 1).followed_by("c").where(col("kind") == 2)
    return CEP.pattern(rows, steps.within(Time.seconds(10))).select(lambda match: 1, output_type=Types.LONG())


JOBS: dict[str, Callable[[ColumnarKeyedStream], DataStream]] = {
    "keyed-sum": keyed_sum,
    "tumbling": tumbling,
    "sliding-minute": sliding_minute,
    "pattern": pattern,
}
INTERVAL_JOIN: Final = "interval-join"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("rows", type=int)
    arguments.add_argument("--job", choices=[*JOBS, INTERVAL_JOIN], default="tumbling")
    arguments.add_argument("--keys", type=int, default=1000)
    arguments.add_argument("--percent", type=int, default=10)
    given = arguments.parse_args()

    with tempfile.TemporaryDirectory(prefix="bench-checkpoints-") as folder:
        env, strategy = checkpointed(folder), with_disorder()

        def keyed(count: int) -> ColumnarKeyedStream:
            numbers = env.from_source(
                NumberColumns(count, 65_536), WatermarkStrategy.no_watermarks(), "numbers"
            )
            share, apart = max(1, count // PARALLELISM), given.job == INTERVAL_JOIN
            timed = Timed(given.keys, given.percent, share, apart=apart)
            columns = numbers.map_batches(timed, TIMED)
            return columns.assign_timestamps_and_watermarks(strategy.with_timestamp_column("at")).key_by("k")

        if given.job == INTERVAL_JOIN:
            # Each row meets one row: that of the other stream which was made of the same number.
            pairs = keyed(given.rows // 2).interval_join(keyed(given.rows // 2))
            results = pairs.between(Time.seconds(0), Time.seconds(0)).to_columns()
        else:
            results = JOBS[given.job](keyed(given.rows))
        results.sink_to(DroppingSink())
        env.execute(f"bench columns, {given.job}")


if __name__ == "__main__":
    main()
