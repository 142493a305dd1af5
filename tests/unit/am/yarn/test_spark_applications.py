"""Spark's applications on YARN end with the SparkDrivers that have asked for them."""

from __future__ import annotations

import asyncio

from yarrow.am.resourcemanager.spark_drivers import OnDriverDelayed, OnDriverEnded
from yarrow.am.yarn.spark_applications import SparkApplications
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.messages import SparkDriverRequest
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.spark_containers import tags_of

DRIVER = ResourceID("sparkdriver-1")


class Launcher:
    """Notes what it is asked."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        self.events.append(f"start {request.driver_id}")

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        self.events.append(f"end {driver_id}")


class Yarn:
    """Applications with tags; one that is killed goes at the second look."""

    def __init__(self, events: list[str], **applications: tuple[str, ...]) -> None:
        self.events = events
        self.applications = applications
        self._ending: set[str] = set()
        self.answers = True

    def living(self, tag: str) -> list[tuple[str, frozenset[str]]]:
        if not self.answers:
            raise YarnError("nobody answers")
        found = [(name, frozenset(tags)) for name, tags in self.applications.items() if tag in tags]
        for name in self._ending:
            self.applications.pop(name, None)
        return found

    def kill(self, application_id: str) -> None:
        self.events.append(f"kill {application_id}")
        self._ending.add(application_id)


def request(master: str) -> SparkDriverRequest:
    return SparkDriverRequest(
        driver_id=DRIVER,
        job_id=JobID("a" * 32),
        job_master_id=JobMasterID("b" * 32),
        job_master_address="grpc://master:1/jobmanager",
        configuration={"spark.master": master},
        slots=1,
    )


def run(yarn: Yarn, events: list[str], master: str = "yarn", grace: float = 0.0) -> None:
    async def driven() -> None:
        applications = SparkApplications(Launcher(events), lambda: yarn, Settings({}), SystemClock(), grace)
        await applications.start_spark_driver(request(master), lambda *_: None, lambda _: None)
        await applications.end_spark_driver(DRIVER)

    asyncio.run(driven())


def test_an_application_that_outlives_its_driver_is_ended_and_others_are_not() -> None:
    events: list[str] = []
    yarn = Yarn(
        events,
        application_1_5=tags_of("application_1_2", "a", DRIVER),
        application_1_6=tags_of("application_1_2", "a", "sparkdriver-2"),
    )
    run(yarn, events)
    assert events == ["start sparkdriver-1", "end sparkdriver-1", "kill application_1_5"]
    assert list(yarn.applications) == ["application_1_6"]


def test_a_driver_may_end_its_application_in_order_before_it_is_ended() -> None:
    events: list[str] = []

    class EndsByItself(Yarn):
        def living(self, tag: str) -> list[tuple[str, frozenset[str]]]:
            found = super().living(tag)
            if found:
                events.append("lives")
            self.applications.clear()
            return found

    yarn = EndsByItself(events, application_1_5=tags_of("application_1_2", "a", DRIVER))
    run(yarn, events, grace=60.0)
    assert events == ["start sparkdriver-1", "lives", "end sparkdriver-1"]


def test_yarn_is_not_asked_about_drivers_whose_spark_runs_elsewhere() -> None:
    events: list[str] = []
    yarn = Yarn(events)
    yarn.answers = False
    run(yarn, events, "local[2]")
    assert events == ["start sparkdriver-1", "end sparkdriver-1"]


def test_a_yarn_that_does_not_answer_keeps_no_job() -> None:
    events: list[str] = []
    yarn = Yarn(events)
    yarn.answers = False
    run(yarn, events)
    assert events == ["start sparkdriver-1", "end sparkdriver-1"]


def test_a_next_master_ends_what_drivers_of_the_former_one_have_asked_for() -> None:
    events: list[str] = []
    yarn = Yarn(
        events,
        application_1_5=tags_of("application_1_2", "a", "sparkdriver-9"),
        # A user's application with the same tag is not ours.
        application_1_7=("application_1_2",),
    )
    applications = SparkApplications(Launcher(events), lambda: yarn, Settings({}), SystemClock())
    asyncio.run(asyncio.wait_for(applications.end_tagged("application_1_2"), 60))
    assert events == ["kill application_1_5"]
