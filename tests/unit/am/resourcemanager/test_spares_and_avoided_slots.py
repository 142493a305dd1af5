"""SlotManager: spare TaskExecutors, and slots that keep failing."""

from __future__ import annotations

from tests.unit.am.resourcemanager.test_slot_manager import JOB, Driven, requests
from yarrow.am.resourcemanager.avoided_slots import AVOIDED_FIRST, AVOIDED_MOST, FAILURES, AvoidedSlots
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.am.resourcemanager.slot_events import (
    JobGone,
    NotifyNotEnoughResources,
    ReleaseTaskExecutor,
    RequestSlot,
    RequestTaskExecutor,
    SlotFreed,
    SlotManagerAction,
    SlotRequestAcknowledged,
    TaskExecutorAllocated,
    TaskExecutorGone,
    TaskExecutorsDelayed,
    TimePassed,
)
from yarrow.runtime.common.ids import AllocationID, ResourceID
from yarrow.runtime.rpc.messages import SlotID, SlotRequest


def spare(number: int = 1, slots: int = 1) -> Driven:
    return Driven(SlotManagerSettings(redundant_task_executors=number, slots_per_task_executor=slots))


def asked(actions: list[SlotManagerAction]) -> int:
    return sum(isinstance(action, RequestTaskExecutor) for action in actions)


def acknowledge(driven: Driven, actions: list[SlotManagerAction]) -> list[SlotRequest]:
    """Acknowledges the slot requests among the actions."""
    wanted = [action.request for action in actions if isinstance(action, RequestSlot)]
    for request in wanted:
        driven.tell(SlotRequestAcknowledged(request))
    return wanted


# Spares.


def test_a_job_has_a_spare_task_executor_started_besides_its_own() -> None:
    driven = spare()
    assert asked(driven.tell(TimePassed())) == 0, "no job, no spare"
    assert asked(driven.need(2)) == 3
    for name in "abc":
        driven.tell(TaskExecutorAllocated(ResourceID(name)))
    for name in "abc":
        actions = driven.register(name, 1)
        assert asked(actions) == 0
        acknowledge(driven, actions)
    assert driven.states() == {"ALLOCATED": 2, "FREE": 1}


def test_the_spare_takes_over_at_once_and_is_replaced() -> None:
    driven = spare()
    driven.need(1)
    for name in "ab":
        driven.tell(TaskExecutorAllocated(ResourceID(name)))
        acknowledge(driven, driven.register(name, 1))
    actions = driven.tell(TaskExecutorGone(ResourceID("a"), "killed"))
    assert [type(action).__name__ for action in actions] == ["RequestSlot", "RequestTaskExecutor"]
    assert asked(driven.tell(TimePassed())) == 0, "one on its way is enough"


def test_spares_are_kept_while_a_job_runs_and_released_after_it() -> None:
    driven = spare()
    driven.need(1)
    for name in "ab":
        driven.tell(TaskExecutorAllocated(ResourceID(name)))
        acknowledge(driven, driven.register(name, 1))
    driven.now = 1000
    assert driven.tell(TimePassed()) == []
    driven.tell(JobGone(JOB))
    assert [type(action) for action in driven.tell(TimePassed())] == [ReleaseTaskExecutor]


# What fails.


def lose(driven: Driven, request: SlotRequest) -> list[SlotRequest]:
    """The job loses a slot that it needs; the requests that follow, acknowledged."""
    freed = SlotFreed(request.slot_id.resource_id, request.slot_id.index, request.allocation_id)
    return acknowledge(driven, driven.tell(freed))


def failing(driven: Driven) -> tuple[SlotID, SlotRequest]:
    """One TaskExecutor has a slot that is lost until it is avoided; the slot, and what the job has then."""
    driven.register("bad", 1)
    (request,) = acknowledge(driven, driven.need(1))
    for _ in range(FAILURES):
        driven.now += 1
        (request,) = lose(driven, request)
    return SlotID(resource_id=ResourceID("bad"), index=0), request


def test_a_slot_that_keeps_failing_is_avoided_where_another_is_free() -> None:
    driven = Driven()
    bad, request = failing(driven)
    assert request.slot_id == bad, "there is no other"
    driven.register("good", 1)
    (request,) = lose(driven, request)
    assert request.slot_id.resource_id == "good"


def test_the_only_slot_is_not_tried_without_end() -> None:
    driven = Driven(SlotManagerSettings())
    driven.register("bad", 1)
    current = acknowledge(driven, driven.need(1))
    tries, others = 1, 0
    for _ in range(1000):
        driven.now += 0.01
        freed = [SlotFreed(each.slot_id.resource_id, 0, each.allocation_id) for each in current]
        actions = driven.tell(freed[0] if freed else TimePassed())
        others += asked(actions)
        current = acknowledge(driven, actions)
        tries += len(current)
    assert 10 <= tries <= 40, "in ten seconds"
    assert others == 0, "nothing is asked for in its place"


