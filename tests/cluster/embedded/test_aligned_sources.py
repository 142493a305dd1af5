"""Aligned sources in an embedded cluster, whose tasks are threads of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from tests.cluster.embedded.waiting import wait_until
from yarrow.common import Duration, TimestampAssigner, WatermarkStrategy
from yarrow.common.job_status import JobStatus
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
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.ha.none import NoHighAvailability

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
    #: How often a reader has heard of a completed checkpoint.
    completed: ClassVar[int] = 0
    #: Event time at which the slow split waits; None = it does not.
    gate: ClassVar[int | None] = None

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

    @classmethod
    def slow_may_go(cls, track: Track) -> bool:
        """Whether the slow split has rows: up to the gate, if one is closed, and once another split was ahead."""
        return cls.was_ahead() and (cls.gate is None or track.next < cls.gate)


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
        World.position.update({track.name: track.next for track in splits})
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
        ready = [
            track for track in ready if not track.next or track.name != "slow" or World.slow_may_go(track)
        ]
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

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        World.completed += 1


class Keep(MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        World.rows.append(value)
        return value


ALIGNED = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
    "tracks", Duration.of_millis(DRIFT), Duration.of_millis(10)
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """A cluster in threads of this process, whose master can lose its leadership and win it again."""
    folder = tmp_path_factory.mktemp("aligned")
    with pytest.MonkeyPatch.context() as patch:
        # Stored jobs outlive the leadership.
        patch.setattr(NoHighAvailability, "storage_directory", str(folder / "ha"))
        configuration = {"execution.checkpointing.dir": str(folder / "checkpoints")}
        with mini_cluster(slots=2, processes=False, configuration=configuration) as running:
            yield running


def start_job(cluster: MiniCluster, checkpoints_ms: int = 0) -> Any:
    """Starts a job of two aligned sources."""
    World.position = dict.fromkeys(("slow", "fast", "fastest"), 0)
    World.ahead, World.paused, World.rows = [], [], []
    env = cluster.get_execution_environment().set_parallelism(1)
    if checkpoints_ms:
        env.enable_checkpointing(checkpoints_ms)
    first = env.from_source(Tracks(Track("slow", 10)), ALIGNED, "one")
    second = env.from_source(Tracks(Track("fast", 40), Track("fastest", 50)), ALIGNED, "other")
    first.union(second).map(Keep()).print()
    return env.execute_async("aligned")


def read_tracks(cluster: MiniCluster) -> None:
    """Runs a job of two aligned sources, which reads each row once."""
    start_job(cluster).get_job_execution_result().result(120)
    assert sorted(World.rows) == all_rows()


def all_rows() -> list[Any]:
    steps = ("slow", 10), ("fast", 40), ("fastest", 50)
    return sorted((name, time) for name, step in steps for time in range(0, END + 1, step))


def test_no_source_is_ahead_of_the_slowest_by_more_than_the_drift(
    cluster: MiniCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_bound = SourceAlignment.take_bound

    def noted(alignment: SourceAlignment, bound_ms: int) -> None:
        World.bounds[alignment] = bound_ms
        take_bound(alignment, bound_ms)

    monkeypatch.setattr(SourceAlignment, "take_bound", noted)
    monkeypatch.setattr(World, "bounds", {})
    monkeypatch.setattr(World, "began", False)
    read_tracks(cluster)
    assert max(World.ahead) <= DRIFT + 1
    assert max(World.ahead) > DRIFT // 2, "nothing was ahead: the bound was not tested"


class AsTime(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


def test_a_subtask_that_has_read_its_range_holds_the_others_not_back(cluster: MiniCluster) -> None:
    """Subtask 0 reads the lower half of the numbers and ends first. Its task stays, because the enumerator is there."""
    World.rows = []
    env = cluster.get_execution_environment().set_parallelism(2)
    numbers = env.from_source(
        NumberSequenceSource(1, 20_000), ALIGNED.with_timestamp_assigner(AsTime()), "numbers"
    )
    numbers.map(Keep()).print()
    env.execute_async("one source").get_job_execution_result().result(120)
    assert sorted(World.rows) == list(range(1, 20_001))


def change_leadership(cluster: MiniCluster, *, leads: bool) -> None:
    """Revokes or grants the leadership of the only master."""
    plane = cluster.cluster.control_plane
    election: Any = plane._ha

    async def change() -> None:
        election._leads = leads
        if leads:
            plane.grant_leadership(election._records.next_leadership().epoch)
        else:
            plane.revoke_leadership("the test says so")
        while plane.leads is not leads:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        driver: Any = cluster.cluster._driver
        for executor in driver._executors.values():
            leader = plane.resource_manager_leader if leads else None
            executor._services.resource_manager.announce(leader)

    cluster._loop.call(change())


def test_a_reader_keeps_the_last_bound_over_a_change_of_masters(
    cluster: MiniCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a master a reader above the bound waits; the next one begins with the bound, and goes on by new ones."""
    read_by, take_bound = SourceAlignment.read_by, SourceAlignment.take_bound
    began_with: list[int | None] = []

    def reads(alignment: SourceAlignment, reader: Any) -> None:
        began_with.append(alignment.bound)
        read_by(alignment, reader)

    def noted(alignment: SourceAlignment, bound_ms: int) -> None:
        World.bounds[alignment] = bound_ms
        take_bound(alignment, bound_ms)

    monkeypatch.setattr(SourceAlignment, "read_by", reads)
    monkeypatch.setattr(SourceAlignment, "take_bound", noted)
    monkeypatch.setattr(World, "bounds", {})
    monkeypatch.setattr(World, "began", False)
    monkeypatch.setattr(World, "gate", 2_000)
    client = start_job(cluster, checkpoints_ms=50)
    # The slow split waits at its gate, and the others at the bound that comes of it.
    waiting = {"slow": 2_000, "fast": 3_200, "fastest": 3_500}
    wait_until(lambda: World.position == waiting, lambda: str(World.position))
    # One checkpoint may have begun before. Both readers hear of each.
    completed = World.completed
    wait_until(lambda: World.completed >= completed + 4)
    assert began_with == [None, None]
    change_leadership(cluster, leads=False)
    monkeypatch.setattr(World, "gate", None)
    # The slow split goes on up to its own bound. No master says so to the others.
    wait_until(lambda: World.position["slow"] == 3_100, lambda: str(World.position))
    assert World.position == {**waiting, "slow": 3_100}
    assert max(World.ahead) <= DRIFT + 1
    del began_with[:], World.ahead[:]
    change_leadership(cluster, leads=True)
    result = cluster._loop.call(cluster.cluster.dispatcher.request_job_result(client._job_id))
    assert result.status is JobStatus.FINISHED
    assert len(began_with) == 2 and set(began_with) <= set(range(2_980, 3_000))
    assert sorted(set(World.rows)) == all_rows()
    # A restored split has no time before its first rows, which it may read.
    assert sum(ahead > DRIFT + 1 for ahead in World.ahead) <= 2
