"""What a job hears about the slots that it waits for is what it waits for now."""

from __future__ import annotations

from tests.unit.am.resourcemanager.test_slot_manager import JOB, Driven, among
from yarrow.am.resourcemanager.requested_task_executors import StartSettings
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.am.resourcemanager.slot_events import (
    JobGone,
    NotifyNotEnoughResources,
    RequestTaskExecutor,
    SlotManagerAction,
    TaskExecutorAllocated,
    TaskExecutorRequestFailed,
    TaskExecutorsDelayed,
    TimePassed,
)
from yarrow.runtime.common.ids import JobID, ResourceID


def told(actions: list[SlotManagerAction]) -> list[str]:
    return [action.explanation for action in among(actions, NotifyNotEnoughResources)]


def test_a_failure_to_start_that_is_over_is_not_told_any_more() -> None:
    driven = Driven(SlotManagerSettings())
    driven.need(2)
    (failed,) = told(driven.tell(TaskExecutorRequestFailed("no memory")))
    assert "did not start: no memory" in failed
    driven.tell(TaskExecutorAllocated(ResourceID("a")))
    (present,) = told(driven.register("a", 1))
    assert "no memory" not in present and present.startswith("needs 2 slots, has 1;")
    assert "1 TaskExecutors are starting" in present


def test_a_job_that_lacks_nothing_any_more_hears_so_once() -> None:
    driven = Driven()
    assert len(told(driven.need(2))) == 1
    assert len(told(driven.register("a", 1))) == 1
    assert told(driven.register("b", 1)) == [""]
    assert told(driven.register("c", 1)) == []


def test_a_job_that_waits_for_what_is_on_its_way_hears_nothing() -> None:
    driven = Driven(SlotManagerSettings())
    assert told(driven.need(1)) == []
    assert told(driven.tell(TimePassed())) == []
    assert told(driven.register("a", 1)) == []


def test_what_the_driver_waits_for_no_longer_is_taken_back() -> None:
    driven = Driven(SlotManagerSettings())
    driven.need(1)
    (full,) = told(driven.tell(TaskExecutorsDelayed("the queue is full")))
    assert full.endswith("the queue is full")
    (present,) = told(driven.tell(TaskExecutorsDelayed("")))
    assert present.endswith("1 TaskExecutors are starting")


def test_how_many_slots_there_can_be_is_told_where_it_is_known() -> None:
    def most(settings: SlotManagerSettings, registered: int) -> list[int | None]:
        driven = Driven(settings)
        driven.register("a", registered)
        actions = [*driven.need(9), *driven.tell(TaskExecutorRequestFailed("no memory"))]
        return [action.most_slots for action in among(actions, NotifyNotEnoughResources)]

    assert most(SlotManagerSettings(can_request=False), 3)[0] == 3
    # None of two slots more would stay below the limit.
    assert most(SlotManagerSettings(max_slots=6, slots_per_task_executor=2), 3)[0] == 5
    assert most(SlotManagerSettings(max_slots=2, slots_per_task_executor=2), 3)[0] == 3
    assert most(SlotManagerSettings(), 3) == [None]


def test_a_job_that_declares_anew_is_told_again() -> None:
    driven = Driven()
    assert len(told(driven.need(1))) == 1
    assert len(told(driven.need(1))) == 1


def test_a_job_that_is_gone_hears_nothing() -> None:
    driven = Driven()
    driven.need(1)
    driven.need(1, job=JobID("other"))
    assert told(driven.tell(JobGone(JOB))) == []
    assert len(among(driven.register("a", 2), NotifyNotEnoughResources)) == 1


def test_starts_that_keep_failing_are_counted_and_told_with_the_pause() -> None:
    driven = Driven(SlotManagerSettings(starts=StartSettings(max_failure_rate=2, retry_interval=3)))
    said = told([*driven.need(1), *driven.tell(TaskExecutorRequestFailed("first"))])
    assert said[-1].endswith("; the last requested TaskExecutor did not start: first")
    driven.now += 1
    said = told(driven.tell(TaskExecutorRequestFailed("second")))
    assert said[-1].endswith("; 2 TaskExecutors did not start within a minute, the last one: second")
    driven.now += 1
    said = told(driven.tell(TaskExecutorRequestFailed("third")))
    assert "3 TaskExecutors did not start within a minute, and the next request follows 3 s later" in said[-1]
    assert said[-1].endswith(", the last one: third")
    driven.now += 4
    assert told(driven.tell(TimePassed())) == [], "nothing new while another one starts"
    driven.now += 61
    driven.tell(TimePassed())
    said = told(driven.tell(TaskExecutorRequestFailed("much later")))
    assert said[-1].endswith("; the last requested TaskExecutor did not start: much later")


def test_failing_starts_are_bounded_by_rate_and_pause() -> None:
    driven = Driven(SlotManagerSettings(starts=StartSettings(max_failure_rate=10, retry_interval=3)))
    actions, asked = driven.need(1), 0
    for _ in range(600):
        while among(actions, RequestTaskExecutor):
            asked += 1
            actions = driven.tell(TaskExecutorRequestFailed("bad interpreter"))
        driven.now += 0.1
        actions = driven.tell(TimePassed())
    assert 11 <= asked <= 31, "ten in a row, then one for each three seconds of the minute"
