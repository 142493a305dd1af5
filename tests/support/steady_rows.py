"""A job that runs under faults of a real cluster, and the output it must have.

It counts numbered rows at a steady rate by key, into files of a FileSink. No fault, however long, finds the job
at its end or standing still. A second pipeline without an exchange writes other rows as they come: a fault of
one of its subtasks does not concern the other subtasks.

Owner: `build_job` on the client, readers on their task's thread, `SteadyOutput` wherever the files can be read. Near
its end a split gets slower and slower until the file `go` exists; then it brings the rest at once.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.restored_state import TellingCounting, tell_splits
from yarrow.common.serialization import Encoder
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.connectors.base import (
    NothingAvailable,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
)
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import BucketAssigner, OutputFileConfig, RollingPolicy
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.fs.registry import file_system_for
from yarrow.testing.gated_source import GatedSource, GatedSplit, key_of, row_of

#: Rows of a split; at full rate they last for 75 seconds.
ROWS, SPLITS, KEYS = 15_000, 2, 24
#: Rows a second and split.
RATE = 200.0
#: Seconds between two readings, and the part of the rest that is brought in each once a split is near its end.
_PAUSE, _PART = 0.05, 0.002
_TAG, _APART_TAG = "n", "a"
#: Uids of the source with the exchange and of the operator behind it.
NUMBERED, COUNTS = "rows", "counts"
#: Name of the only vertex of the pipeline without an exchange, and what the folder of its output ends with.
APART = "apart"
#: How the names of finished files begin.
_PREFIX = "rows"


class SteadySource(GatedSource):
    """Splits of numbered rows, see the module's docstring."""

    def __init__(self, folder: str, *, splits: int = SPLITS, rows: int = ROWS, tag: str = _TAG) -> None:
        super().__init__(tag, folder, splits=splits, rows=rows, keys=KEYS)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, GatedSplit]:
        return _SteadyReader(self, context)


class _SteadyReader(SourceReader[Any, GatedSplit]):
    """Reads all its splits side by side."""

    def __init__(self, source: SteadySource, context: SourceReaderContext) -> None:
        self._source = source
        self._context = context
        self._go = Path(source.folder) / "go"
        self._splits: dict[str, GatedSplit] = {}
        #: Rows that are due and have not been read, by split: parts of a row add up.
        self._due: defaultdict[str, float] = defaultdict(float)
        self._no_more = False
        self._ready: list[SourceRecords] = []
        self._read_at = perf_counter()

    def start(self) -> None:
        name = f"{self._source.tag}-{self._context.subtask_index}"
        tell_splits(self._source.folder, name, self._splits.values())
        self._context.request_split()

    def add_splits(self, splits: Sequence[GatedSplit]) -> None:
        self._splits.update((split.split_id, split) for split in splits)
        self._context.request_split()

    def notify_no_more_splits(self) -> None:
        self._no_more = True

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        if not self._ready:
            live = [split for split in self._splits.values() if split.position < split.end]
            if not live:
                return None if self._no_more else NothingAvailable()
            now = perf_counter()
            passed = now - self._read_at
            if passed < _PAUSE:
                return NothingAvailable(_PAUSE - passed)
            self._read_at = now
            at_once = self._go.exists()
            self._ready = [
                taken for split in live if (taken := self._take(split, passed, at_once)) is not None
            ]
            if not self._ready:
                return NothingAvailable(_PAUSE)
        return self._ready.pop()

    def _take(self, split: GatedSplit, passed: float, at_once: bool) -> SourceRecords | None:
        left = split.end - split.position
        self._due[split.split_id] += min(RATE * min(passed, 1.0), left * _PART)
        number = min(left, 500) if at_once else int(self._due[split.split_id])
        if number == 0:
            return None
        self._due[split.split_id] = 0.0 if at_once else self._due[split.split_id] - number
        rows = [
            row_of(self._source.tag, split.number, index, self._source.keys)
            for index in range(split.position, split.position + number)
        ]
        self._splits[split.split_id] = GatedSplit(split.number, split.position + number, split.end)
        return SourceRecords(rows, [row[1] for row in rows], split.split_id)

    def snapshot_state(self, checkpoint_id: int) -> list[GatedSplit]:
        # What is ready has been counted as read: it goes before the barrier or is read again.
        waiting = {records.split_id: len(records.rows) for records in self._ready}
        return [
            GatedSplit(split.number, split.position - waiting.get(split.split_id, 0), split.end)
            for split in self._splits.values()
        ]


