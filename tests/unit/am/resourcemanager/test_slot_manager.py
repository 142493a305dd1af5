"""SlotManager: who gets which slot, and what heals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting_ids import CountingIdFactory
from yarrow.am.resourcemanager.requested_task_executors import StartSettings
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.am.resourcemanager.slot_events import (
    AskForSlotReport,
    JobGone,
    NotifyNotEnoughResources,
    ReleaseTaskExecutor,
    RequestSlot,
    RequestTaskExecutor,
    RequirementsDeclared,
    SlotFreed,
    SlotManagerAction,
    SlotManagerEvent,
    SlotReportReceived,
    SlotRequestAcknowledged,
    SlotRequestFailed,
    TaskExecutorAllocated,
    TaskExecutorGone,
    TaskExecutorRegistered,
    TaskExecutorRequestFailed,
    TimePassed,
)
from yarrow.am.resourcemanager.slot_manager import SlotManager
from yarrow.am.resourcemanager.slots import SlotState, fits
from yarrow.runtime.common.ids import (
    AllocationID,
    JobID,
    JobMasterID,
    RandomIdFactory,
    ResourceID,
    ResourceManagerID,
)
from yarrow.runtime.rpc.messages import (
    ResourceProfile,
    ResourceRequirement,
    SlotID,
    SlotReport,
    SlotRequest,
    SlotStatus,
)

T = TypeVar("T")
JOB = JobID("job")
ANY = ResourceProfile()


class Driven:
    """A SlotManager with its time and its actions."""

    def __init__(self, settings: SlotManagerSettings | None = None, random: bool = False) -> None:
        ids = RandomIdFactory() if random else CountingIdFactory()
        settings = settings or SlotManagerSettings(can_request=False)
        self.manager = SlotManager(ResourceManagerID("rm"), settings, ids)
        self.now = 0.0

    def tell(self, event: SlotManagerEvent) -> list[SlotManagerAction]:
        return self.manager.handle(event, self.now)

    def register(self, name: str, slots: int, **taken: str) -> list[SlotManagerAction]:
        return self.tell(TaskExecutorRegistered(ResourceID(name), report(name, slots, 1, **taken)))

    def need(self, slots: int, job: JobID = JOB, profile: ResourceProfile = ANY) -> list[SlotManagerAction]:
        requirement = ResourceRequirement(profile=profile, number_of_slots=slots)
        return self.tell(RequirementsDeclared(job, JobMasterID("jm"), "inproc://jm", (requirement,)))

    def states(self) -> Counter[str]:
        return Counter(
            slot.state.name
            for executor in self.manager.task_executors.values()
            for slot in executor.slots.values()
        )


def report(name: str, slots: int, sequence: int, **taken: str) -> SlotReport:
    """Slots of a TaskExecutor; `s0="a"` = slot 0 has the allocation a of the job."""
    return SlotReport(
        sequence=sequence,
        slots=tuple(
            SlotStatus(
                slot_id=SlotID(resource_id=ResourceID(name), index=index),
                profile=ANY,
                allocation_id=AllocationID(taken[f"s{index}"]) if f"s{index}" in taken else None,
                job_id=JOB if f"s{index}" in taken else None,
            )
            for index in range(slots)
        ),
    )


def only(actions: Sequence[SlotManagerAction], kind: type[T]) -> list[T]:
    assert all(isinstance(action, kind) for action in actions), actions
    return [action for action in actions if isinstance(action, kind)]


def among(actions: Sequence[SlotManagerAction], kind: type[T]) -> list[T]:
    return [action for action in actions if isinstance(action, kind)]


def requests(actions: Sequence[SlotManagerAction]) -> list[SlotRequest]:
    return [action.request for action in only(actions, RequestSlot)]


def test_free_slots_are_given_to_the_job_that_needs_them() -> None:
    driven = Driven()
    assert driven.register("a", 3) == []
    first = requests(driven.need(2))
    assert len({request.slot_id for request in first}) == 2
    assert {(r.job_id, r.job_master_id, r.resource_manager_id) for r in first} == {(JOB, "jm", "rm")}
    assert driven.states() == {"PENDING": 2, "FREE": 1}
    for request in first:
        assert driven.tell(SlotRequestAcknowledged(request)) == []
    assert driven.states() == {"ALLOCATED": 2, "FREE": 1}
    assert driven.need(2) == []
    assert len(requests(driven.need(3))) == 1


def test_slots_that_register_later_serve_the_waiting_job() -> None:
    driven = Driven()
    (told,) = only(driven.need(3), NotifyNotEnoughResources)
    assert "needs 3 slots, has 0; 0 TaskExecutors with 0 slots are registered" in told.explanation
    assert "yarrow taskmanager" in told.explanation
    assert len(among(driven.register("a", 2), RequestSlot)) == 2
    assert len(among(driven.register("b", 2), RequestSlot)) == 1


def test_the_same_explanation_is_told_once() -> None:
    driven = Driven()
    assert len(driven.need(1)) == 1
    assert driven.tell(TimePassed()) == []
    assert len(only(driven.register("b", 0), NotifyNotEnoughResources)) == 1


def test_a_refused_request_waits_for_the_truth() -> None:
    driven = Driven()
    driven.register("a", 1)
    (request,) = requests(driven.need(1))
    assert driven.tell(SlotRequestFailed(request, "no answer"))[0] == AskForSlotReport(ResourceID("a"))
    assert driven.states() == {"UNKNOWN": 1}
    # It was free after all: asked for again.
    (again,) = requests(driven.tell(SlotReportReceived(ResourceID("a"), report("a", 1, 2))))
    assert again.allocation_id != request.allocation_id
    driven.tell(SlotRequestFailed(again, "no answer"))
    # The request had arrived, only its answer was lost.
    taken = report("a", 1, 3, s0=again.allocation_id)
    assert driven.tell(SlotReportReceived(ResourceID("a"), taken)) == []
    assert driven.states() == {"ALLOCATED": 1}


def test_a_lost_notice_of_a_free_slot_is_healed_by_a_report() -> None:
    driven = Driven()
    driven.register("a", 1)
    (request,) = requests(driven.need(1))
    driven.tell(SlotRequestAcknowledged(request))
    driven.tell(JobGone(JOB))
    assert driven.states() == {"ALLOCATED": 1}
    driven.tell(SlotReportReceived(ResourceID("a"), report("a", 1, 2)))
    assert driven.states() == {"FREE": 1}


def test_an_older_report_changes_nothing() -> None:
    driven = Driven()
    driven.register("a", 1)
    (request,) = requests(driven.need(1))
    driven.tell(SlotRequestAcknowledged(request))
    driven.tell(SlotReportReceived(ResourceID("a"), report("a", 1, 5, s0=request.allocation_id)))
    assert driven.tell(SlotReportReceived(ResourceID("a"), report("a", 1, 4))) == []
    assert driven.states() == {"ALLOCATED": 1}


def test_a_report_made_before_the_request_arrived_does_not_take_it_back() -> None:
    driven = Driven()
    driven.register("a", 1)
    driven.need(1)
    assert driven.tell(SlotReportReceived(ResourceID("a"), report("a", 1, 2))) == []
    assert driven.states() == {"PENDING": 1}


def test_a_stale_notice_does_not_free_a_newer_allocation() -> None:
    driven = Driven()
    driven.register("a", 1)
    (request,) = requests(driven.need(1))
    driven.tell(SlotRequestAcknowledged(request))
    driven.tell(SlotFreed(ResourceID("a"), 0, AllocationID("older")))
    assert driven.states() == {"ALLOCATED": 1}
    (again,) = requests(driven.tell(SlotFreed(ResourceID("a"), 0, request.allocation_id)))
    assert again.allocation_id != request.allocation_id


def test_slots_of_a_lost_task_executor_are_replaced() -> None:
    driven = Driven()
    driven.register("a", 1)
    driven.register("b", 1)
    (request,) = requests(driven.need(1))
    (again,) = requests(driven.tell(TaskExecutorGone(request.slot_id.resource_id, "killed")))
    assert again.slot_id.resource_id != request.slot_id.resource_id


def test_a_new_leader_learns_allocations_from_registrations() -> None:
    driven = Driven()
    driven.register("a", 2, s0="one", s1="two")
    assert driven.need(2) == []
    assert len(only(driven.need(3), NotifyNotEnoughResources)) == 1


def test_spreading_takes_the_least_used_task_executor() -> None:
    driven = Driven(SlotManagerSettings(evenly_spread_out=True, can_request=False))
    for name in "abcd":
        driven.register(name, 4)
    places = Counter(request.slot_id.resource_id for request in requests(driven.need(8)))
    assert set(places.values()) == {2}


def test_random_placement_reaches_every_task_executor() -> None:
    driven = Driven(random=True)
    for name in "abcd":
        driven.register(name, 100)
    places = Counter(request.slot_id.resource_id for request in requests(driven.need(100)))
    # The chance that one of four gets none of a hundred is below 10 ** -11.
    assert len(places) == 4


def test_task_executors_are_requested_as_whole_processes() -> None:
    driven = Driven(SlotManagerSettings(slots_per_task_executor=2))
    assert len(only(driven.need(5), RequestTaskExecutor)) == 3
    assert driven.manager.pending_task_executors == 3
    assert driven.tell(TimePassed()) == []
    assert driven.tell(TaskExecutorAllocated(ResourceID("a"))) == []
    assert driven.manager.pending_task_executors == 3
    assert len(requests(driven.register("a", 2))) == 2
    assert driven.manager.pending_task_executors == 2


def test_one_that_registers_before_the_driver_names_it_is_not_counted_twice() -> None:
    driven = Driven(SlotManagerSettings())
    driven.need(1)
    driven.register("a", 1)
    driven.tell(TaskExecutorAllocated(ResourceID("a")))
    assert driven.manager.pending_task_executors == 0


def test_a_failed_start_is_told_and_tried_again_after_a_pause() -> None:
    driven = Driven(SlotManagerSettings(starts=StartSettings(max_failure_rate=0, retry_interval=3)))
    driven.need(1)
    (told,) = only(driven.tell(TaskExecutorRequestFailed("no memory")), NotifyNotEnoughResources)
    assert "did not start: no memory" in told.explanation
    driven.now = 2.9
    assert driven.tell(TimePassed()) == []
    driven.now = 3.0
    assert len(among(driven.tell(TimePassed()), RequestTaskExecutor)) == 1
    driven.tell(TaskExecutorAllocated(ResourceID("a")))
    (told,) = only(driven.tell(TaskExecutorGone(ResourceID("a"), "exit status 1")), NotifyNotEnoughResources)
    assert "exit status 1" in told.explanation


def test_failed_starts_are_tried_again_at_once_until_they_are_too_many_a_minute() -> None:
    driven = Driven(SlotManagerSettings(starts=StartSettings(max_failure_rate=2, retry_interval=3)))
    driven.need(1)
    for number in range(3):
        actions = driven.tell(TaskExecutorRequestFailed(f"failure {number}"))
        asked = [action for action in actions if isinstance(action, RequestTaskExecutor)]
        (told,) = [action for action in actions if isinstance(action, NotifyNotEnoughResources)]
        assert f"failure {number}" in told.explanation
        assert len(asked) == (1 if number < 2 else 0)
    driven.now = 3.0
    assert len(among(driven.tell(TimePassed()), RequestTaskExecutor)) == 1
    driven.now = 3.1
    # Failures of the minute before last do not count.
    driven.now = 70.0
    assert any(isinstance(a, RequestTaskExecutor) for a in driven.tell(TaskExecutorRequestFailed("late")))


def test_one_that_does_not_register_in_time_is_given_up_and_another_requested() -> None:
    driven = Driven(SlotManagerSettings(starts=StartSettings(registration_timeout=60)))
    driven.need(1)
    driven.tell(TaskExecutorAllocated(ResourceID("slow")))
    driven.now = 59.9
    assert driven.tell(TimePassed()) == []
    driven.now = 60.0
    released, asked, told = driven.tell(TimePassed())
    assert isinstance(released, ReleaseTaskExecutor) and released.resource_id == "slow"
    assert isinstance(asked, RequestTaskExecutor)
    assert isinstance(told, NotifyNotEnoughResources)
    assert "resourcemanager.taskmanager-registration.timeout" in told.explanation


def test_each_that_does_not_register_in_time_is_released_under_its_own_name() -> None:
    driven = Driven(SlotManagerSettings(starts=StartSettings(registration_timeout=60)))
    driven.need(2)
    for name in ("one", "two"):
        driven.tell(TaskExecutorAllocated(ResourceID(name)))
    driven.now = 60.0
    released = [one for one in driven.tell(TimePassed()) if isinstance(one, ReleaseTaskExecutor)]
    assert [one.resource_id for one in released] == ["one", "two"]
    assert all(one.cause.startswith(f"{one.resource_id} did not register") for one in released)


def test_so_many_slots_are_kept_without_any_job() -> None:
    driven = Driven(SlotManagerSettings(min_slots=3, slots_per_task_executor=2))
    assert len(only(driven.tell(TimePassed()), RequestTaskExecutor)) == 2
    for name in "ab":
        driven.tell(TaskExecutorAllocated(ResourceID(name)))
        assert driven.register(name, 2) == []
    driven.register("c", 2)
    driven.now = 1000.0
    assert len(only(driven.tell(TimePassed()), ReleaseTaskExecutor)) == 1
    assert driven.tell(TimePassed()) == []


def test_the_limit_of_slots_is_kept_and_named() -> None:
    driven = Driven(SlotManagerSettings(slots_per_task_executor=2, max_slots=4))
    actions = driven.need(10)
    assert sum(isinstance(action, RequestTaskExecutor) for action in actions) == 2
    (told,) = [action for action in actions if isinstance(action, NotifyNotEnoughResources)]
    assert "slotmanager.number-of-slots.max is 4" in told.explanation


def test_idle_task_executors_are_released_after_the_timeout() -> None:
    driven = Driven(SlotManagerSettings(task_executor_timeout=30))
    driven.register("a", 2)
    driven.register("b", 1, s0="used")
    driven.now = 29.9
    assert driven.tell(TimePassed()) == []
    driven.now = 30
    (released,) = only(driven.tell(TimePassed()), ReleaseTaskExecutor)
    assert released.resource_id == "a"
    assert set(driven.manager.task_executors) == {"b"}
    driven.tell(SlotFreed(ResourceID("b"), 0, AllocationID("used")))
    driven.now = 59
    assert driven.tell(TimePassed()) == []
    driven.now = 60
    assert len(only(driven.tell(TimePassed()), ReleaseTaskExecutor)) == 1


def test_a_requirement_gets_only_slots_that_are_large_enough() -> None:
    driven = Driven()
    small, large = ResourceProfile(memory_bytes=100), ResourceProfile(memory_bytes=1000)
    statuses = tuple(
        SlotStatus(slot_id=SlotID(resource_id=ResourceID("a"), index=index), profile=profile)
        for index, profile in enumerate([small, large])
    )
    driven.tell(TaskExecutorRegistered(ResourceID("a"), SlotReport(slots=statuses)))
    actions = driven.need(2, profile=ResourceProfile(memory_bytes=500))
    assert [a.request.slot_id.index for a in actions if isinstance(a, RequestSlot)] == [1]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ResourceProfile(cpu_cores=2.0, memory_bytes=100), True),
        (ResourceProfile(cpu_cores=2.5, memory_bytes=100), False),
        (ResourceProfile(cpu_cores=2.0, memory_bytes=101), False),
        (ResourceProfile(cpu_cores=-1.0, memory_bytes=-1), True),
    ],
)
def test_a_slot_fits_by_cores_and_by_memory(wanted: ResourceProfile, expected: bool) -> None:
    assert fits(ResourceProfile(cpu_cores=2.0, memory_bytes=100), wanted) is expected
    assert fits(ResourceProfile(cpu_cores=-1.0, memory_bytes=-1), wanted), "unspecified on the slot's side"


@given(st.data())
def test_whatever_is_lost_reports_bring_both_sides_together(data: st.DataObject) -> None:
    """Requests, answers and notices may vanish; after a round of reports and retries the job has its
    slots."""
    driven = Driven()
    truth: dict[SlotID, AllocationID | None] = {}
    sequence = 1
    for name in "ab":
        driven.register(name, 2)
        truth.update({SlotID(resource_id=ResourceID(name), index=index): None for index in range(2)})
    todo = driven.need(data.draw(st.integers(0, 4), label="needed"))

    def carry_out(actions: list[SlotManagerAction], faults: bool) -> None:
        while actions:
            action = actions.pop(0)
            if not isinstance(action, RequestSlot):
                continue
            request = action.request
            arrives = not faults or data.draw(st.booleans(), label="request arrives")
            free = truth[request.slot_id] is None
            if arrives and free:
                truth[request.slot_id] = request.allocation_id
            answered = arrives and free and (not faults or data.draw(st.booleans(), label="answer arrives"))
            if answered:
                actions += driven.tell(SlotRequestAcknowledged(request))
            else:
                actions += driven.tell(SlotRequestFailed(request, "lost"))

    carry_out(todo, faults=True)
    for slot_id, allocation in list(truth.items()):
        if allocation is not None and data.draw(st.booleans(), label="freed, notice lost"):
            truth[slot_id] = None
    for _ in range(2):
        sequence += 1
        for name in "ab":
            taken = {f"s{s.index}": a for s, a in truth.items() if s.resource_id == name and a is not None}
            carry_out(
                driven.tell(SlotReportReceived(ResourceID(name), report(name, 2, sequence, **taken))),
                faults=False,
            )
    believed = {
        slot.slot_id: slot.allocation_id
        for executor in driven.manager.task_executors.values()
        for slot in executor.slots.values()
        if slot.state is SlotState.ALLOCATED
    }
    assert believed == {
        slot_id: allocation for slot_id, allocation in truth.items() if allocation is not None
    }
    assert set(driven.states()) <= {"FREE", "ALLOCATED"}
