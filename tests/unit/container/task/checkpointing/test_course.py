"""Checkpoints in workers: duplicates, refusals, aborts, the last checkpoint, savepoints that stop the job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.support.checkpoint_harness import CheckpointHarness, TakenCheckpoint
from yarrow.common.configuration import Configuration
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import CheckpointedFunction, MapFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.base import Committer, Sink, SinkWriter
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import CheckpointNotice


@pytest.fixture
def workers() -> Iterator[CheckpointHarness]:
    with CheckpointHarness(2, processes=False) as harness:
        yield harness
        if any(not state.is_terminal for state in harness.states.values()):
            harness.cancel_and_wait()
    harness.close()


def environment(parallelism: int, configuration: dict[str, str] | None = None) -> StreamExecutionEnvironment:
    made = Configuration()
    for key, value in (configuration or {}).items():
        made.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(made).set_parallelism(parallelism)


class Moody(MapFunction[Any, Any], CheckpointedFunction):
    """Fails at the cut while `Calls.fails` is set."""

    def initialize_state(self, context: Any) -> None:
        return None

    def snapshot_state(self, context: Any) -> None:
        if Calls.fails:
            raise OSError("no room for that")

    def map(self, value: Any) -> Any:
        return value


class Calls:
    fails: ClassVar[bool] = False
    committed: ClassVar[list[Any]] = []


def endless(parallelism: int = 2, rate: float = 2000) -> JobGraph:
    env = environment(parallelism)
    source = DataGeneratorSource(lambda i: i, 10**9, RateLimiterStrategy.per_second(rate))
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(Moody()).name("moody")
    stream.key_by(lambda v: v % 7).reduce(lambda a, b: a + b).print()
    return env.get_job_graph("endless")


def running(workers: CheckpointHarness, graph: JobGraph) -> None:
    workers.output.clear()
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    workers.until(lambda: len(workers.output) > 20)


def test_duplicates_and_old_ids_change_nothing(workers: CheckpointHarness) -> None:
    running(workers, endless())
    workers.checkpoint(3)
    for number in (3, 2):
        taken = workers.checkpoints.get(number) or workers.checkpoints[3]
        count = len(taken.acknowledged)
        for place in workers.states:
            workers._begin(
                workers._worker_of[place], number, workers.options(number), attempts=(workers.attempt(place),)
            )
        assert len(taken.acknowledged) == count
    workers.notify(3, CheckpointNotice.COMPLETED)
    workers.notify(1, CheckpointNotice.ABORTED)
    workers.checkpoint(4)
    assert not workers.checkpoints[3].declined


def test_a_cut_that_fails_declines_naming_the_operator_and_the_job_goes_on(
    workers: CheckpointHarness,
) -> None:
    running(workers, endless())
    Calls.fails = True
    try:
        taken = workers.trigger(1)
        workers.until(lambda: bool(taken.declined))
    finally:
        Calls.fails = False
    assert taken.declined[0].cause.operator_name == "moody" and not taken.declined[0].not_ready
    assert "no room for that" in taken.declined[0].cause.message
    workers.notify(1, CheckpointNotice.ABORTED)
    workers.checkpoint(2)
    # Of the one that was given up nothing is left, not even what was acknowledged.
    assert taken.coordinators and not os.path.exists(taken.directory)


def test_a_folder_that_cannot_be_written_declines(workers: CheckpointHarness) -> None:
    running(workers, endless())
    options = workers.options(1)
    os.rmdir(options.location.directory)
    with open(options.location.directory, "wb"):
        pass
    taken = workers.trigger(1, options)
    workers.until(lambda: bool(taken.declined))
    assert options.location.directory in taken.declined[0].cause.message
    workers.notify(1, CheckpointNotice.ABORTED)
    workers.checkpoint(2)


def test_a_trigger_for_an_attempt_that_has_ended_is_dropped(
    workers: CheckpointHarness, caplog: pytest.LogCaptureFixture
) -> None:
    running(workers, endless())
    first = next(iter(workers.states))
    old = workers.attempt(first)
    workers.cancel_and_wait()
    taken = workers.checkpoints.setdefault(7, workers_taken(workers, 7))
    workers._begin(workers._worker_of[first], 7, workers.options(7), attempts=(old,))
    running(workers, endless())
    workers.checkpoint(8)
    assert not taken.acknowledged and not taken.declined, "the JobMaster knows of its end"
    assert not [record for record in caplog.records if "checkpoint 7 declined" in record.getMessage()]


def workers_taken(workers: CheckpointHarness, number: int) -> Any:
    return TakenCheckpoint(number, "", workers._graph)


def test_what_comes_for_an_aborted_checkpoint_is_dropped(workers: CheckpointHarness) -> None:
    running(workers, endless())
    workers.notify(1, CheckpointNotice.ABORTED)
    workers.checkpoints[1] = workers_taken(workers, 1)
    for place in workers.states:
        workers._begin(workers._worker_of[place], 1, workers.options(1), attempts=(workers.attempt(place),))
    workers.checkpoint(2)
    assert workers.checkpoints[1].acknowledged == {}
    assert os.listdir(workers.options(1).location.directory) == []


@pytest.mark.parametrize("kind", [SnapshotKind.SAVEPOINT_SUSPEND, SnapshotKind.SAVEPOINT_TERMINATE])
def test_a_savepoint_stops_the_job(workers: CheckpointHarness, kind: SnapshotKind) -> None:
    running(workers, endless())
    taken = workers.trigger(1, workers.options(1, kind=kind))
    workers.wait_acknowledged(taken)
    assert set(workers.states.values()) == {ExecutionState.RUNNING}
    lines = len(workers.output)
    workers.notify(1, CheckpointNotice.COMPLETED)
    workers.until_all(ExecutionState.FINISHED)
    assert len(workers.output) == lines
    # All of it can be gone on from.
    workers.start(workers._graph, taken)
    workers.until_all(ExecutionState.RUNNING)
    workers.until(lambda: len(workers.output) > lines)


def test_the_word_that_stops_a_job_may_come_again(workers: CheckpointHarness) -> None:
    running(workers, endless())
    options = workers.options(2, kind=SnapshotKind.SAVEPOINT_SUSPEND)
    taken = workers.trigger(2, options)
    workers.wait_acknowledged(taken)
    overtaken = workers.checkpoints.setdefault(1, workers_taken(workers, 1))
    for number in (2, 1):
        for place in workers.states:
            workers._begin(
                workers._worker_of[place], number, workers.options(number), attempts=(workers.attempt(place),)
            )
    # What comes behind both tells that they have been looked at.
    later = workers.trigger(3)
    workers.until(lambda: len(later.declined) >= 2)
    assert "stands at a savepoint" in later.declined[0].cause.message
    assert not taken.declined and not overtaken.declined
    workers.notify(2, CheckpointNotice.COMPLETED)
    workers.until_all(ExecutionState.FINISHED)
    source = workers._graph.vertices[0].id
    assert workers.latest_checkpoints == {
        place: 3 if place[0] == source else 2 for place in workers.states
    }, "what each has cut or declined last"


def test_a_job_goes_on_when_the_savepoint_that_was_to_stop_it_is_given_up(workers: CheckpointHarness) -> None:
    running(workers, endless())
    taken = workers.trigger(1, workers.options(1, kind=SnapshotKind.SAVEPOINT_SUSPEND))
    workers.wait_acknowledged(taken)
    workers.notify(1, CheckpointNotice.ABORTED)
    lines = len(workers.output)
    workers.until(lambda: len(workers.output) > lines + 50)
    workers.checkpoint(2)


def test_a_drained_job_whose_savepoint_is_given_up_fails(workers: CheckpointHarness) -> None:
    running(workers, endless())
    taken = workers.trigger(1, workers.options(1, kind=SnapshotKind.SAVEPOINT_TERMINATE))
    workers.wait_acknowledged(taken)
    workers.notify(1, CheckpointNotice.ABORTED)
    workers.until(lambda: ExecutionState.FAILED in workers.states.values())
    assert "drained" in next(iter(workers.causes.values())).message


class Writer(SinkWriter[Any]):
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def write(self, rows: Any, timestamps: Any) -> None:
        self.rows += rows

    def prepare_commit(self) -> list[Any]:
        rows, self.rows = self.rows, []
        return [rows] if rows else []


class Commits(Committer):
    def commit(self, committables: Any) -> None:
        for rows in committables:
            Calls.committed += rows


class Transactional(Sink[Any]):
    def create_writer(self, context: Any, restored: Any = ()) -> Writer:
        return Writer()

    def create_committer(self) -> Commits:
        return Commits()


def bounded(parallelism: int) -> JobGraph:
    env = environment(parallelism, {"execution.checkpointing.interval": "1 h"})
    numbers = env.from_source(NumberSequenceSource(1, 1000), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.rebalance().map(lambda v: v * 2).sink_to(Transactional())
    return env.get_job_graph("bounded")


@pytest.mark.parametrize("restored", [False, True])
def test_sinks_wait_for_the_checkpoint_behind_the_end(workers: CheckpointHarness, restored: bool) -> None:
    Calls.committed.clear()
    graph = bounded(2)
    sinks = {(vertex.id, i) for vertex in graph.vertices[1:] for i in range(2)}
    workers.start(graph)
    workers.until(lambda: sinks <= workers.at_end_of_data)
    workers.until(
        lambda: all(
            workers.states[place] is ExecutionState.FINISHED for place in workers.states if place not in sinks
        )
    )
    assert Calls.committed == []
    taken = workers.trigger(1)
    workers.wait_acknowledged(taken)
    assert all(taken.acknowledged[place].finished for place in sinks)
    assert Calls.committed == []
    if restored:
        # Its sources had ended: they are skipped, and the sinks commit what the checkpoint holds.
        workers.cancel_and_wait()
        workers.start(graph, taken)
        workers.until(
            lambda: sinks <= workers.at_end_of_data or all(s.is_terminal for s in workers.states.values())
        )
        assert sorted(Calls.committed) == list(range(2, 2001, 2))
        if any(not state.is_terminal for state in workers.states.values()):
            workers.checkpoint(2)
    else:
        workers.notify(1, CheckpointNotice.COMPLETED)
    workers.until_all(ExecutionState.FINISHED)
    assert sorted(Calls.committed) == list(range(2, 2001, 2))
