"""Whole jobs on fake TaskExecutors: finish, fail, cancel, wait, collect."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.cluster.control.control_cluster import ControlCluster, control_cluster, eventually
from tests.support.fake_task_executor import FakeBehaviour
from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.dispatcher.test_dispatcher_parts import rows
from tests.unit.am.jobmaster.scheduling.scheduling import BROKEN
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.control_plane_settings import control_plane_settings
from yarrow.am.jobmaster.job_master import JobMaster
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import (
    DuplicateJobError,
    JobAlreadyEndedError,
    JobNotFoundError,
    JobSubmissionError,
)
from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.gateway_type import JOB_MASTER, RESOURCE_MANAGER
from yarrow.runtime.rpc.gateways import ResourceManagerGateway
from yarrow.runtime.rpc.messages import CollectPosition, CollectRows, OperatorEvent
from yarrow.runtime.yarn.shared_places import check_shared_places

FINISHING = FakeBehaviour(finish=True)


def master_of(cluster: ControlCluster, job_id: JobID) -> JobMaster:
    receiver = cluster.network.receivers[f"jobmanager_{job_id}"]
    assert isinstance(receiver.endpoint, JobMaster)
    return receiver.endpoint


def resource_manager_of(cluster: ControlCluster) -> ResourceManagerGateway:
    leader = cluster.plane.resource_manager_leader
    return cluster.service().connect(leader.address, RESOURCE_MANAGER, leader.leader_id)


def test_a_job_finishes_and_leaves_all_slots_free(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2, 2, behaviour=FINISHING) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2), Stage(4)))
            result = await cluster.result(job_id)
            assert (result.status, result.name) == (JobStatus.FINISHED, "line")
            await cluster.until_free(4)
            assert cluster.slots_agree()
            overview = await cluster.dispatcher.request_overview()
            assert (overview.task_executors, overview.slots_total, overview.slots_available) == (2, 4, 4)
            assert (overview.jobs_running, overview.jobs_finished) == (0, 1)
            details = await cluster.dispatcher.request_job_details(job_id)
            assert [subtask.state for subtask in details.vertices[1].subtasks] == [
                ExecutionState.FINISHED
            ] * 4
            assert [job.status for job in await cluster.dispatcher.list_jobs()] == [JobStatus.FINISHED]

    run(body())


def test_jobs_share_a_cluster(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 3, behaviour=FINISHING) as cluster:
            jobs = [await cluster.submit(linear_job(Stage(2), job_id=number)) for number in range(1, 6)]
            for job_id in jobs:
                assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            await cluster.until_free(3)

    run(body())


def test_a_failing_task_fails_the_job_with_its_cause(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2, 2) as cluster:
            job_id = await cluster.submit(linear_job(Stage(4)))
            await cluster.until_running(job_id, 4)
            first = cluster.executors[0]
            await first.report(ExecutionState.FAILED, next(iter(first.tasks)), cause=BROKEN)
            result = await cluster.result(job_id)
            assert (result.status, result.cause) == (JobStatus.FAILED, BROKEN)
            assert sum(len(executor.cancelled) for executor in cluster.executors) == 3
            await cluster.until_free(4)

    run(body())


def test_cancel_ends_the_job_and_an_ended_job_cannot_be_cancelled(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 4) as cluster:
            job_id = await cluster.submit(linear_job(Stage(4)))
            await cluster.until_running(job_id, 4)
            await cluster.dispatcher.cancel_job(job_id)
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
            with pytest.raises(JobAlreadyEndedError, match="its status is CANCELED already"):
                await cluster.dispatcher.cancel_job(job_id)
            with pytest.raises(JobNotFoundError):
                await cluster.dispatcher.cancel_job(JobID("f" * 32))
            await cluster.until_free(4)

    run(body())


def test_a_task_that_ignores_its_cancel_loses_its_worker(tmp_path: Path) -> None:
    async def body() -> None:
        stubborn = FakeBehaviour(obey_cancel=False)
        async with control_cluster(tmp_path, 2, behaviour=stubborn) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.until_running(job_id, 2)
            await cluster.dispatcher.cancel_job(job_id)
            await eventually(lambda: len(cluster.executors[0].cancelled) == 2)
            await cluster.pass_time(JobMasterSettings().cancellation_timeout)
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
            await cluster.until_free(2)

    run(body())


def test_a_job_without_slots_fails_saying_what_it_waited_for(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2) as cluster:
            job_id = await cluster.submit(linear_job(Stage(4)))

            async def told() -> bool:
                details = await cluster.dispatcher.request_job_details(job_id)
                return "1 TaskExecutors with 2 slots are registered" in details.waiting_for

            await eventually(told)
            await cluster.pass_time(JobMasterSettings().slot_request_timeout)
            result = await cluster.result(job_id)
            assert result.status is JobStatus.FAILED
            assert result.cause is not None
            assert "slot.request.timeout" in result.cause.message
            assert "needs 4 slots and has 2" in result.cause.message
            assert "yarrow taskmanager" in result.cause.message
            await cluster.until_free(2)

    run(body())


def test_bad_and_doubled_submissions_are_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, behaviour=FINISHING) as cluster:
            with pytest.raises(JobSubmissionError, match="no job graph"):
                await cluster.dispatcher.submit_job(b"nonsense")
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.result(job_id)
            with pytest.raises(DuplicateJobError, match="FINISHED"):
                await cluster.submit(linear_job(Stage(1)))
            assert len(await cluster.dispatcher.list_jobs()) == 1

    run(body())


def test_a_job_of_a_session_on_yarn_may_not_name_places_of_one_machine(tmp_path: Path) -> None:
    check = control_plane_settings(
        Settings(), "", 1, can_request=True, check_places=check_shared_places
    ).dispatcher.check_job

    async def body() -> None:
        async with control_cluster(tmp_path, 1, behaviour=FINISHING, check_job=check) as cluster:
            for key in ("execution.checkpointing.dir", "execution.checkpointing.savepoint-dir"):
                job = msgspec.structs.replace(linear_job(Stage(1)), configuration={key: f"file://{tmp_path}"})
                with pytest.raises(JobSubmissionError, match=rf"{key} is .*hdfs://host:port{tmp_path}"):
                    await cluster.submit(job)
            assert not await cluster.dispatcher.list_jobs()
            job = msgspec.structs.replace(
                linear_job(Stage(1)), configuration={key: "hdfs://name:8020/savepoints"}
            )
            await cluster.result(await cluster.submit(job))

    run(body())


def test_a_dead_process_fails_its_job_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, standalone=False) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.until_running(job_id, 2)
            victim = cluster.executors[0]
            await victim.stop()
            cluster.driver.crash(victim.resource_id, "killed by SIGKILL")
            result = await cluster.result(job_id)
            assert result.status is JobStatus.FAILED
            assert result.cause is not None and "killed by SIGKILL" in result.cause.message

    run(body())


def test_a_job_hears_why_its_task_executor_was_ended_by_force(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, 1, standalone=False) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.until_running(job_id, 2)
            victim = cluster.executors[0]
            cluster.driver.explained.clear()
            manager = resource_manager_of(cluster)
            await manager.disconnect_task_executor(victim.resource_id, "it got the signal SIGTERM", True)
            await settled()
            assert await cluster.dispatcher.request_job_status(job_id) is JobStatus.RUNNING, "it may be told"
            cluster.driver.crash(victim.resource_id, "its container used too much memory")
            cause = (await cluster.result(job_id)).cause
            assert cause is not None
            assert "it got the signal SIGTERM; its container used too much memory" in cause.message

    run(body())


@pytest.mark.parametrize("by_force", [True, False])
def test_an_end_that_nobody_explains_fails_the_job(tmp_path: Path, by_force: bool) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, 1, standalone=False) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.until_running(job_id, 2)
            victim = cluster.executors[0]
            if not by_force:
                # It is not asked for an explanation, which would not come.
                cluster.driver.explained.clear()
            await resource_manager_of(cluster).disconnect_task_executor(
                victim.resource_id, "it ends", by_force
            )
            cause = (await cluster.result(job_id)).cause
            assert cause is not None and cause.message.endswith("te-1 is lost: it ends")

    run(body())


def test_a_silent_task_executor_fails_its_job_by_heartbeat(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, 1) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.until_running(job_id, 2)
            await cluster.executors[0].stop()
            await cluster.pass_time(20)
            result = await cluster.result(job_id)
            assert result.cause is not None and "te-1 is lost" in result.cause.message
            await cluster.pass_time(60)
            assert set(cluster.plane.resource_manager.slot_manager.task_executors) == {"te-2"}

    run(body())


def test_a_task_that_its_task_executor_forgot_fails_the_job(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1) as cluster:
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.until_running(job_id, 1)
            cluster.executors[0].tasks.clear()
            await cluster.pass_time(20)
            result = await cluster.result(job_id)
            assert result.cause is not None and "does not run the task" in result.cause.message

    run(body())


def test_operator_events_reach_coordinator_and_readers_in_order(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, 1) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.until_running(job_id, 2)
            master = master_of(cluster, job_id)
            gateway = cluster.service().connect(master.address, JOB_MASTER, master.leader_id)
            vertex = master.graph.job.vertices[0].id

            def event(source: int, target: int, number: int) -> OperatorEvent:
                return OperatorEvent(
                    job_id=job_id,
                    vertex_id=vertex,
                    operator_id=OperatorID("o"),
                    target_subtask=target,
                    source_subtask=source,
                    payload=bytes([number]),
                )

            for number in range(5):
                await gateway.send_operator_event(event(1, -1, number))
                await gateway.send_operator_event(event(-1, 1, number))
            await eventually(lambda: sum(len(executor.events) for executor in cluster.executors) == 10)
            for executor in cluster.executors:
                (task,) = executor.tasks
                execution = master.graph.execution(task)
                assert execution is not None
                targets = {event.target_subtask for event in executor.events}
                assert targets == ({-1} if execution.subtask == 0 else {1})
                assert [event.payload[0] for event in executor.events] == list(range(5))

    run(body())


def test_collected_rows_reach_the_client_even_after_the_end(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2) as cluster:
            collect = Stage(2, operator=CollectOperator(collect_id="c"))
            job_id = await cluster.submit(linear_job(Stage(2), collect))
            await cluster.until_running(job_id, 4)
            master = master_of(cluster, job_id)
            gateway = cluster.service().connect(master.address, JOB_MASTER, master.leader_id)
            first = asyncio.ensure_future(cluster.dispatcher.fetch_collected(job_id, "c", 10))
            await gateway.push_collected(rows(0, 0, 2))
            assert [r.payload for r in await first] == [b"0.0"]
            await gateway.push_collected(rows(0, 1, 1, last=True))
            await gateway.push_collected(rows(1, 0, 1, last=True))
            await cluster.executors[0].report(ExecutionState.FINISHED)
            await cluster.result(job_id)
            found: list[CollectRows] = []
            last = (await first)[-1]
            while not last.last:
                position = CollectPosition(version=last.version, delivery=last.delivery)
                found += await cluster.dispatcher.fetch_collected(job_id, "c", 1, position)
                last = found[-1]
            assert [r.payload for r in found] == [b"0.1", b"1.0", b""]

    run(body())


def test_a_large_graph_travels_through_the_blob_store(tmp_path: Path) -> None:
    async def body() -> None:
        settings = JobMasterSettings(inline_graph_bytes=10)
        async with control_cluster(tmp_path, 1, jobs=settings) as cluster:
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.until_running(job_id, 1)
            (deployment,) = cluster.executors[0].deployments
            assert deployment.job_graph == b""
            master = master_of(cluster, job_id)
            gateway = cluster.service().connect(master.address, JOB_MASTER, master.leader_id)
            part = await gateway.read_blob(deployment.job_graph_blob_key, 0, 1_000_000)
            assert (
                part.total_size
                == len(part.data)
                == len(cluster.plane.blobs.get(deployment.job_graph_blob_key))
            )

    run(body())


def test_shutting_down_while_a_job_runs_leaves_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1) as cluster:
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.until_running(job_id, 1)
            waiting = asyncio.ensure_future(cluster.dispatcher.request_job_result(job_id))
            await settled()
            await cluster.dispatcher.shut_down_cluster()
            await asyncio.wait_for(cluster.plane.wait_for_shut_down(), 60)
            await cluster.plane.stop()
            await asyncio.gather(waiting, return_exceptions=True)
            assert waiting.exception() is not None

    run(body())
