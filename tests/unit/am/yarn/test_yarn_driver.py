"""YarnDriver: containers asked for, granted, lost, given back and explained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.unit.am.yarn.containers_of_yarn import ContainersOfYarn
from yarrow.am.resourcemanager.driver import TaskExecutorStartError
from yarrow.am.yarn.requested_containers import RequestedContainers, shortened
from yarrow.am.yarn.service_containers import ExplainWaiting, ReadOutput, YarnDriverSettings
from yarrow.am.yarn.yarn_driver import YarnDriver
from yarrow.runtime.common.clock import ManualClock, SystemClock
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import ResourceProfile
from yarrow.runtime.yarn.gateways import ContainerShape, ContainerStatus, YarnError
from yarrow.runtime.yarn.layout import (
    KV_WAITING_FOR,
    RESOURCE_ID,
    RESOURCE_MANAGER_ADDRESS,
    RESOURCE_MANAGER_ID,
)

LEADER = LeaderInformation(address="grpc://master:1/resourcemanager", leader_id="a" * 32)
ANY = ResourceProfile()
KILLED = (
    "Container [pid=7,containerID=c] is running 1B beyond the 'PHYSICAL' memory limit. Current usage: 700 MB of 640 MB"
    " physical memory used. Killing container.\nDump of the process-tree for c :\n|- PID 7 secret arguments"
)


class Heard:
    """The ResourceManager's ear."""

    def __init__(self) -> None:
        self.ended: dict[ResourceID, str] = {}
        self.delays: list[str] = []

    def on_task_executor_terminated(self, resource_id: ResourceID, cause: str) -> None:
        self.ended[resource_id] = cause

    def on_task_executors_delayed(self, explanation: str) -> None:
        self.delays.append(explanation)


@asynccontextmanager
async def driving(
    yarn: ContainersOfYarn,
    explain: ExplainWaiting | None = None,
    patience: float = 60.0,
    poll_interval: float = 0.01,
    end_patience: float = 60.0,
    read_output: ReadOutput | None = None,
) -> AsyncIterator[tuple[YarnDriver, Heard]]:
    settings = YarnDriverSettings(
        attempt=2,
        shape=ContainerShape(640, 1),
        poll_interval=poll_interval,
        patience=patience,
        grace=1.0,
        end_patience=end_patience,
    )
    driver, heard = YarnDriver(yarn, settings, SystemClock(), explain, read_output), Heard()
    await driver.initialize(heard, LEADER)
    try:
        yield driver, heard
    finally:
        await driver.terminate()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_a_container_is_told_its_name_and_whom_to_register_with() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, _):
            assert await driver.request_task_executor(ANY) == "container_2_1"
            assert await driver.request_task_executor(ANY) == "container_2_2"
            assert yarn.environments[0] == {
                RESOURCE_ID: "container_2_1",
                RESOURCE_MANAGER_ADDRESS: LEADER.address,
                RESOURCE_MANAGER_ID: LEADER.leader_id,
            }
            yarn.grant("taskexecutor_0")
            await until(
                lambda: driver.container_of(ResourceID("container_2_1")) == "container_taskexecutor_0"
            )

    asyncio.run(run())


FAILED = "Container failed during execution, see logs for more information."


def test_of_a_container_that_only_failed_its_output_is_told() -> None:
    asked: list[tuple[str, str]] = []

    def read(node: str, container_id: str) -> str:
        asked.append((node, container_id))
        if container_id == "container_taskexecutor_1":
            raise YarnError("the node does not answer")
        return "no such library"

    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn, read_output=read) as (driver, heard):
            names = [await driver.request_task_executor(ANY) for _ in range(3)]
            for number, message in enumerate((FAILED, FAILED, KILLED)):
                yarn.grant(f"taskexecutor_{number}")
                yarn.end(f"taskexecutor_{number}", "FAILED", message)
            await until(lambda: len(heard.ended) == 3)
            first, second, third = [heard.ended[name] for name in names]
            assert first.endswith(
                "container_taskexecutor_0 on node1:8042 failed; its output ends: no such library"
            )
            assert second.endswith(f"failed: {FAILED}")
            assert "used more memory" in third
            assert sorted(container for _, container in asked) == [
                f"container_taskexecutor_{number}" for number in (0, 1)
            ]

    asyncio.run(run())


