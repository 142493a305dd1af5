"""Sessions of 4 to 5 rows, parallelism 2 in two worker processes, beside the keyed reduce on the same rows.

100 000 rows are one second of event time in each subtask of the source, and both run through the same times. Rows are
out of order by up to the gap of two seconds. The keys come in groups: each key of a group has 4.5 rows within 0.1
seconds, and then none for four seconds. The first argument is the number of rows.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from typing import Any

from bench.programs.rows import DroppingSink
from yarrow.common import Configuration, Duration, Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.window import EventTimeSessionWindows

ROWS_A_SECOND = 100_000
GAP_MS = 2000
#: Rows of a group of keys in one subtask of the source, and its keys: both subtasks together give a key 4.5 rows.
ROWS_OF_GROUP = 10_000
KEYS_OF_GROUP = 2 * ROWS_OF_GROUP * 2 // 9
#: A group comes again after 4.2 seconds.
GROUPS = 42
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class Stamps(TimestampAssigner):
    """Times of numbers, out of order without a pattern."""

    def __init__(self, span: int) -> None:
        """The times of `span` numbers come again for the next ones."""
        self._span = span

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        place = value % self._span
        return int(place * 1000 // ROWS_A_SECOND - place * 7919 % GAP_MS)


def key_of(place: int) -> int:
    """The key of the row at a place of a subtask."""
    group = place // ROWS_OF_GROUP % GROUPS
    return group * KEYS_OF_GROUP + place * 1_299_709 % KEYS_OF_GROUP


def keyed_reduce(rows: KeyedStream) -> DataStream:
    return rows.reduce(lambda a, b: (a[0], a[1] + b[1]))


def sessions(rows: KeyedStream) -> DataStream:
    windows = rows.window(EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS)))
    return windows.reduce(lambda a, b: (a[0], a[1] + b[1]))


JOBS: dict[str, Callable[[KeyedStream], DataStream]] = {"keyed-reduce": keyed_reduce, "sessions": sessions}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--job", choices=JOBS, default="sessions")
    arguments.add_argument("--backend", choices=("hashmap", "rocksdb"), default="hashmap")
    given = arguments.parse_args()

    with tempfile.TemporaryDirectory(prefix="bench-checkpoints-") as folder:
        options = {
            "parallelism.default": "2",
            "state.backend.type": given.backend,
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": folder,
        }
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
        span = (given.records + 1) // 2
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(GAP_MS))
        numbers = env.from_source(
            NumberSequenceSource(0, given.records - 1),
            strategy.with_timestamp_assigner(Stamps(span)),
            "integers",
        )
        rows = numbers.map(lambda x: (key_of(x % span), 1), PAIR)
        JOBS[given.job](rows.key_by(lambda row: row[0], Types.LONG())).sink_to(DroppingSink())
        env.execute(f"bench {given.job}")


if __name__ == "__main__":
    main()
