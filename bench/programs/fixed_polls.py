"""Sources on Yarrow whose polls cost something by themselves, against a bare loop that makes the same polls in full.

Prints the least share of the bare loop's rate that a job reached, over polls of 0, 1, 10 and 100 ms, with the source
in the worker's common thread and in one of its own. The reader measures, from its first poll to its end; start-up of
cluster and job do not count. The argument is the seconds that each bare loop takes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yarrow.common import Configuration, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Source,
    SourceReader,
    SourceRecords,
    SourceSplit,
)
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator, unassigned_or

POLLS_MS = (0, 1, 10, 100)
#: Rows of the largest poll that the engine makes.
FULL = 2048
#: Rows a second of the bare loop without a cost of polls, roughly: only for how many rows a run has.
ROUGHLY = 4_000_000
WANTED = 0.9


@dataclass
class Numbers(SourceSplit):
    """From `next` to `stop`."""

    next: int
    stop: int

    @property
    def split_id(self) -> str:
        return "numbers"


class FixedCost(Source[Any, Numbers]):
    """Every poll waits, whatever it gives, as for a request."""

    boundedness = Boundedness.BOUNDED

    def __init__(self, seconds: float, rows: int, report: str, *, blocking: bool) -> None:
        self.seconds = seconds
        self.rows = rows
        self.report = report
        self.blocking = blocking

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        return OnRequestEnumerator(context, unassigned_or(checkpoint, [Numbers(0, self.rows)]))

    def create_reader(self, context: Any) -> FixedCostReader:
        return FixedCostReader(self, context)


class FixedCostReader(SourceReader[Any, Numbers]):
    """Writes down how long everything took from its first poll to its end."""

    def __init__(self, source: FixedCost, context: Any) -> None:
        self._source = source
        self._context = context
        self._split: Numbers | None = None
        self._began = 0.0

    def start(self) -> None:
        self._context.request_split()

    def add_splits(self, splits: Sequence[Numbers]) -> None:
        (self._split,) = splits

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        if self._split is None:
            return NothingAvailable()
        self._began = self._began or time.perf_counter()
        if self._split.next == self._split.stop:
            Path(self._source.report).write_text(str(time.perf_counter() - self._began))
            return None
        return SourceRecords(polled(self._split, self._source.seconds, max_rows), split_id="numbers")

    def snapshot_state(self, checkpoint_id: int) -> list[Numbers]:
        return [] if self._split is None else [self._split]


def polled(split: Numbers, seconds: float, max_rows: int) -> list[tuple[int, str]]:
    """One poll: the wait, and rows made one by one."""
    if seconds:
        time.sleep(seconds)
    first, split.next = split.next, min(split.stop, split.next + max_rows)
    return [(number, "row") for number in range(first, split.next)]


def doubled(row: tuple[int, str]) -> tuple[int, str]:
    """The job's map."""
    return row[0] * 2, row[1]


def wanted(row: tuple[int, str]) -> bool:
    """The job's filter: nothing."""
    return row[0] < 0


def bare_seconds(seconds: float, rows: int) -> float:
    """The same polls with full batches, map and filter, in a loop."""
    split = Numbers(0, rows)
    kept = []
    began = time.perf_counter()
    while split.next < split.stop:
        for row in polled(split, seconds, FULL):
            made = doubled(row)
            if wanted(made):
                kept.append(made)
    return time.perf_counter() - began


def job_seconds(seconds: float, rows: int, *, blocking: bool) -> float:
    """The job on an embedded cluster."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "seconds"
        env = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict({"parallelism.default": "1"})
        )
        source = FixedCost(seconds, rows, str(report), blocking=blocking)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "fixed cost")
        stream.map(doubled).filter(wanted).print()
        env.execute("bench fixed polls")
        return float(report.read_text())


def main() -> None:
    """Bare loop and jobs in turn; the bare loop before and behind, since the machine's pace changes."""
    length = float(sys.argv[1])
    shares: dict[str, float] = {}
    for cost in POLLS_MS:
        seconds = cost / 1000
        rows = int(length / (seconds / FULL + 1 / ROUGHLY))
        before = bare_seconds(seconds, rows)
        taken = {blocking: job_seconds(seconds, rows, blocking=blocking) for blocking in (False, True)}
        bare = (before + bare_seconds(seconds, rows)) / 2
        for blocking, spent in taken.items():
            shares[f"{cost} ms{', blocking' if blocking else ''}"] = round(bare / spent, 3)
    failed = [f"{name}: {share} of the bare loop" for name, share in shares.items() if share < WANTED]
    print(json.dumps({"value": min(shares.values()), "unit": "x", "shares": shares, "failed": failed}))


if __name__ == "__main__":
    main()
