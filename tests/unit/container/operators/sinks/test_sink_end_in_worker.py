"""The checkpoint behind the end was complete, its commits were not done: the job that restores it commits the tail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkpoint_harness import CheckpointHarness
from yarrow.common.configuration import Configuration
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import CheckpointNotice
from yarrow.testing.transactional_files import CommittedFiles, FileTransaction, TransactionalFiles


@pytest.fixture
def workers() -> Iterator[CheckpointHarness]:
    with CheckpointHarness(2) as harness:
        yield harness
        if any(not state.is_terminal for state in harness.states.values()):
            harness.cancel_and_wait()
    harness.close()


def wait_for_the_end(workers: CheckpointHarness) -> None:
    """Until every task has ended or waits for its last checkpoint; no row, nothing to commit."""
    workers.until(
        lambda: all(
            state is ExecutionState.FINISHED
            or (place in workers.at_end_of_data and "Source" not in workers._graph.vertex(place[0]).name)
            for place, state in workers.states.items()
        )
    )


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_tail_is_committed_by_tasks_that_had_ended(
    workers: CheckpointHarness, tmp_path: Path, parallelism: int
) -> None:
    made = Configuration()
    made.set_string("execution.checkpointing.interval", "1 h")
    committed = CommittedFiles(tmp_path)

    def start_from(restored: int | None, parallelism: int) -> None:
        env = StreamExecutionEnvironment.get_execution_environment(made).set_parallelism(parallelism)
        env.set_max_parallelism(128)
        numbers = env.from_source(NumberSequenceSource(1, 100), WatermarkStrategy.no_watermarks(), "numbers")
        stream = numbers.uid("numbers").set_parallelism(1).rebalance()
        stream.sink_to(TransactionalFiles(str(tmp_path))).uid("sink")
        graph = env.get_job_graph("tail")
        workers.start(graph, None if restored is None else workers.checkpoints[restored])

    start_from(None, 2)
    wait_for_the_end(workers)
    assert workers.at_end_of_data
    taken = workers.trigger(1)
    workers.wait_acknowledged(taken)
    taken.finished |= taken.ended_at_their_cut()
    assert taken.finished == workers.states.keys()
    # Complete; nobody is told.
    workers.cancel_and_wait()
    assert committed.rows() == []
    start_from(1, parallelism)
    workers.until_all(ExecutionState.FINISHED)
    assert sorted(committed.rows()) == list(range(1, 101))
    assert committed.leftovers() == []
    assert committed.committed_twice() == []


def test_the_checkpoint_behind_the_end_ends_the_job(workers: CheckpointHarness, tmp_path: Path) -> None:
    made = Configuration()
    made.set_string("execution.checkpointing.interval", "1 h")
    env = StreamExecutionEnvironment.get_execution_environment(made).set_parallelism(2)
    numbers = env.from_source(NumberSequenceSource(1, 100), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.set_parallelism(1).rebalance().sink_to(TransactionalFiles(str(tmp_path)))
    workers.start(env.get_job_graph("end"))
    wait_for_the_end(workers)
    workers.wait_acknowledged(workers.trigger(1))
    assert CommittedFiles(tmp_path).rows() == []
    workers.notify(1, CheckpointNotice.COMPLETED)
    workers.until_all(ExecutionState.FINISHED)
    assert sorted(CommittedFiles(tmp_path).rows()) == list(range(1, 101))


class Blocked(TransactionalFiles):
    """Commits nothing while a file of that name lies in its folder."""

    def commit(self, transaction: FileTransaction) -> None:
        if Path(self.folder, "blocked").exists():
            raise OSError("blocked")
        super().commit(transaction)


def test_a_task_that_had_ended_takes_part_in_checkpoints_until_its_tail_is_committed(
    workers: CheckpointHarness, tmp_path: Path
) -> None:
    made = Configuration()
    made.set_string("execution.checkpointing.interval", "1 h")
    made.set_string("sink.committer.retries", "1000000")
    made.set_string("sink.committer.retry-delay", "10 ms")
    env = StreamExecutionEnvironment.get_execution_environment(made).set_parallelism(2)
    numbers = env.from_source(NumberSequenceSource(1, 100), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.set_parallelism(1).rebalance().sink_to(Blocked(str(tmp_path)))
    graph = env.get_job_graph("tail")
    (tmp_path / "blocked").touch()
    workers.start(graph)
    wait_for_the_end(workers)
    taken = workers.trigger(1)
    workers.wait_acknowledged(taken)
    for number in (2, 3):
        taken.finished |= taken.ended_at_their_cut()
        workers.cancel_and_wait()
        workers.start(graph, taken)
        wait_for_the_end(workers)
        taken = workers.trigger(number)
        workers.wait_acknowledged(taken)
    taken.finished |= taken.ended_at_their_cut()
    workers.cancel_and_wait()
    (tmp_path / "blocked").unlink()
    workers.start(graph, taken)
    workers.until_all(ExecutionState.FINISHED)
    assert sorted(CommittedFiles(tmp_path).rows()) == list(range(1, 101))
    assert CommittedFiles(tmp_path).committed_twice() == []