def reader_names(parallelism: int) -> list[str]:
    """Those of the source with the exchange, as its readers tell the splits that they were restored with."""
    return [f"{_TAG}-{subtask}" for subtask in range(parallelism)]


def build_job(
    env: StreamExecutionEnvironment,
    folder: str,
    output: str,
    rows: int = ROWS,
    key: Callable[[Any], str] = key_of,
) -> None:
    """Puts the job into the environment; `folder` is where `go` will be, `output` a folder of any file system.

    `key`: the same as `key_of`, from wherever a test wants it to be loaded.
    """
    source = env.from_source(SteadySource(folder, rows=rows), WatermarkStrategy.no_watermarks(), NUMBERED)
    counted = source.uid(NUMBERED).key_by(key, Types.STRING()).process(TellingCounting(folder)).uid(COUNTS)
    counted.sink_to(_files(output)).uid("files")
    others = SteadySource(folder, rows=rows, tag=_APART_TAG)
    apart = env.from_source(others, WatermarkStrategy.no_watermarks(), APART)
    apart.uid(APART).sink_to(_files(f"{output}-{APART}")).uid(f"{APART} files")


def _files(output: str) -> FileSink:
    return (
        FileSink.for_row_format(output, Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_output_file_config(OutputFileConfig.builder().with_part_prefix(_PREFIX).build())
        .build()
    )


class SteadyOutput:
    """What the job has committed so far, and whether it is what a run without faults puts out."""

    def __init__(self, output: str, rows: int = ROWS) -> None:
        self._output = output
        self._rows = rows

    def check(self) -> None:
        """After the end; AssertionError says what is missing, too much or out of order, or left over."""
        parts = self._read_whole(self._output)
        found = [row for part in parts for row in part]
        self._check_once(_TAG, Counter(identity for _, _, identity in found))
        _check_counts(found)
        for part in parts:
            _check_order(part)
        apart = self._read_whole(f"{self._output}-{APART}")
        self._check_once(_APART_TAG, Counter(row[2] for part in apart for row in part))

    def _check_once(self, tag: str, got: Counter[str]) -> None:
        expected = Counter(row[2] for row in SteadySource("", rows=self._rows, tag=tag).all_rows())
        missing, extra = expected - got, got - expected
        assert not missing and not extra, (
            f"{missing.total()} rows are missing, as {sorted(missing)[:3]}; "
            f"{extra.total()} are too many, as {sorted(extra)[:3]}"
        )

    def _read_whole(self, output: str) -> list[list[Any]]:
        parts, left = self._read(output)
        assert not left, f"left over: {left[:5]}"
        return parts

    def _read(self, output: str) -> tuple[list[list[Any]], list[str]]:
        """The rows of each finished file, and names of all other files."""
        files = file_system_for(output)
        parts, left, folders = [], [], [output]
        while folders:
            for entry in files.list(folders.pop()):
                if entry.is_dir:
                    folders.append(entry.path)
                elif "/." not in entry.path[len(output) :] and entry.name.startswith(f"{_PREFIX}-"):
                    with files.open(entry.path) as opened:
                        parts.append([ast.literal_eval(line) for line in opened.read().decode().splitlines()])
                else:
                    left.append(entry.path)
        return parts, left


def _check_counts(rows: Sequence[Any]) -> None:
    """State counted each row once, and the rows of a split in their order."""
    by_key: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for key, count, identity in rows:
        by_key[key].append((count, identity))
    for key, found in by_key.items():
        found.sort()
        counts = [count for count, _ in found]
        assert counts == list(range(1, len(found) + 1)), f"{key}: the counts are {counts[:20]}..."
        last: dict[str, int] = {}
        for count, identity in found:
            split, _, index = identity.partition(":")
            assert last.get(split, -1) < int(index), f"{key}: {identity} was counted late, as number {count}"
            last[split] = int(index)


def _check_order(part: Sequence[Any]) -> None:
    """In one file the counts of a key rise."""
    last: dict[str, int] = {}
    for key, count, identity in part:
        assert last.get(key, 0) < count, f"{key}: {identity} was written after the count {last[key]}"
        last[key] = count


def main(folder: str, output: str, rows: str = str(ROWS), *, key: Callable[[Any], str] = key_of) -> None:
    """The program: `FOLDER OUTPUT [ROWS]`."""
    env = StreamExecutionEnvironment.get_execution_environment()
    build_job(env, folder, output, int(rows), key)
    env.execute("steady rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
