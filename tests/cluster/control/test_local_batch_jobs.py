"""Bounded jobs without Spark, in a control plane whose TaskExecutors are played: slots, refusals, restarts, masters."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.cluster.control.control_cluster import control_cluster, eventually
from tests.cluster.control.test_batch_jobs import BROKEN, RESTARTING, bounded_job
from tests.cluster.control.test_drivers_in_slots import (
    drivers,
    finish,
    free_slots,
    next_driver,
    waiting_for,
)
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run
from yarrow.common.job_status import JobStatus
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import BatchRunner


def local_job() -> JobGraph:
    return msgspec.structs.replace(
        bounded_job(), batch_runner=BatchRunner.LOCAL, batch_runner_reason="there is little input"
    )


def test_it_takes_a_slot_whatever_starts_spark_drivers(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2) as cluster:
            job_id = await cluster.submit(local_job())
            driver = await next_driver(cluster)
            assert cluster.spark_drivers.drivers == []
            assert driver.request.runner is BatchRunner.LOCAL
            # The other slot serves a stream meanwhile.
            assert free_slots(cluster) == 1
            await cluster.until_running(await cluster.submit(linear_job(Stage(1), job_id=2)), 1)
            await driver.begin()
            details = await cluster.dispatcher.request_job_details(job_id)
            assert (details.batch_runner, details.batch_runner_reason) == ("LOCAL", "there is little input")
            assert details.spark_driver_task_executor == "te-1"
            await eventually(lambda: bool(driver.submissions))
            await driver.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            await cluster.until_free(1)

    run(body())


def test_a_job_on_spark_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1) as cluster:
            graph = msgspec.structs.replace(bounded_job(), batch_runner_reason="there is much input")
            job_id = await cluster.submit(graph)
            await cluster.next_spark_driver()
            details = await cluster.dispatcher.request_job_details(job_id)
            assert (details.batch_runner, details.batch_runner_reason) == ("SPARK", "there is much input")
            assert free_slots(cluster) == 1 and not drivers(cluster)

    run(body())


def test_it_waits_for_a_slot_and_speaks_of_no_spark(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1) as cluster:
            stream = await cluster.submit(linear_job(Stage(1), job_id=2))
            await cluster.until_running(stream, 1)
            job_id = await cluster.submit(local_job())

            async def explained() -> bool:
                return "room for its batch driver: " in await waiting_for(cluster, job_id)

            await cluster.pass_time(20)
            await eventually(explained)
            assert "Spark" not in await waiting_for(cluster, job_id)
            await cluster.dispatcher.cancel_job(stream)
            await finish(cluster, job_id, await next_driver(cluster))

    run(body())


def test_a_lost_task_executor_costs_a_restart_elsewhere(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, jobs=RESTARTING) as cluster:
            job_id = await cluster.submit(local_job())
            first = await next_driver(cluster)
            await first.begin()
            await eventually(lambda: bool(first.submissions))
            (executor,) = cluster.executors
            await executor.stop()
            await cluster.add(1)
            cluster.executors.remove(executor)
            await cluster.pass_time(120)
            await finish(cluster, job_id, await next_driver(cluster, first))
            details = await cluster.dispatcher.request_job_details(job_id)
            assert details.restarts == 1
            assert "batch driver" in details.exceptions[0].cause.message

    run(body())


def test_a_final_failure_is_told_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, jobs=RESTARTING) as cluster:
            job_id = await cluster.submit(local_job())
            driver = await next_driver(cluster)
            await driver.begin()
            await eventually(lambda: bool(driver.submissions))
            await driver.master.fail_batch(job_id, 0, BROKEN)
            assert (await cluster.result(job_id)).status is JobStatus.FAILED
            details = await cluster.dispatcher.request_job_details(job_id)
            assert (details.restarts, details.exceptions[0].cause.message) == (0, "no number")
            await cluster.until_free(1)

    run(body())
