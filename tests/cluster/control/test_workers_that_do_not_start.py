"""What a job hears of workers that could not be started for it: others may, or none ever will."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.control.control_cluster import control_cluster, eventually
from tests.cluster.control.test_jobs import master_of
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import AllocationID, ResourceID
from yarrow.runtime.rpc.messages import FailureCause


def cause(text: str, is_final: bool = False) -> FailureCause:
    return FailureCause(exception_name="an.Error", message=text, stacktrace=text, is_final=is_final)


def test_a_job_that_waits_is_told_of_them(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id = await cluster.submit(linear_job(Stage(1)))

            async def waits() -> bool:
                return bool((await cluster.dispatcher.request_job_details(job_id)).waiting_for)

            await eventually(waits)
            master = master_of(cluster, job_id)
            await master.fail_slot(ResourceID("te"), AllocationID("a"), cause("the disk is full"))
            details = await cluster.dispatcher.request_job_details(job_id)
            assert details.waiting_for.endswith("; on te the disk is full")
            assert details.status is JobStatus.RUNNING
            await cluster.pass_time(JobMasterSettings().slot_request_timeout)
            result = await cluster.result(job_id)
            assert result.cause is not None
            assert "on te the disk is full" in result.cause.message

    run(body())


def test_a_job_whose_workers_can_start_nowhere_fails_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id = await cluster.submit(linear_job(Stage(1)))
            master = master_of(cluster, job_id)
            await master.fail_slot(ResourceID("te"), AllocationID("a"), cause("no such interpreter", True))
            result = await cluster.result(job_id)
            assert result.status is JobStatus.FAILED
            assert result.cause is not None
            assert result.cause.message == "no such interpreter"

    run(body())
