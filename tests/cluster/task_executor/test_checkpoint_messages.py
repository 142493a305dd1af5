"""Checkpoint messages through a TaskExecutor: to the workers they concern, and back to the JobMaster at least once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cluster.task_executor.conftest import JOB, attempt, cluster, graph_of, task
from tests.unit.container.supervisor.conftest import eventually, run
from yarrow.runtime.common.errors import FencingTokenError
from yarrow.runtime.common.ids import ExecutionAttemptID, JobMasterID, OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.graph.connector_spec import SourceOperator
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CheckpointNotice,
    NotifyCheckpoint,
    ResetSubtask,
    TriggerCheckpoint,
)

JOB_MASTER_ID = JobMasterID("jm-1")
OPTIONS = CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=CheckpointLocation(directory=""))


def with_source() -> JobGraph:
    """Vertex 0 is a source."""
    graph = graph_of("source", "behind")
    source = graph.vertices[0]
    head = msgspec.structs.replace(source.operators[0], spec=SourceOperator(source=b""))
    vertices = (msgspec.structs.replace(source, operators=(head,)), *graph.vertices[1:])
    return msgspec.structs.replace(graph, vertices=vertices)


def trigger(*attempts: ExecutionAttemptID, coordinators: tuple[str, ...] = ()) -> TriggerCheckpoint:
    return TriggerCheckpoint(
        job_id=JOB,
        checkpoint_id=5,
        timestamp_ms=0,
        options=OPTIONS,
        attempts=attempts,
        coordinators=tuple(OperatorID(operator) for operator in coordinators),
    )


def test_triggers_reach_tasks_and_enumerators_and_are_answered(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            first, second = await c.active_slot(0, 1), await c.active_slot(1, 2)
            await c.submit(with_source(), task(0, 0, first), task(0, 1, second))
            await c.gateway.trigger_checkpoint(JOB_MASTER_ID, trigger(coordinators=("o0",)))
            await eventually(lambda: len(c.job_master.acknowledged) == 1, "the enumerator has answered")
            (answer,) = c.job_master.acknowledged
            assert isinstance(answer, AcknowledgeCoordinator) and answer.operator_id == "o0"
            await c.gateway.trigger_checkpoint(JOB_MASTER_ID, trigger(attempt(0, 0), attempt(0, 1)))
            await eventually(lambda: len(c.job_master.ended) == 2, "both tasks have answered")
            answers = [each for each in c.job_master.acknowledged if isinstance(each, AcknowledgeCheckpoint)]
            assert {each.attempt_id for each in answers} == {attempt(0, 0), attempt(0, 1)}
            assert c.job_master.declined == []

    run(body())


def test_an_enumerator_that_does_not_run_here_is_declined_and_a_task_is_not(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            slot = await c.active_slot()
            await c.submit(with_source(), task(1, 0, slot))
            await c.gateway.trigger_checkpoint(JOB_MASTER_ID, trigger(attempt(0, 1), coordinators=("o0",)))
            await eventually(lambda: bool(c.job_master.declined), "the enumerator was declined")
            # The answer of a task that runs comes behind whatever was said of the other task.
            await c.gateway.trigger_checkpoint(JOB_MASTER_ID, trigger(attempt(1, 0)))
            await eventually(lambda: bool(c.job_master.acknowledged), "the task has answered")
            (declined,) = c.job_master.declined
            assert (declined.attempt_id, declined.checkpoint_id) == ("", 5)

    run(body())


def test_notices_reach_every_worker_and_a_reset_the_one_of_the_enumerator(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            first, second = await c.active_slot(0, 1), await c.active_slot(1, 2)
            await c.submit(with_source(), task(0, 0, first), task(0, 1, second))
            notice = NotifyCheckpoint(job_id=JOB, checkpoint_id=5, notice=CheckpointNotice.COMPLETED)
            await c.gateway.notify_checkpoint(JOB_MASTER_ID, notice)
            await eventually(
                lambda: [text for _, text in c.output].count("checkpoint 5 completed\n") == 2,
                "both were told",
            )
            reset = ResetSubtask(
                job_id=JOB,
                operator_id=OperatorID("o0"),
                subtask=1,
                attempt_id=ExecutionAttemptID("a"),
                checkpoint_id=5,
            )
            await c.gateway.reset_subtask(JOB_MASTER_ID, reset)
            await eventually(
                lambda: ("stdout", "reader 1 goes back to 5\n") in c.output, "the enumerator was told"
            )

    run(body())


def test_messages_of_another_job_master_are_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster("in-process", tmp_path) as c:
            await c.active_slot()
            stale = JobMasterID("jm-0")
            notice = NotifyCheckpoint(job_id=JOB, checkpoint_id=5, notice=CheckpointNotice.ABORTED)
            reset = ResetSubtask(
                job_id=JOB,
                operator_id=OperatorID("o0"),
                subtask=1,
                attempt_id=ExecutionAttemptID("a"),
                checkpoint_id=5,
            )
            with pytest.raises(FencingTokenError):
                await c.gateway.trigger_checkpoint(stale, trigger())
            with pytest.raises(FencingTokenError):
                await c.gateway.notify_checkpoint(stale, notice)
            with pytest.raises(FencingTokenError):
                await c.gateway.reset_subtask(stale, reset)

    run(body())
