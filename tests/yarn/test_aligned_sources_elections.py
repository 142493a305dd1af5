"""Aligned sources whose masters a real ZooKeeper elects: readers of the next master begin with the last bound."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.highly_available import high_availability, zookeeper_client
from tests.yarn.waiting import GRACE, until
from yarrow.common import Duration, WatermarkStrategy
from yarrow.common.configuration import Configuration
from yarrow.container.operators.sources.source_alignment import SourceAlignment
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Source,
    SourceReader,
    SourceRecords,
    SourceSplit,
)
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.testing.connectors.relayed_cluster import RelayedCluster
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles

pytestmark = [pytest.mark.fault, pytest.mark.slow]

ROOT = f"/yarrow-aligned-{os.getpid()}"
#: Ms of event time: the last row of each split, what sources may be ahead, and where the slow one waits.
END, DRIFT, GATE = 10_000, 1_000, 2_000
#: Ms between two rows of each split, and rows of a poll.
STEPS, POLLED = {"slow": 10, "fast": 40, "fastest": 50}, 10


@dataclass(frozen=True)
class Track(SourceSplit):
    name: str
    #: Event time of the next row.
    next: int = 0

    @property
    def split_id(self) -> str:
        return self.name


class Tracks(Source[Any, Track]):
    """Splits with rows at even steps of event time. They tell their progress by files in a folder."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self, folder: Path, *names: str) -> None:
        self._folder, self._names = folder, names

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        fresh = [Track(name) for name in self._names]
        return OnRequestEnumerator(context, fresh if checkpoint is None else checkpoint)

    def create_reader(self, context: Any) -> TrackReader:
        note_bounds(self._folder)
        return TrackReader(context, self._folder)


class TrackReader(SourceReader[Any, Track]):
    """Reads its splits in turn, each from where it stands. The slow one waits for a file."""

    def __init__(self, context: Any, folder: Path) -> None:
        self._context, self._folder = context, folder
        self._tracks: list[Track] = []
        self._paused: set[str] = set()
        self._no_more = False

    def start(self) -> None:
        self._context.request_split()

    def add_splits(self, splits: Sequence[Track]) -> None:
        self._tracks += splits
        self._context.request_split()

    def notify_no_more_splits(self) -> None:
        self._no_more = True

    def pause_or_resume_splits(
        self, splits_to_pause: Collection[str], splits_to_resume: Collection[str]
    ) -> None:
        self._paused = (self._paused | set(splits_to_pause)) - set(splits_to_resume)

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        live = [track for track in self._tracks if track.next <= END]
        if not live:
            return None if self._no_more else NothingAvailable()
        ready = [track for track in live if track.name not in self._paused and self._may_go(track)]
        if not ready or not self._no_more:
            return NothingAvailable(0.001)
        track = min(ready, key=lambda track: track.next)
        step = STEPS[track.name]
        stop = min(track.next + POLLED * step, END + 1)
        rows = [(track.name, time) for time in range(track.next, stop, step)]
        self._tracks[self._tracks.index(track)] = replace(track, next=stop)
        tell(self._folder / track.name, str(stop))
        return SourceRecords(rows, [time for _, time in rows], track.name)

    def _may_go(self, track: Track) -> bool:
        if not track.next and len(_counted) < 2:
            # A source whose split has not come yet would hold nobody back, as in Flink.
            return False
        return track.name != "slow" or track.next < GATE or (self._folder / "open").exists()

    def snapshot_state(self, checkpoint_id: int) -> list[Track]:
        return list(self._tracks)


def tell(file: Path, text: str) -> None:
    """Replaces a file, so that nobody reads a part of it."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


_read_by, _take_bound = SourceAlignment.read_by, SourceAlignment.take_bound
#: Of this worker: the sources whose splits, without a row so far, were counted at the least time.
_counted: set[SourceAlignment] = set()


def note_bounds(folder: Path) -> None:
    """From now on each reader of this worker adds the bound with which it begins to a file, and first bounds count."""

    def noted(alignment: SourceAlignment, reader: Any) -> None:
        with (folder / "began").open("a") as file:
            file.write(f"{alignment.bound}\n")
        _read_by(alignment, reader)

    def taken(alignment: SourceAlignment, bound_ms: int) -> None:
        if bound_ms == MIN_TIMESTAMP + DRIFT:
            _counted.add(alignment)
        _take_bound(alignment, bound_ms)

    SourceAlignment.read_by = noted  # type: ignore[assignment, method-assign]
    SourceAlignment.take_bound = taken  # type: ignore[assignment, method-assign]


def positions(folder: Path) -> dict[str, int]:
    """Event time up to which each split was read last."""
    return {name: int((folder / name).read_text()) for name in STEPS if (folder / name).exists()}


def bounds(folder: Path) -> list[str]:
    """With which readers have begun, the first ones first."""
    return (folder / "began").read_text().split()


@pytest.fixture
def cluster(hadoop: HadoopCluster, tmp_path: Path) -> Iterator[RelayedCluster]:
    election = high_availability(hadoop.zookeeper_quorum, ROOT, f"file://{tmp_path}/ha", "2 s")
    running = RelayedCluster(tmp_path / "cluster", election)
    try:
        yield running
    finally:
        running.close()
        with zookeeper_client(hadoop.zookeeper_quorum) as client:
            client.retry(client.delete, ROOT, recursive=True)


def test_readers_begin_with_the_last_bound_when_another_master_is_elected(
    cluster: RelayedCluster, tmp_path: Path
) -> None:
    folder, output = tmp_path / "tracks", tmp_path / "output"
    folder.mkdir()
    env = StreamExecutionEnvironment(
        Configuration.from_dict(
            {
                "parallelism.default": "1",
                "execution.checkpointing.interval": "100 ms",
                "execution.checkpointing.dir": f"file://{tmp_path}/checkpoints",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "100",
                "restart-strategy.fixed-delay.delay": "100 ms",
            }
        )
    )
    aligned = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
        "tracks", Duration.of_millis(DRIFT), Duration.of_millis(10)
    )
    slow = env.from_source(Tracks(folder, "slow"), aligned, "one")
    others = env.from_source(Tracks(folder, "fast", "fastest"), aligned, "other")
    slow.union(others).sink_to(TransactionalFiles(str(output)))
    job = cluster.submit(env.get_job_graph("aligned"))

    # The slow split waits at its gate, and the others behind the bound that comes of it.
    bound = range(GATE - 2 * STEPS["slow"] + DRIFT, GATE + DRIFT)
    waiting = {"slow": GATE, "fast": 3_200, "fastest": 3_500}
    until(lambda: positions(folder) == waiting, GRACE, "all splits wait")
    job.until_completed()
    before = len(bounds(folder))
    os.kill(cluster.leader().process.pid, signal.SIGKILL)
    until(lambda: len(bounds(folder)) >= before + 2, GRACE, "the readers of the next master begin")
    job.until_completed()
    assert {*bounds(folder)[before:]} <= {*map(str, bound)}
    # A restored split has no time before its first rows, which it may read.
    read = positions(folder)
    assert read["slow"] == GATE
    assert read["fast"] <= 3_200 + POLLED * STEPS["fast"]
    assert read["fastest"] <= 3_500 + POLLED * STEPS["fastest"]

    # The bounds of the next master let them go on.
    (folder / "open").touch()
    until(lambda: job.has_ended, GRACE, "the job ends")
    committed = CommittedFiles(output)
    assert committed.committed_twice() == []
    assert sorted(committed.rows()) == sorted(
        (name, time) for name, step in STEPS.items() for time in range(0, END + 1, step)
    )