def test_the_next_leadership_is_told_which_containers_live() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, heard):
            first, second, third = [await driver.request_task_executor(ANY) for _ in range(3)]
            assert list(driver.living) == [first, second, third]
            yarn.kept.append("not now")
            await driver.release_task_executor(first)
            yarn.end("taskexecutor_1", "FAILED", "lost")
            await until(lambda: second in heard.ended)
            assert list(driver.living) == [third]

    asyncio.run(run())


def test_a_process_that_outlives_its_container_does_not_serve() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, heard):
            living, lost, released = [await driver.request_task_executor(ANY) for _ in range(3)]
            assert driver.refusal(lost) == ""
            yarn.end("taskexecutor_1", "KILLED", "Container released on a *lost* node")
            await until(lambda: lost in heard.ended)
            assert driver.refusal(lost) == "YARN says that its container has ended"
            yarn.kept.append("not now")
            await driver.release_task_executor(released)
            assert driver.refusal(released) == "the container was given back to YARN"
            of_others = "the TaskExecutor belongs to another attempt of the application; this is attempt 2"
            assert [driver.refusal(ResourceID(f"container_{it}")) for it in ("1_1", "22_1")] == [
                of_others
            ] * 2
            assert driver.refusal(living) == ""
            # Its process may be quicker than the answer to the request.
            assert driver.refusal(ResourceID("container_2_4")) == ""

    asyncio.run(run())


def test_the_end_of_a_container_is_told_in_words_that_name_the_setting() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, heard):
            for number in range(2):
                await driver.request_task_executor(ANY)
                yarn.grant(f"taskexecutor_{number}")
            yarn.end("taskexecutor_0", "FAILED", KILLED)
            yarn.end("taskexecutor_1", "FAILED", "Container failed during execution, see logs")
            await until(lambda: len(heard.ended) == 2)
            memory, other = heard.ended[ResourceID("container_2_1")], heard.ended[ResourceID("container_2_2")]
            assert (
                "used more memory than its limit of 640 MB. Raise taskmanager.memory.process.size" in memory
            )
            assert "700 MB of 640 MB" in memory and "secret arguments" not in memory
            where = "its container container_taskexecutor_1 on node1:8042"
            assert other == f"{where} failed: Container failed during execution, see logs"

    asyncio.run(run())


def test_who_waits_for_an_end_does_not_wait_for_the_next_look() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn, poll_interval=3600) as (driver, heard):
            name = await driver.request_task_executor(ANY)
            yarn.grant("taskexecutor_0")
            waiting = [asyncio.create_task(driver.await_end(name)) for _ in range(2)]
            yarn.end("taskexecutor_0", "FAILED", KILLED)
            async with asyncio.timeout(60):
                await asyncio.gather(*waiting)
            assert "used more memory than its limit" in heard.ended[name], (
                "the handler knows before who waits"
            )
            async with asyncio.timeout(60):
                await driver.await_end(name)
                await driver.await_end(ResourceID("nobody"))

    asyncio.run(run())


def test_an_end_that_yarn_says_nothing_of_is_not_waited_for_for_ever() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn, end_patience=0.02) as (driver, heard):
            name = await driver.request_task_executor(ANY)
            async with asyncio.timeout(60):
                await driver.await_end(name)
            assert heard.ended == {}

    asyncio.run(run())


def test_containers_that_were_given_back_are_not_said_to_be_granted(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn, patience=0.02) as (driver, heard):
            name = await driver.request_task_executor(ANY)
            await until(lambda: bool(heard.delays))
            await driver.release_task_executor(name)
            await until(lambda: heard.delays[-1] == "")

    with caplog.at_level("INFO"):
        asyncio.run(run())
    assert "has granted" not in caplog.text and "waits for no container any more" in caplog.text


