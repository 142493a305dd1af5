"""TaskExecutorRequests alone: what is asked of the driver, and what is given back."""

from __future__ import annotations

from yarrow.am.resourcemanager.requested_task_executors import RequestedTaskExecutors
from yarrow.am.resourcemanager.resource_tracker import ResourceTracker
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.am.resourcemanager.slot_events import RequirementsDeclared
from yarrow.am.resourcemanager.task_executor_requests import Lack, TaskExecutorRequests
from yarrow.am.resourcemanager.task_executor_tracker import TaskExecutorTracker
from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID
from yarrow.runtime.rpc.messages import ResourceProfile, ResourceRequirement, SlotID, SlotReport, SlotStatus

ANY = ResourceProfile()


class Asked:
    """The part with what it looks at."""

    def __init__(self, settings: SlotManagerSettings) -> None:
        self.resources = ResourceTracker()
        self.executors = TaskExecutorTracker(self.resources)
        self.requested = RequestedTaskExecutors(settings.starts)
        self.requests = TaskExecutorRequests(settings, self.resources, self.executors, self.requested)

    def lack(self, name: str, slots: int) -> Lack:
        """A job that has declared so many, and has none."""
        requirement = ResourceRequirement(profile=ANY, number_of_slots=slots)
        job_id = JobID(name)
        self.resources.declared(
            RequirementsDeclared(job_id, JobMasterID("jm"), "inproc://jm", (requirement,))
        )
        job = self.resources.job(job_id)
        assert job is not None
        return Lack(job, ANY, slots)

    def register(self, name: str, slots: int, now: float = 0.0) -> None:
        statuses = [
            SlotStatus(slot_id=SlotID(resource_id=ResourceID(name), index=index), profile=ANY)
            for index in range(slots)
        ]
        self.executors.registered(ResourceID(name), SlotReport(slots=tuple(statuses)), now)


def test_what_one_job_leaves_of_a_task_executor_serves_the_next() -> None:
    asked = Asked(SlotManagerSettings(slots_per_task_executor=4))
    lacking = [asked.lack("a", 3), asked.lack("b", 3)]
    requests, uncovered = asked.requests.cover(lacking, 0.0)
    assert (len(requests), uncovered) == (2, [])
    assert asked.requests.cover(lacking, 0.0) == ([], []), "what is on its way is not asked for again"


def test_what_the_limit_leaves_uncovered_is_told() -> None:
    asked = Asked(SlotManagerSettings(max_slots=2))
    lacking = [asked.lack("a", 1), asked.lack("b", 3), asked.lack("c", 1)]
    requests, uncovered = asked.requests.cover(lacking, 0.0)
    assert len(requests) == 2
    assert [lack.job.job_id for lack in uncovered] == ["b", "c"]


def test_jobs_may_change_their_minds_before_the_check() -> None:
    asked = Asked(SlotManagerSettings(requirement_check_delay=0.05))
    assert asked.requests.may_ask_for_jobs(0.0)
    asked.requests.requirements_declared(1.0)
    assert not asked.requests.may_ask_for_jobs(1.04)
    assert asked.requests.may_ask_for_jobs(1.05)


def test_a_cluster_that_starts_none_releases_none() -> None:
    asked = Asked(SlotManagerSettings(can_request=False, task_executor_timeout=1.0))
    asked.register("a", 1)
    assert asked.requests.to_release(1000.0) == []
    assert asked.requests.cover([asked.lack("a", 1)], 0.0)[0] == []


def test_idle_ones_go_when_their_time_is_over_but_for_the_minimum() -> None:
    asked = Asked(SlotManagerSettings(task_executor_timeout=30.0, min_slots=1))
    for name in "ab":
        asked.register(name, 1)
    assert asked.requests.to_release(29.9) == []
    assert [release.resource_id for release in asked.requests.to_release(30.0)] == ["a"]
    assert list(asked.executors.all) == ["b"]
