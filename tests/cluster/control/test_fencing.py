"""Every gateway refuses a message that bears a stale token."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cluster.control.control_cluster import control_cluster
from tests.cluster.control.test_jobs import master_of
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import FencingTokenError
from yarrow.runtime.common.ids import JobMasterID, ResourceID, ResourceManagerID
from yarrow.runtime.rpc.gateway_type import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR
from yarrow.runtime.rpc.messages import AllocatedSlotReport, ResourceProfile, SlotID, SlotRequest


def test_the_dispatcher_refuses_a_stale_token(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            for token in ("stale", None):
                client = cluster.service().connect("inproc://dispatcher", DISPATCHER, token)
                with pytest.raises(FencingTokenError, match="dispatcher refuses list_jobs"):
                    await client.list_jobs()

    run(body())


def test_the_resource_manager_refuses_a_stale_token_and_a_stale_job_master(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1) as cluster:
            stale = cluster.service().connect("inproc://resourcemanager", RESOURCE_MANAGER, "stale")
            with pytest.raises(FencingTokenError, match="resourcemanager refuses"):
                await stale.disconnect_task_executor(ResourceID("te-1"), "stale")
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.until_running(job_id, 1)
            good = cluster.plane.resource_manager_gateway()
            with pytest.raises(FencingTokenError, match="JobMaster stale"):
                await good.disconnect_job_master(job_id, JobMasterID("stale"), JobStatus.FAILED)
            assert len(cluster.plane.resource_manager.slot_manager.task_executors) == 1

    run(body())


def test_the_job_master_refuses_a_stale_token(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1) as cluster:
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.until_running(job_id, 1)
            address = master_of(cluster, job_id).address
            stale = cluster.service().connect(address, JOB_MASTER, "stale")
            with pytest.raises(FencingTokenError, match="refuses disconnect_task_executor"):
                await stale.disconnect_task_executor(ResourceID("te-1"), "stale")
            assert await cluster.dispatcher.request_job_status(job_id) is JobStatus.RUNNING

    run(body())


def test_a_task_executor_refuses_stale_leaders(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1) as cluster:
            job_id = await cluster.submit(linear_job(Stage(1)))
            await cluster.until_running(job_id, 1)
            executor = cluster.executors[0]
            client = cluster.service().connect(executor.address, TASK_EXECUTOR)
            stale = JobMasterID("stale")
            with pytest.raises(FencingTokenError):
                await client.disconnect_job_master(job_id, stale, "stale")
            with pytest.raises(FencingTokenError):
                await client.cancel_tasks(job_id, stale, tuple(executor.tasks))
            with pytest.raises(FencingTokenError):
                await client.heartbeat_from_job_master(
                    stale, AllocatedSlotReport(job_id=job_id, allocations=())
                )
            with pytest.raises(FencingTokenError):
                old = msgspec.structs.replace(executor.deployments[0], job_master_id=stale)
                await client.submit_tasks(old)
            (allocation,) = executor.allocations.values()
            request = SlotRequest(
                slot_id=SlotID(resource_id=executor.resource_id, index=0),
                job_id=job_id,
                allocation_id=allocation,
                profile=ResourceProfile(),
                job_master_address="inproc://nobody",
                job_master_id=stale,
                resource_manager_id=ResourceManagerID("stale"),
            )
            with pytest.raises(FencingTokenError):
                await client.request_slot(request)
            with pytest.raises(FencingTokenError):
                await client.heartbeat_from_resource_manager(ResourceManagerID("stale"))
            assert len(executor.tasks) == 1

    run(body())
