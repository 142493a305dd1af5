"""Aligned sources in an embedded cluster, whose tasks are threads of this process."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from yarrow.common import Duration, WatermarkStrategy
from yarrow.container.operators.sources.source_alignment import SourceAlignment
from yarrow.datastream import MapFunction
from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Source,
    SourceReader,
    SourceRecords,
    SourceSplit,
)
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.data.elements import MIN_TIMESTAMP

pytestmark = pytest.mark.cluster

#: Event time in ms of the last row of each split, and that which sources may be ahead.
END, DRIFT = 20_000, 1_000


class World:
    """What readers and test share; tasks are threads of this process."""

    #: Event time of the next row of each split.
    position: ClassVar[dict[str, int]] = {}
    #: By how much a split was ahead of the slowest one, at each poll of it.
    ahead: ClassVar[list[int]] = []
    paused: ClassVar[list[str]] = []
    rows: ClassVar[list[Any]] = []
    #: The last bound of each source.
    bounds: ClassVar[dict[SourceAlignment, int]] = {}
    #: Whether rows flow. A test that notes the bounds lets them wait for these.
    began: ClassVar[bool] = True

    @classmethod
    def begins(cls) -> bool:
        """Whether all splits count: before, a source without its split would hold nobody back, as in Flink.

        Splits without a row are at the least time. So each source then has the least time and the drift as its bound.
        """
        cls.began = cls.began or list(cls.bounds.values()) == [MIN_TIMESTAMP + DRIFT] * 2
        return cls.began

    @classmethod
    def was_ahead(cls) -> bool:
        """Whether a split has come near the bound. Until then the slow one stays, so that the load does not matter."""
        return any(ahead > DRIFT // 2 for ahead in cls.ahead)


@dataclass(frozen=True)
class Track(SourceSplit):
    name: str
    #: Event time between two rows, ms.
    step: int
    next: int = 0

    @property
    def split_id(self) -> str:
        return self.name


class Tracks(Source[Any, Track]):
    """Splits with rows at even steps of event time, all of one reader."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self, *tracks: Track) -> None:
        self._tracks = tracks

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        return OnRequestEnumerator(context, self._tracks if checkpoint is None else checkpoint)

    def create_reader(self, context: Any) -> Any:
        return TrackReader(context)


class TrackReader(SourceReader[Any, Track]):
    """Reads its splits in turn, a row of each and many rows of a fast one."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._tracks: list[Track] = []
        self._paused: set[str] = set()
        self._no_more = self._rests = False
        #: Names of splits without rows.
        self.silent: set[str] = set()

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
        World.paused += splits_to_pause
        self._paused = (self._paused | set(splits_to_pause)) - set(splits_to_resume)

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        self._rests = not self._rests
        live = [track for track in self._tracks if track.next <= END]
        if not live:
            return None if self._no_more else NothingAvailable()
        ready = [track for track in live if track.name not in self._paused | self.silent]
        ready = [track for track in ready if not track.next or track.name != "slow" or World.was_ahead()]
        if self._rests or not ready or not self._no_more or not World.begins():
            return NothingAvailable(0.001)
        track = min(ready, key=lambda track: track.next)
        World.ahead.append(track.next - min(World.position.values()))
        stop = min(track.next + 10 * track.step, END + 1)
        rows = [(track.name, time) for time in range(track.next, stop, track.step)]
        self._tracks[self._tracks.index(track)] = replace(track, next=stop)
        World.position[track.name] = min(stop, END)
        return SourceRecords(rows, [time for _, time in rows], track.name)

    def snapshot_state(self, checkpoint_id: int) -> list[Track]:
        return list(self._tracks)


class Keep(MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        World.rows.append(value)
        return value


ALIGNED = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
    "tracks", Duration.of_millis(DRIFT), Duration.of_millis(10)
)


def read_tracks(cluster: MiniCluster) -> None:
    """Runs a job of two aligned sources, which reads each row once."""
    World.position = dict.fromkeys(("slow", "fast", "fastest"), 0)
    World.ahead, World.paused, World.rows = [], [], []
    env = cluster.get_execution_environment().set_parallelism(1)
    first = env.from_source(Tracks(Track("slow", 10)), ALIGNED, "one")
    second = env.from_source(Tracks(Track("fast", 40), Track("fastest", 50)), ALIGNED, "other")
    first.union(second).map(Keep()).print()
    client = env.execute_async("aligned")
    client.get_job_execution_result().result(120)
    assert sorted(World.rows) == sorted(
        (name, time)
        for name, step in (("slow", 10), ("fast", 40), ("fastest", 50))
        for time in range(0, END + 1, step)
    )


def test_no_source_is_ahead_of_the_slowest_by_more_than_the_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    take_bound = SourceAlignment.take_bound

    def noted(alignment: SourceAlignment, bound_ms: int) -> None:
        World.bounds[alignment] = bound_ms
        take_bound(alignment, bound_ms)

    monkeypatch.setattr(SourceAlignment, "take_bound", noted)
    monkeypatch.setattr(World, "bounds", {})
    monkeypatch.setattr(World, "began", False)
    with mini_cluster(slots=1, processes=False) as cluster:
        read_tracks(cluster)
    assert max(World.ahead) <= DRIFT + 1
    assert max(World.ahead) > DRIFT // 2, "nothing was ahead: the bound was not tested"
