"""Sources go on where the checkpoint found them: enumerators and readers, one reader alone, SourceFunctions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.support.checkpoint_harness import CheckpointHarness
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.protocol.worker_protocol import CancelTasks, MessageFromWorker, TaskStateChanged
from yarrow.datastream import (
    CheckpointedFunction,
    MapFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors.base import SplitEnumerator
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.datastream.connectors.number_seq import even_ranges
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator, unassigned_or
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.ids import ExecutionAttemptID, JobVertexID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import CheckpointNotice

COUNT = 3000


@pytest.fixture
def workers() -> Iterator[CheckpointHarness]:
    Seen.rows = {}
    Seen.lock = threading.Lock()
    with CheckpointHarness(2, processes=False) as harness:
        yield harness
        if any(not state.is_terminal for state in harness.states.values()):
            harness.cancel_and_wait()
    harness.close()


class Seen(MapFunction[Any, Any], CheckpointedFunction):
    """Notes what it sees; what it saw behind the checkpoint that is restored it forgets. Workers are threads here."""

    rows: ClassVar[dict[int, list[Any]]] = {}
    lock: ClassVar[threading.Lock] = threading.Lock()

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen"))
        self.restored = list(self.state.get())
        self.is_restored = context.is_restored()

    def open(self, runtime_context: RuntimeContext) -> None:
        self.mine: list[Any] = []
        with Seen.lock:
            index = runtime_context.get_index_of_this_subtask()
            if self.is_restored:
                self.mine += self.restored
            Seen.rows[index] = self.mine

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.mine)

    def map(self, value: Any) -> Any:
        self.mine.append(value)
        return value


def seen() -> Counter[Any]:
    return Counter(row for rows in Seen.rows.values() for row in rows)


def count() -> int:
    return sum(len(rows) for rows in Seen.rows.values())


class ManySplits(DataGeneratorSource[int]):
    """Hands out small splits, so that every checkpoint finds some on their way."""

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        return OnRequestEnumerator(context, unassigned_or(checkpoint, even_ranges(0, COUNT, 150)))


def many_splits(parallelism: int = 2) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    source = ManySplits(lambda i: i, COUNT, RateLimiterStrategy.per_second(3000))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "splits").map(Seen()).filter(
        lambda v: False
    ).print()
    return env.get_job_graph("splits")


def test_splits_on_their_way_are_neither_lost_nor_read_twice(workers: CheckpointHarness) -> None:
    graph = many_splits()
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    for number in range(1, 6):
        workers.checkpoint(number)
    taken = workers.checkpoint(6)
    pending = workers.trigger(7)
    workers.wait_acknowledged(pending)
    workers.cancel_and_wait()
    workers.start(graph, taken)
    workers.until_all(ExecutionState.RUNNING)
    workers.checkpoint(8)
    again = workers.checkpoint(9)
    workers.cancel_and_wait()
    Seen.rows = {}
    workers.start(many_splits(3), again)
    workers.until_all(ExecutionState.FINISHED)
    assert seen() == Counter(range(COUNT))


@pytest.mark.slow
@pytest.mark.parametrize("completed", [False, True])
def test_one_reader_goes_back_alone(workers: CheckpointHarness, completed: bool) -> None:
    graph = many_splits()
    (vertex,) = graph.vertices
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    taken = workers.checkpoint(1) if completed else None
    under_way = workers.trigger(2)
    workers.until(lambda: bool(under_way.acknowledged))
    place = (vertex.id, 1)
    workers._sockets[workers._worker_of[place]].send(CancelTasks(attempts=(workers.attempt(place),)))
    workers.until(lambda: workers.states[place] is ExecutionState.CANCELED)
    workers.notify(2, CheckpointNotice.ABORTED)
    workers.reset(vertex.id, 1, 1 if completed else -1)
    workers.restart_subtasks([place], taken)
    workers.until(lambda: workers.states[place] is ExecutionState.RUNNING)
    workers.checkpoint(3)
    workers.until_all(ExecutionState.FINISHED)
    assert seen() == Counter(range(COUNT))


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_word_of_a_former_attempt_that_comes_late_is_not_taken_for_the_next(
    workers: CheckpointHarness, times: int
) -> None:
    graph = many_splits()
    (vertex,) = graph.vertices
    place = (vertex.id, 1)
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    taken = workers.checkpoint(1)
    ended = workers.attempt(place)
    workers._sockets[workers._worker_of[place]].send(CancelTasks(attempts=(ended,)))
    workers.until(lambda: workers.states[place] is ExecutionState.CANCELED)
    workers.restart_subtasks([place], taken)
    workers.until(lambda: workers.states[place] is ExecutionState.RUNNING)
    # Its enumerator has heard of the new attempt.
    rows = len(Seen.rows[1])
    workers.until(lambda: len(Seen.rows[1]) > rows or workers.states[place] is ExecutionState.FINISHED)
    for _ in range(times):
        workers.reset(vertex.id, 1, 1, ended)
    workers.until_all(ExecutionState.FINISHED)
    assert seen() == Counter(range(COUNT))


class SecondReaderOnly(OnRequestEnumerator[Any]):
    """The reader beside it ends at once."""

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        if subtask == 0:
            self._context.signal_no_more_splits(0)
        else:
            super().handle_split_request(subtask, host)


class ReadBySecond(DataGeneratorSource[int]):
    """All splits go to reader 1."""

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        return SecondReaderOnly(context, unassigned_or(checkpoint, even_ranges(0, COUNT, 150)))


def test_an_enumerator_serves_others_when_the_reader_beside_it_had_ended(workers: CheckpointHarness) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    source = ReadBySecond(lambda i: i, COUNT, RateLimiterStrategy.per_second(6000))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "splits").map(Seen()).filter(
        lambda v: False
    ).print()
    graph = env.get_job_graph("second")
    (vertex,) = graph.vertices
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    workers.until(lambda: (vertex.id, 0) in workers.at_end_of_data)
    for first in (1, 3):
        taken = workers.checkpoint(first)
        taken.finished |= taken.ended_at_their_cut()
        assert taken.finished == {(vertex.id, 0)}
        workers.cancel_and_wait()
        workers.start(graph, taken)
        workers.until_all(ExecutionState.RUNNING)
        assert workers.checkpoint(first + 1).coordinators
    workers.until_all(ExecutionState.FINISHED)
    assert seen() == Counter(range(COUNT))


class GivenAtOnce(SplitEnumerator[Any]):
    """Gives each reader its splits when it registers: a short one to reader 1, all others to reader 0."""

    def __init__(self, context: Any, splits: Any) -> None:
        self._context = context
        self._splits = list(splits)

    def add_reader(self, subtask: int) -> None:
        given = self._splits[:1] if subtask == 1 else self._splits[1:]
        for split in given if self._context.parallelism == 2 else self._splits:
            self._context.assign_split(split, subtask)
            self._splits.remove(split)
        self._context.signal_no_more_splits(subtask)

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        return None

    def add_splits_back(self, splits: Any, subtask: int) -> None:
        self._splits += splits

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return list(self._splits)


class Given(DataGeneratorSource[int]):
    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        return GivenAtOnce(context, unassigned_or(checkpoint, even_ranges(0, COUNT, 100)))


def test_what_a_reader_had_read_that_has_ended_is_not_read_again_at_another_parallelism(
    workers: CheckpointHarness,
) -> None:
    def graph(parallelism: int) -> JobGraph:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
        source = Given(lambda i: i, COUNT, RateLimiterStrategy.per_second(4000))
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "given")
        stream.map(Seen()).filter(lambda v: False).print()
        return env.get_job_graph("given")

    workers.start(graph(2))
    (vertex,) = workers._graph.vertices
    workers.until(lambda: workers.states[vertex.id, 1] is ExecutionState.FINISHED)
    first = list(Seen.rows[1])
    assert first
    taken = workers.checkpoint(1)
    assert taken.finished == {(vertex.id, 1)}
    workers.cancel_and_wait()
    Seen.rows = {}
    workers.start(graph(3), taken)
    workers.until_all(ExecutionState.FINISHED)
    assert Counter(first) + seen() == Counter(range(COUNT))


class Positioned(SourceFunction[int], CheckpointedFunction):
    """Emits numbers under the checkpoint lock; its position is its state."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("position"))
        self.next = next(iter(self.state.get()), 0)
        self.running = True

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.next])

    def run(self, ctx: Any) -> None:
        while self.running and self.next < Positioned.stop:
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self) -> None:
        self.running = False

    stop: ClassVar[int] = 300_000


