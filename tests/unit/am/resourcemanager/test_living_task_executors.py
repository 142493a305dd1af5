"""TaskExecutors of an earlier leadership of the same process: awaited before others are asked for, and not for ever."""

from __future__ import annotations

from tests.unit.am.resourcemanager.test_slot_manager import ANY, Driven
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.am.resourcemanager.slot_events import (
    ReleaseTaskExecutor,
    RequestSlot,
    RequestTaskExecutor,
    TaskExecutorGone,
    TaskExecutorsLiving,
    TimePassed,
)
from yarrow.runtime.common.ids import ResourceID

A, B = ResourceID("a"), ResourceID("b")


def taken_over() -> Driven:
    driven = Driven(SlotManagerSettings(can_request=True, slots_per_task_executor=1))
    driven.tell(TaskExecutorsLiving((A, B)))
    return driven


def test_no_more_are_asked_for_than_those_that_live_cannot_serve() -> None:
    driven = taken_over()
    assert driven.need(2) == []
    assert driven.need(3).count(RequestTaskExecutor(ANY)) == 1


def test_one_that_does_not_register_again_is_given_back_and_replaced() -> None:
    driven = taken_over()
    driven.need(2)
    driven.now = 10.0
    assert any(isinstance(action, RequestSlot) for action in driven.register("a", 1))
    assert driven.tell(TimePassed()) == []
    driven.now = 31.0
    actions = driven.tell(TimePassed())
    assert [action.resource_id for action in actions if isinstance(action, ReleaseTaskExecutor)] == [B]
    assert actions.count(RequestTaskExecutor(ANY)) == 1
    assert driven.manager.pending_task_executors == 1


def test_those_that_nobody_has_asked_for_yet_are_not_given_up() -> None:
    driven = taken_over()
    driven.tell(TimePassed())
    driven.now = 6.0
    assert driven.tell(TimePassed()) == [], "jobs may still be on their way to their new masters"
    assert driven.need(2) == []
    driven.tell(TaskExecutorGone(A, "it has ended"))
    assert driven.manager.pending_task_executors == 2, "one lives, one was asked for in its place"


def test_one_that_has_registered_already_is_not_awaited() -> None:
    driven = Driven(SlotManagerSettings(can_request=True))
    driven.register("a", 1)
    driven.tell(TaskExecutorsLiving((A,)))
    assert driven.manager.pending_task_executors == 0