def test_the_words_by_which_skein_shortens_it_are_known_too() -> None:
    containers = RequestedContainers(768, "")
    containers.requested(ResourceID("a"), "0", 0.0)
    used = ContainerStatus("0", "FAILED", "c", "n", "879.7 MB of 768 MB physical memory used")
    (ended,) = containers.take([used])
    assert "used more memory than its limit of 768 MB" in ended.cause and "879.7 MB" in ended.cause


def test_a_request_that_is_refused_is_an_error_of_its_own() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        yarn.refusal = "above the maximum"
        async with driving(yarn) as (driver, _):
            with pytest.raises(TaskExecutorStartError, match="above the maximum"):
                await driver.request_task_executor(ANY)

    asyncio.run(run())


def test_what_is_released_ends_without_alarm_and_once() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, heard):
            waiting = await driver.request_task_executor(ANY)
            await driver.release_task_executor(waiting)
            await driver.release_task_executor(waiting)
            await driver.release_task_executor(ResourceID("nobody"))
            await until(lambda: waiting in heard.ended)
            assert heard.ended[waiting] == "the container was released"
            assert yarn.released == ["taskexecutor_0"]

    asyncio.run(run())


def test_a_container_that_was_given_back_in_vain_is_given_back_again() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, heard):
            first = await driver.request_task_executor(ANY)
            yarn.kept = ["no connection", "no connection"]
            await driver.release_task_executor(first)
            assert yarn.released == []
            await until(lambda: heard.ended == {first: "the container was released"})
            assert yarn.released == ["taskexecutor_0"]

    asyncio.run(run())


def test_a_request_whose_answer_got_lost_leaves_no_container() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, _):
            yarn.refusal = "the answer got lost"
            stray = yarn.appear()
            with pytest.raises(TaskExecutorStartError):
                await driver.request_task_executor(ANY)
            await until(lambda: yarn.released == [stray])

    asyncio.run(run())


def test_a_container_that_nobody_waits_for_is_given_back() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, _):
            await driver.request_task_executor(ANY)
            stray = yarn.appear()
            await until(lambda: yarn.released == [stray])

    asyncio.run(run())


def test_nothing_is_left_at_the_end() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (driver, heard):
            for _ in range(3):
                await driver.request_task_executor(ANY)
            yarn.grant("taskexecutor_1")
        assert sorted(yarn.released) == ["taskexecutor_0", "taskexecutor_1", "taskexecutor_2"]
        assert len(heard.ended) == 3

    asyncio.run(run())


def test_why_containers_do_not_come_is_told_and_taken_back() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn, lambda shape, number: "the queue is full", 0.02) as (driver, heard):
            await driver.request_task_executor(ANY)
            await until(lambda: bool(heard.delays) and yarn.published.get(KV_WAITING_FOR) == heard.delays[0])
            assert "1 containers of 640 MB and 1 cores" in heard.delays[0]
            assert heard.delays[0].endswith("; the queue is full")
            yarn.grant("taskexecutor_0")
            await until(lambda: heard.delays[-1] == "" and yarn.published[KV_WAITING_FOR] == "")
            assert len(heard.delays) == 2, "the same reason is told once"

    asyncio.run(run())


def test_only_containers_without_an_answer_are_waited_for() -> None:
    clock = ManualClock()
    containers = RequestedContainers(640, "")
    containers.requested(ResourceID("a"), "0", clock.monotonic())
    clock.advance(2)
    containers.requested(ResourceID("b"), "1", clock.monotonic())
    containers.take([ContainerStatus("0", "RUNNING", "c0", "node", "")])
    assert containers.waiting(since=1) == []
    assert [one.resource_id for one in containers.waiting(since=2)] == ["b"]


def test_long_words_of_yarn_are_cut() -> None:
    assert shortened("a\n b  c") == "a b c"
    assert len(shortened("x" * 10_000)) < 700
