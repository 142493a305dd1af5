"""Polls of a source and chunks of its chain, by a clock driven by hand: sizes, cuts, watermarks, idleness, the end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.support.kept_snapshots import KeptSnapshots
from yarrow.common.time import Duration
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkGenerator, WatermarkStrategy
from yarrow.container.fragment import FragmentFailedError
from yarrow.container.operators.event_time import WatermarkTracker
from yarrow.container.operators.sources.carried_records import CARRIED
from yarrow.container.task.task_life import TaskStage
from yarrow.datastream import DataStream, OutputTag
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
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import (
    CheckpointBarrier,
    EndOfData,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from yarrow.testing.operator_harness import HarnessState, OperatorHarness


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
    #: Called when a poll begins.
    on_poll: ClassVar[Callable[[], None]]
    #: The most rows that a poll gives.
    poll_rows: ClassVar[int]
    #: Nothing is there at the end, or yet, and the source goes on.
    endless: ClassVar[bool]
    #: Each poll gives this list, filled anew; None = a new one.
    reused: ClassVar[list[Any] | None]
    #: Every other poll finds nothing, and says when to ask again.
    waits: ClassVar[bool]


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
    World.on_poll = staticmethod(lambda: None)
    World.poll_rows = 1 << 20
    World.endless = False
    World.reused = None
    World.waits = False


class Polled(Source[Any, Place]):
    boundedness = Boundedness.BOUNDED

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        return OnRequestEnumerator(context, ())

    def create_reader(self, context: Any) -> Any:
        return PolledReader()


class BlockingPolled(Polled):
    blocking = True


class TypedPolled(Polled):
    """Its declared type proves that no row changes after its poll."""

    def produced_type(self) -> Any:
        return Types.LONG()


class BlockingTypedPolled(TypedPolled):
    blocking = True


class PolledReader(SourceReader[Any, Place]):
    """Numbers of all splits in turn."""

    def __init__(self) -> None:
        self.splits: list[Place] = []
        self._rests = False

    def add_splits(self, splits: Sequence[Place]) -> None:
        self.splits += splits

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        if not self.splits:
            return NothingAvailable()
        self._rests = World.waits and not self._rests
        if self._rests:
            return NothingAvailable(0.001)
        World.asked.append(max_rows)
        World.on_poll()
        split = self.splits.pop(0)
        self.splits.append(split)
        first = split.next
        split.next = min(World.end, first + min(max_rows, World.poll_rows))
        fixed, each = World.poll
        World.clock.advance(fixed + each * (split.next - first))
        if first == split.next:
            return NothingAvailable() if World.endless else None
        rows = [World.make(i) for i in range(first, split.next)]
        if World.reused is not None:
            World.reused[:] = rows
            rows = World.reused
        return SourceRecords(rows, split_id=split.name)

    def snapshot_state(self, checkpoint_id: int) -> list[Place]:
        return [Place(split.name, split.next) for split in self.splits]


class Snapshots(KeptSnapshots):
    """Snapshots whose parts a test looks at."""

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
    *,
    sink_apart: bool = False,
    **options: Any,
) -> OperatorHarness:
    def program(env: Any) -> DataStream:
        stream = env.from_source(source or Polled(), strategy or WatermarkStrategy.no_watermarks(), "polled")
        mapped: DataStream = stream.map(run_row)
        return mapped.disable_chaining() if sink_apart else mapped

    made = OperatorHarness(
        program,
        inputs=0,
        clock=World.clock,
        state=HarnessState(snapshots=snapshots),
        **options,
    )
    begin(made)
    return made


def begin(made: OperatorHarness) -> None:
    """Drives slices by the clock, and gives the reader its splits."""
    for task in made.tasks:
        task.slices.seconds = World.clock.monotonic
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


class Counted(tuple[int]):
    """A row that says how many of them there are."""

    alive: ClassVar[int] = 0

    def __del__(self) -> None:
        Counted.alive -= 1


def counted(number: int) -> Counted:
    Counted.alive += 1
    return Counted((number,))


def test_rows_that_ran_are_gone_before_the_next_poll_makes_its_own() -> None:
    found: list[int] = []
    World.make, World.end = staticmethod(counted), 3000
    World.on_poll = staticmethod(lambda: found.append(Counted.alive))
    with harness() as running:
        running.run()
        assert running.output == list(range(World.end))
    assert len(found) > 3 and not any(found)


COLUMNS = pa.schema([("n", pa.int64())])


class ColumnPolled(Polled):
    """Gives record batches: each of as many rows as it is asked for, or as it likes."""

    def __init__(self, *, heeds: bool = True) -> None:
        self.heeds = heeds

    def produced_schema(self) -> pa.Schema:
        return COLUMNS

    def create_reader(self, context: Any) -> Any:
        return ColumnReader(self.heeds)


class ColumnReader(PolledReader):
    def __init__(self, heeds: bool) -> None:
        super().__init__()
        self.heeds = heeds

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        found = super().poll(max_rows if self.heeds else 1 << 20)
        if World.asked:
            World.asked[-1] = max_rows
        if isinstance(found, SourceRecords):
            batch = pa.RecordBatch.from_pydict({"n": list(found.rows)}, COLUMNS)
            return SourceRecords(batch, split_id=found.split_id)
        return found


def run_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    World.clock.advance(World.row * len(batch))
    World.on_row(batch)
    return batch


def column_harness(source: ColumnPolled, parts: list[int]) -> OperatorHarness:
    """`parts` gets the sizes of the record batches as the chain runs them."""
    World.on_row = staticmethod(lambda batch: parts.append(len(batch)))
    made = OperatorHarness(
        lambda env: env.from_source(source, WatermarkStrategy.no_watermarks(), "polled").map_batches(
            run_batch, COLUMNS
        ),
        inputs=0,
        clock=World.clock,
    )
    begin(made)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row_seconds", "sizes"),
    [
        pytest.param(5e-8, {65_536}, id="as-wholes"),
        pytest.param(2e-7, {21_845, 21_846}, id="in-thirds"),
        pytest.param(1e-3, {4, 5}, id="of-few-rows"),
    ],
)
def test_record_batches_are_cut_where_a_slice_is_too_short_for_them(
    row_seconds: float, sizes: set[int]
) -> None:
    """The cost is known after a few parts, and now and then a larger part is tried."""
    World.end, World.poll_rows = 8 * 65_536 if row_seconds < 1e-3 else 1000, 65_536
    World.row, parts = row_seconds, list[int]()
    with column_harness(ColumnPolled(heeds=False), parts) as running:
        running.run()
    assert sum(parts) == World.end
    ((usual, _),) = Counter(parts[len(parts) // 2 :]).most_common(1)
    assert usual in sizes
    assert World.asked[-1] >= max(sizes)


def test_a_poll_for_record_batches_takes_a_few_slices_at_most_however_little_the_chain_costs() -> None:
    World.end, World.poll, World.row, parts = 60_000, (0.0, 1e-6), 1e-9, list[int]()
    with column_harness(ColumnPolled(), parts) as running:
        running.run()
    assert sum(parts) == World.end
    # 20 000 rows are four slices of 5 ms.
    assert 10_000 < max(World.asked) <= 20_000


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


def in_a_loop(env: Any) -> Any:
    """Each row goes round once, and both times to the sink."""
    stream = env.from_source(Polled(), WatermarkStrategy.no_watermarks(), "polled").map(run_row, Types.LONG())
    loop = stream.iterate()
    loop.sink_to(Requests())
    loop.close_with(loop.filter(lambda number: number >= 0).map(lambda number: -1 - number, Types.LONG()))
    return loop


@pytest.mark.slow
def test_what_a_sink_costs_by_itself_is_spread_over_the_feedback_of_a_loop_too() -> None:
    World.end, Requests.written = 100_000, []
    began = World.clock.monotonic()
    with OperatorHarness(in_a_loop, inputs=0, clock=World.clock) as running:
        begin(running)
        running.run()
        assert len(running.output) == sum(Requests.written) == 2 * World.end
    assert 2 * World.end / 2048 * 0.01 / (World.clock.monotonic() - began) > 0.8, Requests.written


@pytest.mark.slow
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


def test_polls_of_few_rows_are_gathered_into_chunks() -> None:
    World.poll_rows, World.reused, polls_before = 5, [], []
    World.on_row = staticmethod(lambda row: polls_before.append(len(World.asked)))
    with harness(TypedPolled()) as running:
        running.run()
        assert running.output == list(range(1000))
    # 52 polls give 260 rows, which run together.
    assert sorted(set(polls_before)) == [52, 104, 156, 201]


@pytest.mark.parametrize("source", [Polled(), BlockingTypedPolled()], ids=["any-object", "blocking"])
def test_rows_run_before_a_poll_that_may_change_them_or_wait(source: Source[Any, Any]) -> None:
    World.poll_rows, polls_before = 5, []
    World.on_row = staticmethod(lambda row: polls_before.append(len(World.asked)))
    with harness(source) as running:
        running.run()
    assert polls_before == [row // 5 + 1 for row in range(1000)]


def test_rows_do_not_wait_for_further_polls_that_take_long() -> None:
    World.poll_rows, World.poll, polls_before = 5, (0.001, 0.0), []
    World.on_row = staticmethod(lambda row: polls_before.append(len(World.asked)))
    with harness(TypedPolled()) as running:
        running.run()
    assert polls_before == [row // 5 + 1 for row in range(1000)]


def test_a_source_that_has_ended_is_not_polled_again_while_gathered_rows_run() -> None:
    World.poll_rows, World.row = 5, 1e-3
    with harness(TypedPolled()) as running:
        running.run()
        assert running.output == list(range(1000))
    assert len(World.asked) == 201


def test_rows_run_that_were_read_before_a_poll_fails() -> None:
    def poll() -> None:
        if len(World.asked) == 4:
            raise ValueError("no more")

    World.poll_rows, World.on_poll = 5, staticmethod(poll)
    ran: list[int] = []
    World.on_row = staticmethod(ran.append)
    with harness(TypedPolled()) as running:
        with pytest.raises(FragmentFailedError, match="no more"):
            running.run()
        assert ran == list(range(15))
    assert len(World.asked) == 4


def test_buffered_rows_leave_at_their_time_though_a_source_always_has_more() -> None:
    World.poll_rows, World.row, World.end = 5, 1e-3, 100
    World.on_row = staticmethod(lambda row: left.append(len(running.output)))
    left: list[int] = []
    with harness() as running:
        running.tasks[0].slices.length, running.tasks[0].outputs.buffer_timeout = 0.009, 0.012
        running.run()
        assert running.output == list(range(100))
    # A chunk more than a timeout's rows. Without regard to slices it would be 27.
    assert 10 < max(row - seen for row, seen in enumerate(left)) < 20


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
        assert task.life.stage is TaskStage.ENDED
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


# ---------------------------------------------------------------------- time, where other things come between two rows


class Greatest(WatermarkGenerator):
    """Says at the interval what it has seen in the records."""

    needs_each_event = True

    def __init__(self) -> None:
        self._greatest = -1

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        self._greatest = max(self._greatest, event_timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        output.emit_watermark(self._greatest)


def late_rows(running: OperatorHarness) -> list[Any]:
    """Rows whose timestamp a watermark before them had said to be over."""
    late: list[Any] = []
    reached = -(1 << 63)
    for element in running.elements():
        if isinstance(element, RowBatch):
            assert element.timestamps is not None
            late += [
                row
                for row, stamp in zip(element.rows, element.timestamps, strict=True)
                if stamp is None or stamp <= reached
            ]
        elif isinstance(element, Watermark):
            reached = element.timestamp
    return late


def watermarks(running: OperatorHarness) -> list[int]:
    return [element.timestamp for element in running.elements() if isinstance(element, Watermark)]


@pytest.mark.parametrize("generator", [Greatest, Marking])
def test_no_periodic_watermark_overtakes_rows_that_its_generator_has_seen(generator: Any) -> None:
    World.row, World.end = 1e-5, 400
    strategy = WatermarkStrategy.for_generator(generator).with_timestamp_assigner(Numbered())
    with harness(strategy=strategy) as running:
        (task,) = running.tasks
        World.on_row = staticmethod(
            lambda row: task.post(lambda: World.clock.advance(0.3)) if row == 100 else None
        )
        running.run()
        assert running.output == list(range(400))
        assert late_rows(running) == []
        # What was due is said behind the chunk.
        assert [mark for mark in watermarks(running) if 100 < mark < 300]


def test_no_split_that_comes_between_two_rows_sends_their_watermark_ahead() -> None:
    World.row, World.end = 1e-5, 400
    strategy = WatermarkStrategy.for_generator(Marking).with_timestamp_assigner(Numbered())
    with harness(strategy=strategy) as running:
        (task,) = running.tasks
        head: Any = task.chain.source
        # One that the reader has: it says nothing new of event time.
        World.on_row = staticmethod(
            lambda row: task.post(lambda: head._time.add_splits(["a"])) if row == 100 else None
        )
        running.run()
        assert late_rows(running) == []


def test_no_watermark_overtakes_rows_that_have_the_time_of_their_ingestion() -> None:
    World.row, World.end = 1e-5, 400
    with harness(configuration={"pipeline.time-characteristic": "IngestionTime"}) as running:
        (task,) = running.tasks
        World.on_row = staticmethod(
            lambda row: task.post(lambda: World.clock.advance(0.3)) if row == 100 else None
        )
        running.run()
        assert running.output == list(range(400))
        assert watermarks(running)
        assert late_rows(running) == []


#: A consumer takes one batch before it has run it.
ONE_BATCH = {"taskmanager.network.channel.credit-batches": "1"}
IDLE_AFTER_HALF_A_SECOND = (
    WatermarkStrategy.for_monotonous_timestamps()
    .with_timestamp_assigner(Numbered())
    .with_idleness(Duration.of_millis(500))
)


def test_a_split_becomes_idle_behind_a_cut_that_ran_what_waited() -> None:
    World.row, World.end, World.endless = 1e-6, 256, True
    snapshots = Snapshots()
    with harness(strategy=IDLE_AFTER_HALF_A_SECOND, snapshots=snapshots) as running:
        (task,) = running.tasks
        World.on_row = staticmethod(
            lambda row: task.post(lambda: task.trigger_checkpoint(barrier())) if row == 10 else None
        )
        running.run()
        assert len(snapshots.taken) == 1
        assert running.output == list(range(256))
        for _ in range(10):
            running.advance(0.2)
        assert [e.idle for e in running.elements() if isinstance(e, WatermarkStatus)] == [True]


def test_a_split_that_is_not_asked_for_lack_of_credit_is_not_idle() -> None:
    World.row, World.end, World.poll_rows, World.names = 0.02, 0, 1, ("a", "b")
    World.endless = True
    with harness(strategy=IDLE_AFTER_HALF_A_SECOND, output_credit=1) as running:
        (task,) = running.tasks
        head: Any = task.chain.source
        for _ in range(2):
            running.advance(0.2)
        # Split a is ahead; no credit is left behind its first row.
        World.end = 110
        head._reader.splits.sort(key=lambda split: split.name)
        head._reader.splits[0].next = 100
        running.hold_outputs = True
        task.wake()
        running.run()
        assert task.slices.blocked
        running.advance(10)
        running.hold_outputs = False
        World.endless = False
        task.wake()
        running.run()
        assert 0 in running.output and 100 in running.output
        assert not [e for e in running.elements() if isinstance(e, WatermarkStatus)]
        assert late_rows(running) == []


@pytest.mark.parametrize("waits", [False, True])
def test_a_slow_sink_on_the_same_thread_makes_no_split_idle(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each of the splits is asked in turn, a row at a time, and the sink needs longer for a row than a split to be idle.
    World.row, World.end, World.poll_rows, World.names = 0.7, 5, 1, ("a", "b", "c")
    World.waits, World.poll = waits, (0.05, 0.0)
    idle: list[WatermarkTracker] = []
    monkeypatch.setattr(WatermarkTracker, "mark_idle", idle.append)
    with harness(sink_apart=True, strategy=IDLE_AFTER_HALF_A_SECOND, configuration=ONE_BATCH) as running:
        running.run()
        for _ in range(100):
            running.advance(0.001)
        assert sorted(running.output) == sorted([0, 1, 2, 3, 4] * 3)
        assert idle == []


def test_a_split_without_rows_becomes_idle_beside_a_slow_sink() -> None:
    World.row, World.end, World.poll_rows, World.endless = 0.7, 5, 1, True
    World.poll = (0.05, 0.0)
    with harness(sink_apart=True, strategy=IDLE_AFTER_HALF_A_SECOND, configuration=ONE_BATCH) as running:
        running.run()
        for _ in range(10):
            running.advance(0.2)
        assert [e.idle for e in running.elements() if isinstance(e, WatermarkStatus)] == [True]


def test_a_split_that_is_not_asked_while_a_savepoint_stops_the_job_in_vain_is_not_idle() -> None:
    World.end, World.names, World.endless = 0, ("a", "b"), True
    with harness(strategy=IDLE_AFTER_HALF_A_SECOND, snapshots=Snapshots()) as running:
        (task,) = running.tasks
        for _ in range(2):
            running.advance(0.2)
        task.trigger_checkpoint(barrier(SnapshotKind.SAVEPOINT_SUSPEND))
        assert task.life.stage is TaskStage.SUSPENDED
        running.advance(10)
        World.end, World.endless = 100, False
        task.checkpoint_aborted(1)
        running.run()
        assert sorted(running.output) == sorted(2 * list(range(100)))
        assert not [e for e in running.elements() if isinstance(e, WatermarkStatus)]


def test_restored_rows_of_a_split_that_had_ended_are_not_late() -> None:
    World.row, World.end = 0.3, 0
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbered())
    with harness(strategy=strategy) as running:
        (task,) = running.tasks
        head: Any = task.chain.source
        head._carried = [
            SourceRecords([500, 501], None, "a"),
            SourceRecords([10, 11], None, "old"),
            SourceRecords([], finished_before=("old",)),
        ]
        task.reading.recover()
        running.run()
        assert running.output == [500, 501, 10, 11]
        assert late_rows(running) == []


def test_restored_record_batches_are_run_as_such() -> None:
    World.end, World.row, parts = 0, 1e-9, list[int]()
    with column_harness(ColumnPolled(), parts) as running:
        (task,) = running.tasks
        head: Any = task.chain.source
        head._carried = [SourceRecords(pa.RecordBatch.from_pydict({"n": list(range(30_000))}), None, "a")]
        task.reading.recover()
        running.run()
    assert sum(parts) == 30_000
    assert max(parts) > 2048


# ---------------------------------------------------------------------- cuts at odd moments


def test_a_cut_before_the_first_chunk_is_not_late_by_all_that_was_read() -> None:
    World.row, World.end = 0.02, 300
    snapshots = Snapshots()
    with harness(snapshots=snapshots) as running:
        (task,) = running.tasks

        def on_poll() -> None:
            if len(World.asked) == 1:
                task.post(lambda: task.trigger_checkpoint(barrier()))

        World.on_poll = staticmethod(on_poll)
        running.run()
        # Nothing is known of what a row costs.
        assert [row for entry in snapshots.state(CARRIED) for row in entry[4]] == list(range(256))
        assert running.output == list(range(300))


class WithSides(Polled):
    def create_reader(self, context: Any) -> Any:
        return ReaderWithSides()


class ReaderWithSides(PolledReader):
    """Says to a side output where each poll began."""

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        found = super().poll(max_rows)
        if isinstance(found, SourceRecords):
            found.side = [("begins", found.rows[0])]
        return found


def test_what_went_to_a_side_output_is_not_carried_by_a_cut_before_the_first_row() -> None:
    World.row, World.end = 0.02, 300
    snapshots = Snapshots()

    def fragment(env: Any) -> Any:
        stream = env.from_source(WithSides(), WatermarkStrategy.no_watermarks(), "polled")
        return stream.map(run_row), stream.get_side_output(OutputTag("begins")).map(lambda row: row)

    with OperatorHarness(
        fragment, inputs=0, clock=World.clock, state=HarnessState(snapshots=snapshots)
    ) as running:
        begin(running)
        (task,) = running.tasks
        begin_chunk = task.slices.chunk.begin

        def interrupted(rows: Sequence[Any]) -> Any:
            task.slices.chunk.begin = begin_chunk  # type: ignore[method-assign]
            found = begin_chunk(rows)
            task.post(lambda: task.trigger_checkpoint(barrier()))
            return found

        task.slices.chunk.begin = interrupted  # type: ignore[method-assign]
        running.run()
        assert [entry[6] for entry in snapshots.state(CARRIED)] == [None] * len(snapshots.state(CARRIED))
        assert sum(len(entry[4]) for entry in snapshots.state(CARRIED)) == 256
        assert running.outputs(0) == list(range(300))
        assert running.outputs(1) == [0, 256]


def row_by_row(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for at in range(len(batch)):
        World.on_row(batch.column("n")[at].as_py())
        yield batch.slice(at, 1)


def test_a_checkpoint_of_a_source_comes_behind_all_that_a_record_batch_has_become() -> None:
    World.end, World.poll_rows = 40, 20
    snapshots = Snapshots()
    with OperatorHarness(
        lambda env: env.from_source(
            ColumnPolled(heeds=False), WatermarkStrategy.no_watermarks(), "polled"
        ).map_batches(row_by_row, COLUMNS),
        inputs=0,
        clock=World.clock,
        state=HarnessState(snapshots=snapshots),
    ) as running:
        begin(running)
        (task,) = running.tasks
        made: list[int] = []
        ran: list[int] = []

        def on_row(row: int) -> None:
            made.append(row)
            if row == 5:
                task.post(lambda: ran.append(len(made)))
            if row == 10:
                task.post(lambda: task.trigger_checkpoint(barrier()))

        World.on_row = staticmethod(on_row)
        running.run()
        assert ran == [6], "the mail came between two batches"
        elements = running.elements()
        place = next(at for at, each in enumerate(elements) if isinstance(each, CheckpointBarrier))
        rows = [
            [row.n for each in part if isinstance(each, RowBatch) for row in each.rows]
            for part in (elements[:place], elements[place:])
        ]
        (split,) = snapshots.state("source-splits")
        assert rows == [[*range(split.next)], [*range(split.next, 40)]] and made == [*range(40)]
