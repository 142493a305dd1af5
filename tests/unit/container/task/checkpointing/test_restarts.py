"""Attempt after attempt in the same workers: nothing of a former one is read, and nothing of it stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.support.checkpoint_harness import CheckpointHarness
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.network.network_environment import NetworkEnvironment
from yarrow.container.protocol.worker_protocol import DeliverOperatorEvent
from yarrow.container.worker.worker import WorkerThread
from yarrow.datastream import SourceFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import OperatorEvent


@pytest.fixture
def workers() -> Iterator[CheckpointHarness]:
    with CheckpointHarness(2, processes=False) as harness:
        yield harness
    harness.close()


def shuffled(count: int = 10**9) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    source = DataGeneratorSource(lambda i: i, count, RateLimiterStrategy.per_second(3000))
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.key_by(lambda v: v % 7).reduce(lambda a, b: a + b).print()
    return env.get_job_graph("shuffled")


def networks(workers: CheckpointHarness) -> list[NetworkEnvironment]:
    return [thread._worker._network for thread in workers._threads if isinstance(thread, WorkerThread)]


def test_nothing_grows_with_the_number_of_attempts(workers: CheckpointHarness) -> None:
    graph = shuffled()
    taken = None
    for number in range(1, 6):
        workers.output.clear()
        workers.start(graph, taken)
        workers.until_all(ExecutionState.RUNNING)
        workers.until(lambda: len(workers.output) > 10)
        taken = workers.checkpoint(number)
        workers.cancel_and_wait()
    tasks = len(workers.states)
    # One more run to its end: its last messages come behind what the ends of earlier attempts sent.
    workers.start(shuffled(200))
    workers.until_all(ExecutionState.FINISHED)
    for network in networks(workers):
        assert len(network._released) <= 2 * tasks
        assert not network._inputs and not network._waiting_local and not network._waiting_remote
        for peer in network._peers.values():
            assert not peer.outgoing and not peer.producers
            assert len(peer.incoming) <= tasks
    for thread in workers._threads:
        if isinstance(thread, WorkerThread):
            jobs = thread._worker._jobs
            # The enumerator of the job that was cancelled lives until its slot is given up.
            assert len(jobs.sources._hosted) <= 1 and not jobs.sources._early
            assert not jobs._running


def test_an_event_for_an_attempt_that_has_ended_is_not_given_to_the_next(workers: CheckpointHarness) -> None:
    graph = shuffled()
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    source = graph.vertices[0]
    old = workers.attempt((source.id, 1))
    workers.cancel_and_wait()
    stale = OperatorEvent(
        job_id=graph.job_id,
        vertex_id=source.id,
        operator_id=source.operators[0].id,
        target_subtask=1,
        source_subtask=-1,
        payload=b"no event at all",
        target_attempt=old,
        source_attempt=workers.attempt((source.id, 0)),
    )
    for framed in workers._sockets:
        framed.send(DeliverOperatorEvent(event=stale))
    workers.start(graph)
    workers.until_all(ExecutionState.RUNNING)
    workers.output.clear()
    # A reader that had been given it would have failed.
    workers.until(lambda: len(workers.output) > 50)
    assert set(workers.states.values()) == {ExecutionState.RUNNING}
    workers.cancel_and_wait()


class Deaf(SourceFunction[int]):
    """Does not hear that it is cancelled."""

    go: ClassVar[threading.Event] = threading.Event()

    def run(self, ctx: Any) -> None:
        ctx.collect(1)
        Deaf.go.wait(120)

    def cancel(self) -> None:
        return None


def test_a_task_tells_which_threads_it_leaves_behind(workers: CheckpointHarness) -> None:
    Deaf.go.clear()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.add_source(Deaf(), "deaf").print()
    workers.start(env.get_job_graph("deaf"))
    workers.until(lambda: workers.output == ["1"])
    workers.cancel_and_wait()
    assert workers.ended_with_threads == ["source Source: deaf"]
    Deaf.go.set()
