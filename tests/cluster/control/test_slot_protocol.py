"""The slot protocol with messages lost, late and out of order; leaders that change; idle TaskExecutors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.control.control_cluster import ControlCluster, control_cluster, eventually
from tests.support.fake_task_executor import FakeBehaviour
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.am.resourcemanager.driver import StandaloneDriver
from yarrow.am.resourcemanager.requested_task_executors import StartSettings
from yarrow.am.resourcemanager.resource_manager import ResourceManager
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import JobID, ResourceID


async def beat_until_running(cluster: ControlCluster, job_id: JobID, tasks: int) -> None:
    """Lets heartbeats pass until the tasks run; six are more than any single loss needs."""
    for _ in range(6):
        await settled()
        overviews = await cluster.dispatcher.list_jobs()
        if overviews[0].tasks["running"] == tasks:
            return
        cluster.timers.advance(10)
    raise AssertionError(f"after six heartbeats: {await cluster.dispatcher.request_job_details(job_id)}")


@pytest.mark.parametrize("method", ["request_slot", "register_task_executor", "offer_slots"])
@pytest.mark.parametrize("lost", ["request", "reply"])
def test_what_a_lost_message_broke_is_healed(tmp_path: Path, method: str, lost: str) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2, 1) as cluster:
            drop = cluster.fault.drop_requests if lost == "request" else cluster.fault.drop_replies
            drop(method, 2)
            job_id = await cluster.submit(linear_job(Stage(3)))
            await beat_until_running(cluster, job_id, 3)
            assert cluster.slots_agree()
            await cluster.dispatcher.cancel_job(job_id)
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
            await cluster.until_free(3)

    run(body())


@pytest.mark.parametrize("method", ["notify_slot_available", "free_slot"])
def test_a_slot_whose_end_was_lost_is_free_after_a_heartbeat(tmp_path: Path, method: str) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2, behaviour=FakeBehaviour(finish=True)) as cluster:
            cluster.fault.drop_requests(method, 2)
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.result(job_id)
            await settled()
            cluster.timers.advance(10)
            await cluster.until_free(2)
            assert cluster.slots_agree()

    run(body())


def test_a_declaration_that_was_lost_is_made_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1) as cluster:
            cluster.fault.drop_requests("declare_required_resources")
            job_id = await cluster.submit(linear_job(Stage(1)))
            await beat_until_running(cluster, job_id, 1)

    run(body())


def test_a_late_slot_request_finds_its_slot_or_is_healed(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1) as cluster:
            release = cluster.fault.hold("request_slot")
            first = await cluster.submit(linear_job(Stage(1), job_id=1))
            await eventually(lambda: ("taskexecutor_te-1", "request_slot") in cluster.fault.seen)
            # The job ends while its request is on its way.
            await cluster.dispatcher.cancel_job(first)
            await cluster.result(first)
            release()
            second = await cluster.submit(linear_job(Stage(1), job_id=2))
            await cluster.pass_time(60)
            await cluster.until_running(second, 1)
            assert cluster.slots_agree()

    run(body())


def test_task_executors_and_jobs_register_with_a_new_leader(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2) as cluster:
            running = await cluster.submit(linear_job(Stage(2), job_id=1))
            await cluster.until_running(running, 2)
            waiting = await cluster.submit(linear_job(Stage(1), job_id=2))
            old = cluster.plane.resource_manager
            await old.stop()
            new = ResourceManager(
                cluster.service(),
                StandaloneDriver(),
                cluster.settings.resource_manager,
                cluster.clock,
                cluster.timers,
                cluster.ids,
            )
            await new.start()
            assert new.leader_id != old.leader_id
            cluster.leader.announce(new.leader)
            cluster.plane.resource_manager_retrieval.announce(new.leader)
            await eventually(lambda: cluster.executors[0].registrations == 2)
            # The new leader learned from the report that both slots are taken, and what the other job waits
            # for.
            assert (new.slot_manager.slots_total, new.slot_manager.slots_free) == (2, 0)
            await cluster.add(1)
            await cluster.until_running(waiting, 1)
            assert await cluster.dispatcher.request_job_status(running) is JobStatus.RUNNING
            await new.stop()

    run(body())


def test_a_lost_registration_is_tried_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            cluster.fault.drop_requests("register_task_executor", 3)
            executor = await cluster.add(1)
            for _ in range(4):
                await settled()
                cluster.timers.advance(1)
            await eventually(lambda: executor.registrations == 1)

    run(body())


def test_a_job_says_what_it_waits_for_when_it_changes_and_every_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        """What the job has said since this was called last, up to the reasons."""
        lines = [
            record.getMessage()
            for record in caplog.records
            if record.name == "yarrow.am.jobmaster.missing_slots"
        ]
        caplog.clear()
        return [line.partition(";")[0] for line in lines]

    async def body() -> None:
        async with control_cluster(
            tmp_path, 1, jobs=JobMasterSettings(slot_request_timeout=1000.0)
        ) as cluster:
            graph = linear_job(Stage(3))
            job_id = await cluster.submit(graph)
            job = f"the job {graph.name!r}"

            async def has(slots: int) -> None:
                async def reached() -> bool:
                    details = await cluster.dispatcher.request_job_details(job_id)
                    return f"needs 3 slots and has {slots}" in details.waiting_for

                await eventually(reached)

            await has(1)
            cluster.timers.advance(5)
            assert said() == []
            await cluster.pass_time(10)
            assert said() == [f"{job} needs 3 slots and has 1"]
            await cluster.pass_time(70)
            assert said() == [f"{job} needs 3 slots and has 1"]
            await cluster.add(1)
            await has(2)
            await cluster.pass_time(10)
            assert said() == [f"{job} needs 3 slots and has 2"]
            await cluster.add(1)
            await cluster.until_running(job_id, 3)
            await cluster.pass_time(10)
            assert said() == [f"{job} has all slots and waits no more"]

    run(body())


def test_idle_task_executors_are_released_and_busy_ones_kept(tmp_path: Path) -> None:
    async def body() -> None:
        slots = SlotManagerSettings(task_executor_timeout=30)
        async with control_cluster(tmp_path, slots=slots, standalone=False) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.until_running(job_id, 2)
            await cluster.pass_time(50)
            assert cluster.driver.released == []
            await cluster.dispatcher.cancel_job(job_id)
            await cluster.result(job_id)
            await cluster.until_free(2)
            cluster.timers.advance(29)
            await settled()
            assert cluster.driver.released == []
            cluster.timers.advance(1)
            await eventually(lambda: len(cluster.driver.released) == 2)
            assert all(executor.released.is_set() for executor in cluster.executors)
            overview = await cluster.dispatcher.request_overview()
            assert overview.slots_total == 0

    run(body())


def test_one_whose_place_is_not_counted_any_more_serves_no_job(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, standalone=False) as cluster:
            cluster.driver.refused[ResourceID("te-1")] = "the TaskExecutor belongs to another attempt"
            stray = await cluster.add()
            await settled()
            job_id = await cluster.submit(linear_job(Stage(1)))
            # Another is asked for, and takes the job.
            await cluster.until_running(job_id, 1)
            assert cluster.driver.started == ["te-2"]
            assert list(cluster.plane.resource_manager.slot_manager.task_executors) == ["te-2"]
            assert stray.registrations == 0 and not stray.deployments

    run(body())


def test_a_failed_start_is_tried_again_and_explained_meanwhile(tmp_path: Path) -> None:
    async def body() -> None:
        slots = SlotManagerSettings(starts=StartSettings(max_failure_rate=0, retry_interval=3))
        async with control_cluster(tmp_path, slots=slots, standalone=False) as cluster:
            cluster.driver.failures = ["no memory left"]
            job_id = await cluster.submit(linear_job(Stage(1)))

            async def told() -> bool:
                details = await cluster.dispatcher.request_job_details(job_id)
                return "no memory left" in details.waiting_for

            await eventually(told)
            cluster.timers.advance(3.5)
            await cluster.until_running(job_id, 1)
            assert cluster.driver.requests == 2

    run(body())


def test_what_a_job_hears_last_of_its_slots_is_what_is_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:

            async def waiting_for() -> str:
                return (await cluster.dispatcher.request_job_details(job_id)).waiting_for

            async def told(text: str) -> None:
                async def heard() -> bool:
                    return text in await waiting_for()

                await eventually(heard)

            def messages() -> int:
                return sum(method == "notify_not_enough_resources" for _, method in cluster.fault.seen)

            release = cluster.fault.hold("notify_not_enough_resources")
            job_id = await cluster.submit(linear_job(Stage(3)))
            await eventually(lambda: messages() == 1)
            await cluster.add(1)
            await cluster.add(1)
            await eventually(lambda: cluster.plane.resource_manager.slot_manager.slots_total == 2)
            release()
            await told("needs 3 slots, has 2; 2 TaskExecutors with 2 slots are registered")
            assert messages() == 2, "the first, and the last"
            cluster.fault.hold("offer_slots")
            await cluster.add(1)
            await eventually(lambda: cluster.plane.resource_manager.slot_manager.slots_free == 0)
            await settled()
            assert await waiting_for() == "needs 3 slots and has 2", "the third is given, and not offered yet"

    run(body())


def test_the_slots_of_an_ended_job_are_not_given_to_it_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 3, behaviour=FakeBehaviour(finish=True)) as cluster:
            # The ResourceManager learns late that the job needs nothing any more.
            release = cluster.fault.hold("disconnect_job_master")
            job_id = await cluster.submit(linear_job(Stage(3)))
            await cluster.until_status(job_id, JobStatus.FINISHED)
            await settled()
            release()
            await cluster.result(job_id)
            await cluster.until_free(3)
            requests = [method for _, method in cluster.fault.seen if method == "request_slot"]
            assert len(requests) == 3

    run(body())


def test_an_unreachable_task_executor_is_given_up_before_the_timeout(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1, 1) as cluster:
            await cluster.executors[0].stop()
            await cluster.pass_time(10)
            assert len(cluster.plane.resource_manager.slot_manager.task_executors) == 2
            await cluster.pass_time(10)
            await eventually(lambda: len(cluster.plane.resource_manager.slot_manager.task_executors) == 1)
            overview = await cluster.dispatcher.request_overview()
            assert (overview.task_executors, overview.slots_total) == (1, 1)

    run(body())


def test_one_that_answers_too_late_registers_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 1) as cluster:
            cluster.fault.drop_replies("heartbeat_from_resource_manager", 2)
            await cluster.pass_time(20)
            await eventually(lambda: cluster.executors[0].registrations == 2)
            await cluster.until_free(1)

    run(body())