def test_after_a_while_it_is_used_again() -> None:
    driven = Driven()
    bad, request = failing(driven)
    driven.tell(JobGone(JOB))
    driven.tell(SlotFreed(bad.resource_id, bad.index, request.allocation_id))
    driven.now += AVOIDED_FIRST + 1
    driven.register("good", 1)
    assert len({taken.slot_id for taken in requests(driven.need(2))}) == 2


def test_slots_given_back_by_choice_are_no_failures() -> None:
    driven = Driven()
    driven.register("one", 1)
    for _ in range(2 * FAILURES):
        (request,) = acknowledge(driven, driven.need(1))
        driven.need(0)
        driven.tell(SlotFreed(ResourceID("one"), 0, request.allocation_id))
    driven.register("two", 1)
    (first, second) = acknowledge(driven, driven.need(2))
    assert {first.slot_id.resource_id, second.slot_id.resource_id} == {"one", "two"}
    freed, kept = (first, second) if first.slot_id.resource_id == "one" else (second, first)
    # One failure after them is the first in a row.
    (again,) = lose(driven, freed)
    assert again.slot_id == freed.slot_id and kept.slot_id != freed.slot_id


def test_avoidance_grows_and_decays() -> None:
    avoided = AvoidedSlots()
    slot = SlotID(resource_id=ResourceID("te"), index=0)
    other = SlotID(resource_id=ResourceID("te"), index=1)
    for now in (0.0, 61.0, 122.0):
        avoided.failed(slot, now)
    assert not avoided.is_avoided(slot, 122), "not within a minute"
    for now in (130.0, 131.0):
        avoided.failed(slot, now)
    assert avoided.is_avoided(slot, 131) and avoided.is_avoided(other, 131), "nor is its TaskExecutor"
    assert not avoided.is_avoided(slot, 131 + AVOIDED_FIRST)
    avoided.failed(slot, 132)
    assert avoided.is_avoided(slot, 131 + 2 * AVOIDED_FIRST)
    later = 132 + 3 * AVOIDED_MOST
    for step in range(FAILURES):
        avoided.failed(slot, later + step)
    assert not avoided.is_avoided(slot, later + FAILURES + AVOIDED_FIRST), "long past failures are forgotten"
    avoided.forget(ResourceID("te"))
    assert not avoided.is_avoided(slot, later + FAILURES)


def test_an_allocation_of_an_unknown_job_is_nobodys_failure() -> None:
    driven = Driven()
    driven.register("one", 1, s0="x")
    driven.tell(SlotFreed(ResourceID("one"), 0, AllocationID("x")))
    assert driven.states() == {"FREE": 1}


# What is no longer needed, and what does not come.


def test_task_executors_on_their_way_that_nobody_needs_any_more_are_given_up() -> None:
    driven = Driven(SlotManagerSettings())
    driven.need(3)
    for name in "abc":
        driven.tell(TaskExecutorAllocated(ResourceID(name)))
    driven.need(1)
    assert driven.tell(TimePassed()) == []
    driven.now = 4.9
    assert driven.tell(TimePassed()) == [], "a job that restarts asks again in a moment"
    driven.now = 5.0
    released = driven.tell(TimePassed())
    assert [action.resource_id for action in released if isinstance(action, ReleaseTaskExecutor)] == [
        "c",
        "b",
    ]
    assert driven.manager.pending_task_executors == 1
    assert requests(driven.register("a", 1)), "the one that is needed still serves"


def test_what_spares_and_the_minimum_need_is_not_given_up() -> None:
    driven = Driven(SlotManagerSettings(redundant_task_executors=1, min_slots=1))
    driven.need(1)
    for name in "ab":
        driven.tell(TaskExecutorAllocated(ResourceID(name)))
    for driven.now in (1.0, 10.0):
        assert driven.tell(TimePassed()) == []
    driven.tell(JobGone(JOB))
    for driven.now in (11.0, 20.0):
        actions = driven.tell(TimePassed())
    assert [action.resource_id for action in actions if isinstance(action, ReleaseTaskExecutor)] == ["b"]


def test_a_job_that_misses_slots_is_told_why_they_do_not_come() -> None:
    driven = Driven(SlotManagerSettings())
    driven.need(1)
    driven.tell(TaskExecutorAllocated(ResourceID("a")))
    (told,) = driven.tell(TaskExecutorsDelayed("the queue is full"))
    assert isinstance(told, NotifyNotEnoughResources)
    assert told.explanation.endswith("1 TaskExecutors are starting; the queue is full")
    assert driven.tell(TaskExecutorsDelayed("the queue is full")) == []