@pytest.mark.slow
def test_a_source_function_is_cut_between_two_records(workers: CheckpointHarness) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.add_source(Positioned(), "positioned").map(Seen()).filter(lambda v: False).print()
    graph = env.get_job_graph("positioned")
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    workers.checkpoint(1)
    taken = workers.checkpoint(2)
    workers.cancel_and_wait()
    workers.start(graph, taken)
    workers.until_all(ExecutionState.FINISHED)
    assert Seen.rows[0] == list(range(Positioned.stop))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SnapshotKind.SAVEPOINT_SUSPEND, SnapshotKind.SAVEPOINT_TERMINATE])
def test_a_stopped_source_function_goes_on_behind_its_last_record(
    workers: CheckpointHarness, kind: SnapshotKind
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.add_source(Positioned(), "positioned").map(Seen()).filter(lambda v: False).print()
    graph = env.get_job_graph("positioned")
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    taken = workers.trigger(1, workers.options(1, kind=kind))
    workers.wait_acknowledged(taken)
    workers.notify(1, CheckpointNotice.COMPLETED)
    workers.until_all(ExecutionState.FINISHED)
    stopped_at = len(Seen.rows[0])
    assert Seen.rows[0] == list(range(stopped_at))
    workers.start(graph, taken)
    workers.until_all(ExecutionState.FINISHED)
    assert Seen.rows[0] == list(range(Positioned.stop))


def test_at_least_once_loses_nothing(workers: CheckpointHarness) -> None:
    graph = many_splits()
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    taken = workers.checkpoint(1, workers.options(1, exactly_once=False))
    workers.cancel_and_wait()
    workers.start(graph, taken)
    workers.until_all(ExecutionState.FINISHED)
    assert set(seen()) == set(range(COUNT))


# ---------------------------------------------------------------------- who was done when an enumerator ended


class Noting(CheckpointHarness):
    """Notes what the ends of tasks say of the readers of their source."""

    def __init__(self) -> None:
        super().__init__(2, processes=False)
        self.done: dict[tuple[JobVertexID, int], tuple[ExecutionAttemptID, ...] | None] = {}

    def _note(self, message: MessageFromWorker) -> None:
        if isinstance(message, TaskStateChanged) and message.update.state is ExecutionState.FINISHED:
            self.done[self._attempts[message.update.attempt_id]] = message.update.finished_readers
        super()._note(message)


@pytest.fixture
def noting() -> Iterator[Noting]:
    Seen.rows = {}
    with Noting() as harness:
        yield harness
        if any(not state.is_terminal for state in harness.states.values()):
            harness.cancel_and_wait()
    harness.close()


def test_subtask_0_names_the_readers_that_were_done_when_its_enumerator_ended(noting: Noting) -> None:
    graph = many_splits()
    (vertex,) = graph.vertices
    noting.start(graph)
    noting.until_all(ExecutionState.FINISHED)
    readers = {noting.attempt((vertex.id, number)) for number in range(2)}
    done = noting.done[vertex.id, 0]
    assert done is not None and set(done) == readers
    assert noting.done[vertex.id, 1] is None


def test_a_savepoint_that_stops_the_job_ends_an_enumerator_though_no_reader_is_done(noting: Noting) -> None:
    graph = many_splits()
    (vertex,) = graph.vertices
    noting.start(graph)
    noting.until_all(ExecutionState.RUNNING)
    noting.checkpoint(1, noting.options(1, kind=SnapshotKind.SAVEPOINT_SUSPEND))
    noting.until_all(ExecutionState.FINISHED)
    assert noting.done == {(vertex.id, 0): None, (vertex.id, 1): None}
