"""YarnSparkDrivers: containers for drivers of bounded jobs, asked for, explained, lost and given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.unit.am.yarn.containers_of_yarn import ContainersOfYarn
from yarrow.am.execution.errors import NoSparkDriversError, SparkDriverStartError
from yarrow.am.yarn.service_containers import ExplainWaiting, PublishedDelays, YarnDriverSettings
from yarrow.am.yarn.yarn_spark_drivers import YarnSparkDrivers
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.messages import SparkDriverRequest
from yarrow.runtime.yarn.gateways import ContainerShape, YarnError
from yarrow.runtime.yarn.layout import (
    JOB_ID,
    JOB_MASTER_ADDRESS,
    JOB_MASTER_ID,
    KV_WAITING_FOR,
    SPARK_DRIVER_ID,
    SPARK_DRIVER_SERVICE,
    TASK_EXECUTOR_SERVICE,
)

DRIVER = ResourceID("sparkdriver-1")
SHAPE = ContainerShape(2048, 2)


class Heard:
    """The ear of a ResourceManager."""

    def __init__(self) -> None:
        self.ended: dict[ResourceID, str] = {}
        self.delays: list[str] = []

    def end(self, driver_id: ResourceID, cause: str) -> None:
        self.ended[driver_id] = cause

    def delay(self, explanation: str) -> None:
        self.delays.append(explanation)


def request(driver_id: ResourceID = DRIVER, **configuration: str) -> SparkDriverRequest:
    return SparkDriverRequest(
        driver_id=driver_id,
        job_id=JobID("a" * 32),
        job_master_id=JobMasterID("b" * 32),
        job_master_address="grpc://master:1/jobmanager",
        configuration={key.replace("__", "."): value for key, value in configuration.items()},
        slots=7,
    )


@asynccontextmanager
async def driving(
    yarn: ContainersOfYarn,
    explain: ExplainWaiting | None = None,
    refusal: Callable[[ContainerShape], str] | None = None,
    patience: float = 60.0,
) -> AsyncIterator[tuple[YarnSparkDrivers, Heard]]:
    settings = YarnDriverSettings(
        attempt=2, shape=SHAPE, poll_interval=0.01, patience=patience, grace=60.0, end_patience=60.0
    )
    drivers = YarnSparkDrivers(
        yarn, settings, Settings(), SystemClock(), PublishedDelays(yarn), explain, refusal
    )
    try:
        yield drivers, Heard()
    finally:
        await drivers.terminate()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_a_container_is_told_its_job_and_whom_to_register_with() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (drivers, heard):
            await drivers.start_spark_driver(request(), heard.end, heard.delay)
            assert yarn.services == [SPARK_DRIVER_SERVICE]
            assert yarn.environments == [
                {
                    SPARK_DRIVER_ID: DRIVER,
                    JOB_ID: "a" * 32,
                    JOB_MASTER_ADDRESS: "grpc://master:1/jobmanager",
                    JOB_MASTER_ID: "b" * 32,
                }
            ], "and nothing of its configuration, which may hold secrets"
            await drivers.end_spark_driver(DRIVER)
            assert yarn.released == ["spark-driver_0"]
            assert heard.ended == {DRIVER: "the container was released"}

    asyncio.run(run())


def test_the_end_of_a_container_is_told_with_its_cause_and_remedy() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn) as (drivers, heard):
            await drivers.start_spark_driver(request(), heard.end, heard.delay)
            yarn.grant("spark-driver_0")
            yarn.end("spark-driver_0", "FAILED", "running beyond the 'PHYSICAL' memory limit")
            await until(lambda: DRIVER in heard.ended)
            assert "its limit of 2048 MB" in heard.ended[DRIVER]
            assert "yarn.spark-driver.memory" in heard.ended[DRIVER]
            await drivers.end_spark_driver(DRIVER)
            assert yarn.released == [], "it has ended already"

    asyncio.run(run())


def test_a_driver_that_waits_says_why_until_it_is_granted() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn, explain=lambda *_: "the queue is full", patience=0.0) as (drivers, heard):
            await drivers.start_spark_driver(request(), heard.end, heard.delay)
            await until(lambda: bool(heard.delays))
            text = heard.delays[0]
            assert text.startswith("YARN has not granted 1 containers of 2048 MB and 2 cores")
            assert text.endswith("; the queue is full")
            await until(lambda: KV_WAITING_FOR in yarn.published)
            yarn.grant("spark-driver_0")
            await until(lambda: yarn.published[KV_WAITING_FOR] == "")
            assert len(heard.delays) == 1, "a driver that has its container waits for none"

    asyncio.run(run())


def test_each_driver_that_waits_hears_why() -> None:
    async def run() -> None:
        yarn, second = ContainersOfYarn(), Heard()
        async with driving(yarn, explain=lambda *_: "the queue is full", patience=0.0) as (drivers, first):
            await drivers.start_spark_driver(request(), first.end, first.delay)
            await until(lambda: bool(first.delays))
            await drivers.start_spark_driver(request(ResourceID("sparkdriver-2")), second.end, second.delay)
            await until(lambda: bool(second.delays))
            assert second.delays[0].startswith("YARN has not granted 2 containers of 2048 MB and 2 cores")
            assert second.delays[0].endswith("; the queue is full")

    asyncio.run(run())


def test_without_an_answer_about_the_queue_yarn_is_not_asked() -> None:
    def silent(shape: ContainerShape) -> str:
        raise YarnError("the web server does not answer")

    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn, refusal=silent) as (drivers, heard):
            with pytest.raises(SparkDriverStartError, match="the web server does not answer") as raised:
                await drivers.start_spark_driver(request(), heard.end, heard.delay)
            assert not isinstance(raised.value, NoSparkDriversError), "the restart strategy decides"
            assert yarn.services == []

    asyncio.run(run())


def test_requests_that_yarn_would_never_grant_are_refused_for_good() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        async with driving(yarn, refusal=lambda shape: f"at most {shape.memory_mb - 1} MB") as (
            drivers,
            heard,
        ):
            with pytest.raises(NoSparkDriversError, match="at most 2047 MB"):
                await drivers.start_spark_driver(request(), heard.end, heard.delay)
            with pytest.raises(
                NoSparkDriversError, match=r"spark\.driver\.memory of 4 gb.*yarn\.spark-driver"
            ):
                await drivers.start_spark_driver(request(spark__driver__memory="4g"), heard.end, heard.delay)
            assert yarn.services == []

    asyncio.run(run())


def test_a_request_that_yarn_refuses_is_an_error() -> None:
    async def run() -> None:
        yarn = ContainersOfYarn()
        yarn.refusal = "no"
        async with driving(yarn) as (drivers, heard):
            with pytest.raises(SparkDriverStartError, match="YARN refused"):
                await drivers.start_spark_driver(request(), heard.end, heard.delay)
            assert heard.ended == {}

    asyncio.run(run())


def test_what_several_services_wait_for_is_published_together() -> None:
    yarn = ContainersOfYarn()
    delays = PublishedDelays(yarn)
    delays.publish(TASK_EXECUTOR_SERVICE, "one")
    delays.publish(SPARK_DRIVER_SERVICE, "two")
    assert yarn.published[KV_WAITING_FOR] == "one; two"
    delays.publish(TASK_EXECUTOR_SERVICE, "")
    assert yarn.published[KV_WAITING_FOR] == "two"
