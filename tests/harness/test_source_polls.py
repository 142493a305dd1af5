"""Polls of a source and chunks of its chain, by a clock driven by hand: sizes, cuts, watermarks, idleness, the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from yarrow.common.time import Duration
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkGenerator, WatermarkStrategy
from yarrow.container.operators.carried_records import CARRIED
from yarrow.container.task.checkpointing.pending_snapshot import PendingSubtaskSnapshot, TaskName
from yarrow.container.task.task_stage import TaskStage
from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SourceRecords,
    SourceSplit,
)
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.data.elements import CheckpointBarrier, EndOfData, RowBatch, Watermark, WatermarkStatus
from yarrow.runtime.snapshot.options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.testing.operator_harness import OperatorHarness


@dataclass
class Place(SourceSplit):
    """The next number of a split."""

    name: str
    next: int

    @property
    def split_id(self) -> str:
        return self.name


class World:
    """What source, functions and test share; they are pickled, so it belongs to the class."""

    clock: ClassVar[ManualClock]
    asked: ClassVar[list[int]]
    #: Seconds of a poll, and of each row that it gives.
    poll: ClassVar[tuple[float, float]]
    #: Seconds of each row in the chain.
    row: ClassVar[float]
    end: ClassVar[int]
    names: ClassVar[tuple[str, ...]]
    make: ClassVar[Callable[[int], Any]]
    #: Called with each row as the chain runs it.
    on_row: ClassVar[Callable[[Any], None]]


@pytest.fixture(autouse=True)
def world() -> None:
    World.clock = ManualClock(1_000_000)
    World.asked = []
    World.poll = (0.0, 0.0)
    World.row = 0.0
    World.end = 1000
    World.names = ("a",)
    World.make = staticmethod(lambda number: number)
    World.on_row = staticmethod(lambda row: None)


class Polled(Source[Any, Place]):
    boundedness = Boundedness.BOUNDED

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        return OnRequestEnumerator(context, ())

    def create_reader(self, context: Any) -> Any:
        return PolledReader()


class BlockingPolled(Polled):
    blocking = True


class PolledReader(SourceReader[Any, Place]):
    """Numbers of all splits in turn."""

    def __init__(self) -> None:
        self.splits: list[Place] = []

    def add_splits(self, splits: Sequence[Place]) -> None:
        self.splits += splits

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        if not self.splits:
            return NothingAvailable()
        World.asked.append(max_rows)
        split = self.splits.pop(0)
        self.splits.append(split)
        first = split.next
        split.next = min(World.end, first + max_rows)
        fixed, each = World.poll
        World.clock.advance(fixed + each * (split.next - first))
        if first == split.next:
            return None
        return SourceRecords([World.make(i) for i in range(first, split.next)], split_id=split.name)

    def snapshot_state(self, checkpoint_id: int) -> list[Place]:
        return [Place(split.name, split.next) for split in self.splits]


class Snapshots:
    """Keeps what was cut."""

    def __init__(self) -> None:
        self.taken: list[PendingSubtaskSnapshot] = []

    def deliver(self, snapshot: PendingSubtaskSnapshot) -> None:
        self.taken.append(snapshot)

    def decline(self, task: TaskName, checkpoint_id: int, error: BaseException) -> None:
        raise AssertionError(f"checkpoint {checkpoint_id} was declined: {error}") from error

    def state(self, name: str, number: int = -1) -> list[Any]:
        """The elements of an operator state of the source."""
        parts: Any = self.taken[number]._parts
        (found,) = [state for state in parts[0].operator._states if state.name == name]
        return [found.value.load_value(element) for element in found.elements()]


def run_row(row: Any) -> Any:
    World.clock.advance(World.row)
    World.on_row(row)
    return row[0] if isinstance(row, tuple) else row


def harness(
    source: Source[Any, Any] | None = None,
    strategy: WatermarkStrategy | None = None,
    snapshots: Snapshots | None = None,
) -> OperatorHarness:
    made = OperatorHarness(
        lambda env: env.from_source(
            source or Polled(), strategy or WatermarkStrategy.no_watermarks(), "polled"
        ).map(run_row),
        inputs=0,
        clock=World.clock,
        snapshots=snapshots,
    )
    begin(made)
    return made


def begin(made: OperatorHarness) -> None:
    """Drives slices by the clock, and gives the reader its splits."""
    for task in made.tasks:
        task.seconds = World.clock.monotonic
    head: Any = made.tasks[0].chain.source
    head._add_splits([Place(name, 0) for name in World.names])
    made.tasks[0].wake()


def barrier(kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> CheckpointBarrier:
    location = CheckpointLocation(directory="")
    options = CheckpointOptions(kind=kind, location=location)
    return CheckpointBarrier(1, World.clock.epoch_ms(), options=options)


@pytest.mark.parametrize("fixed", [0.0, 0.001, 0.01, 0.1])
@pytest.mark.parametrize("source", [Polled(), BlockingPolled()])
def test_what_a_poll_costs_by_itself_is_spread_over_full_batches(
    fixed: float, source: Source[Any, Any]
) -> None:
    World.poll, World.row, World.end = (fixed, 1e-7), 1e-6, 100_000
    began = World.clock.monotonic()
    with harness(source) as running:
        running.run()
        assert running.output == list(range(World.end))
    bare = fixed * (World.end / 2048 + 1) + World.end * (1e-6 + 1e-7)
    assert bare / (World.clock.monotonic() - began) > 0.9
    assert min(World.asked) >= 256
    if source.blocking:
        assert set(World.asked) == {2048}


class Requests(Sink[int]):
    """Each write is a request that costs 10 ms however many rows it has."""

    written: ClassVar[list[int]]

    def create_writer(self, context: Any, restored: Sequence[Any] = ()) -> Any:
        return RequestWriter()


class RequestWriter(SinkWriter[int]):
    def write(self, rows: Sequence[int], timestamps: Any) -> None:
        World.clock.advance(0.01)
        Requests.written.append(len(rows))


def with_requests(env: Any) -> Any:
    stream = env.from_source(Polled(), WatermarkStrategy.no_watermarks(), "polled").map(run_row)
    stream.sink_to(Requests())
    return stream


def in_batches(env: Any) -> Any:
    def request(batch: Any) -> Any:
        World.clock.advance(0.01)
        Requests.written.append(batch.num_rows)
        return batch

    stream = env.from_source(Polled(), WatermarkStrategy.no_watermarks(), "polled").map(run_row, Types.LONG())
    return stream.map_batches(request, pa.schema([("value", pa.int64())])).map(lambda row: row)


@pytest.mark.parametrize("fragment", [with_requests, in_batches])
def test_what_a_sink_or_a_function_of_batches_costs_by_itself_is_spread_too(fragment: Any) -> None:
    World.row, World.end, Requests.written = 1e-6, 100_000, []
    began = World.clock.monotonic()
    with OperatorHarness(fragment, inputs=0, clock=World.clock) as running:
        begin(running)
        running.run()
        assert len(running.output) == sum(Requests.written) == World.end
    bare = (0.01 / 2048 + 1e-6) * World.end
    assert bare / (World.clock.monotonic() - began) > 0.8
    assert Requests.written[20:-1] == [2048] * len(Requests.written[20:-1])


def test_rows_beyond_a_slice_wait_and_a_mail_comes_behind_the_present_row() -> None:
    World.row = 0.02
    mails: list[tuple[str, int]] = []

    def on_row(row: int) -> None:
        if row in (3, 700):
            task.post(lambda: mails.append((f"mail at {row}", task.records_in)))

    World.on_row = staticmethod(on_row)
    with harness() as running:
        (task,) = running.tasks
        running.run()
        assert mails == [("mail at 3", 4), ("mail at 700", 701)]
        assert running.output == list(range(1000))
        # A second poll only when everything of the first had run.
        assert World.asked == [256] * 5


def test_a_cut_finds_the_rows_that_wait_and_is_late_by_one() -> None:
    World.row, World.end = 0.02, 300
    posted: list[float] = []
    snapshots = Snapshots()

    def on_row(row: int) -> None:
        if row == 10:
            posted.append(World.clock.monotonic())
            task.post(cut)

    def cut() -> None:
        posted.append(World.clock.monotonic())
        task.trigger_checkpoint(barrier())

    World.on_row = staticmethod(on_row)
    with harness(snapshots=snapshots) as running:
        (task,) = running.tasks
        running.run()
        assert posted[0] == posted[1]
        ((_, _, held, split_id, rows, stamps, side, ended),) = snapshots.state(CARRIED)
        assert (held, split_id, rows, stamps, side, ended) == (
            True,
            "a",
            list(range(11, 256)),
            None,
            None,
            [],
        )
        assert snapshots.state("source-splits") == [Place("a", 256)]
        kinds = [
            len(element) if isinstance(element, RowBatch) else type(element) for element in running.elements()
        ]
        before = kinds[: kinds.index(CheckpointBarrier)]
        assert sum(n for n in before if isinstance(n, int)) == 11
        assert running.output == list(range(300))


def test_rows_that_are_run_in_no_time_go_before_the_barrier() -> None:
    World.row = 1e-6
    snapshots = Snapshots()
    World.on_row = staticmethod(
        lambda row: task.post(lambda: task.trigger_checkpoint(barrier())) if row == 10 else None
    )
    with harness(snapshots=snapshots) as running:
        (task,) = running.tasks
        running.run()
        assert snapshots.state(CARRIED) == []
        assert snapshots.state("source-splits")[0].next in (256, 1000)
        assert running.output == list(range(1000))


def test_rows_without_a_stored_form_go_before_the_barrier_however_long_it_takes() -> None:
    World.row, World.end = 0.02, 300
    World.make = staticmethod(lambda number: (number, threading.Lock()))
    snapshots = Snapshots()
    World.on_row = staticmethod(
        lambda row: task.post(lambda: task.trigger_checkpoint(barrier())) if row[0] == 10 else None
    )
    with harness(snapshots=snapshots) as running:
        (task,) = running.tasks
        running.run()
        assert snapshots.state(CARRIED) == []
        elements = running.elements()
        at = next(i for i, element in enumerate(elements) if isinstance(element, CheckpointBarrier))
        assert sum(len(element) for element in elements[:at] if isinstance(element, RowBatch)) == 256
        assert len(running.output) == 300


@pytest.mark.parametrize("kind", [SnapshotKind.SAVEPOINT_TERMINATE, SnapshotKind.SAVEPOINT_SUSPEND])
def test_rows_that_wait_when_a_savepoint_stops_the_job(kind: SnapshotKind) -> None:
    World.row, World.end = 0.02, 300
    snapshots = Snapshots()
    World.on_row = staticmethod(
        lambda row: task.post(lambda: task.trigger_checkpoint(barrier(kind))) if row == 10 else None
    )
    with harness(snapshots=snapshots) as running:
        (task,) = running.tasks
        running.run()
        carried = [row for entry in snapshots.state(CARRIED) for row in entry[4]]
        assert running.output + carried == list(range(256))
        # Drained, the job puts out all that it has read; else it stands still at once.
        assert len(carried) == (0 if kind is SnapshotKind.SAVEPOINT_TERMINATE else 245)
        task.checkpoint_completed(1)
        running.run()
        assert isinstance(running.elements()[-1], EndOfData)
        assert running.output + carried == list(range(256))


def test_a_cancel_comes_behind_the_present_row() -> None:
    World.row = 0.02
    World.on_row = staticmethod(lambda row: task.post(task.cancel) if row == 10 else None)
    with harness() as running:
        (task,) = running.tasks
        running.run()
        assert task.stage is TaskStage.ENDED
        assert task.records_in == 11


class Marking(WatermarkGenerator):
    """A watermark behind each row whose number ends in 5."""

    needs_each_event = True

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        if event_timestamp % 10 == 5:
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        return None


class Numbered(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


def test_watermarks_keep_their_places_where_mails_cut_and_rows_wait() -> None:
    World.row, World.end = 0.001, 400
    World.on_row = staticmethod(lambda row: task.post(lambda: None) if row % 7 == 0 else None)
    strategy = WatermarkStrategy.for_generator(Marking).with_timestamp_assigner(Numbered())
    with harness(strategy=strategy) as running:
        (task,) = running.tasks
        running.run()
        reached = -1
        marks = 0
        for element in running.elements():
            if isinstance(element, RowBatch):
                assert min(element.rows) > reached
                last = element.rows[-1]
            elif isinstance(element, Watermark) and element.timestamp < 400:
                marks += 1
                reached = element.timestamp
                assert last == reached
        assert marks == 40
        assert running.output == list(range(400))


def test_a_split_that_is_not_asked_because_rows_wait_is_not_idle() -> None:
    World.row, World.end, World.names = 0.02, 600, ("a", "b")
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(Numbered())
        .with_idleness(Duration.of_millis(500))
    )
    with harness(strategy=strategy) as running:
        running.run()
        assert not [e for e in running.elements() if isinstance(e, WatermarkStatus)]
        # The watermark is that of the split which is behind: of split a alone it would be ahead of rows of b.
        reached = -1
        for element in running.elements():
            if isinstance(element, RowBatch):
                assert min(element.rows) > reached
            elif isinstance(element, Watermark):
                reached = element.timestamp
