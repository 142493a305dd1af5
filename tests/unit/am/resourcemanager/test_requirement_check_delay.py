"""slotmanager.requirement-check.delay: a slot that is given back in time is used, and no TaskExecutor asked for."""

from __future__ import annotations

from tests.support.counting_ids import CountingIdFactory
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.am.resourcemanager.slot_events import (
    RequestSlot,
    RequestTaskExecutor,
    RequirementsDeclared,
    SlotManagerAction,
    TaskExecutorRegistered,
    TimePassed,
)
from yarrow.am.resourcemanager.slot_manager import SlotManager
from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID, ResourceManagerID
from yarrow.runtime.rpc.messages import ResourceProfile, ResourceRequirement, SlotID, SlotReport, SlotStatus

PROFILE = ResourceProfile(cpu_cores=1.0, memory_bytes=1 << 20)


def manager(delay: float) -> SlotManager:
    settings = SlotManagerSettings(requirement_check_delay=delay)
    return SlotManager(ResourceManagerID("0" * 32), settings, CountingIdFactory())


def declared(job: str) -> RequirementsDeclared:
    requirement = ResourceRequirement(profile=ResourceProfile(), number_of_slots=1)
    return RequirementsDeclared(JobID(job * 32), JobMasterID("1" * 32), "inproc://job", (requirement,))


def requests(actions: list[SlotManagerAction]) -> int:
    return sum(isinstance(action, RequestTaskExecutor) for action in actions)


def test_nothing_is_asked_for_before_the_delay() -> None:
    slots = manager(0.05)
    assert requests(slots.handle(declared("a"), 10.0)) == 0
    assert requests(slots.handle(TimePassed(), 10.04)) == 0
    assert requests(slots.handle(TimePassed(), 10.05)) == 1
    assert requests(slots.handle(TimePassed(), 11.0)) == 0


def test_a_slot_that_comes_meanwhile_is_taken_at_once() -> None:
    slots = manager(0.05)
    assert requests(slots.handle(declared("a"), 10.0)) == 0
    name = ResourceID("te")
    report = SlotReport(slots=(SlotStatus(slot_id=SlotID(resource_id=name, index=0), profile=PROFILE),))
    actions = slots.handle(TaskExecutorRegistered(name, report), 10.01)
    assert any(isinstance(action, RequestSlot) for action in actions)
    assert requests(actions) + requests(slots.handle(TimePassed(), 11.0)) == 0


def test_without_a_delay_it_is_asked_for_at_once() -> None:
    assert requests(manager(0.0).handle(declared("a"), 10.0)) == 1
