"""The slot table follows its transitions, refuses what does not fit, and never loses a slot."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.pages.state_machines_page import diagram
from yarrow.container.protocol.errors import SlotNotAvailableError, SlotNotFoundError
from yarrow.container.supervisor.slot_table import (
    SLOT_TRANSITIONS,
    SlotTable,
    SubtaskName,
    TaskExecutorSlotState,
)
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobID, JobVertexID, ResourceID
from yarrow.runtime.common.state_machine import IllegalTransitionError, StateMachine
from yarrow.runtime.rpc.messages import ResourceProfile

JOB, OTHER_JOB = JobID("1" * 32), JobID("2" * 32)
A, B, C = AllocationID("a" * 32), AllocationID("b" * 32), AllocationID("c" * 32)


def make_table(slots: int = 2) -> SlotTable:
    profile = ResourceProfile(cpu_cores=1.0, memory_bytes=1 << 20)
    return SlotTable(ResourceID("te"), slots, profile, ManualClock())


@pytest.mark.parametrize("source", list(TaskExecutorSlotState))
@pytest.mark.parametrize("target", list(TaskExecutorSlotState))
def test_only_edges_of_the_table_are_followed(
    source: TaskExecutorSlotState, target: TaskExecutorSlotState
) -> None:
    machine = StateMachine("slot", source, SLOT_TRANSITIONS, ManualClock())
    if target in SLOT_TRANSITIONS[source]:
        machine.transition(target)
        assert machine.state is target
    else:
        with pytest.raises(IllegalTransitionError):
            machine.transition(target)


def test_diagram() -> None:
    assert diagram(SLOT_TRANSITIONS).splitlines() == [
        "stateDiagram-v2",
        "    FREE --> ALLOCATED",
        "    ALLOCATED --> ACTIVE",
        "    ALLOCATED --> RELEASING",
        "    ACTIVE --> ALLOCATED",
        "    ACTIVE --> RELEASING",
        "    RELEASING --> FREE",
    ]


def test_life_of_a_slot() -> None:
    table = make_table()
    assert table.allocate(1, JOB, A)
    assert not table.allocate(1, JOB, A), "the same request twice is one allocation"
    slot = table.activate(A)
    assert table.activate(A) is slot
    assert slot.index == 1
    assert [status.allocation_id for status in table.report().slots] == [None, A]
    assert table.release(A, "done")
    assert not table.release(A, "again")
    assert table.report().slots[1].job_id == JOB, "taken until its worker has ended"
    table.free(A)
    assert table.find(A) is None
    assert table.allocate(1, OTHER_JOB, B)


def test_reports_are_numbered() -> None:
    table = make_table()
    assert [table.report().sequence, table.report().sequence] == [1, 2]


def test_a_taken_slot_is_refused_by_name() -> None:
    table = make_table()
    table.allocate(0, JOB, A)
    with pytest.raises(SlotNotAvailableError, match=f"slot 0 .* ALLOCATED for the job {JOB}"):
        table.allocate(0, OTHER_JOB, B)
    with pytest.raises(SlotNotAvailableError, match="cannot serve the allocation"):
        table.allocate(1, JOB, A)
    with pytest.raises(SlotNotAvailableError, match="slots 0 to 1, not 2"):
        table.allocate(2, JOB, B)
    table.release(A, "")
    with pytest.raises(SlotNotAvailableError, match="RELEASING"):
        table.allocate(0, JOB, A)


def test_an_unknown_allocation_is_refused_by_name() -> None:
    table = make_table()
    with pytest.raises(SlotNotFoundError, match=A):
        table.activate(A)
    assert not table.release(A, "")


def test_a_slot_missing_in_two_reports_is_surplus() -> None:
    """One report may have been sent before the JobMaster took the offer."""
    table = make_table()
    table.allocate(0, JOB, A)
    table.activate(A)
    assert table.compare(JOB, {}) == ([], [])
    assert table.compare(JOB, {A: 0}) == ([], [])
    assert table.compare(JOB, {}) == ([], [])
    assert table.compare(JOB, {}) == ([A], [])


def test_slots_not_yet_accepted_are_left_alone_and_unknown_ones_are_named() -> None:
    table = make_table(3)
    table.allocate(0, JOB, A)
    table.allocate(1, JOB, B)
    table.activate(B)
    table.release(B, "")
    for _ in range(3):
        assert table.compare(JOB, {B: 1, C: 2}) == ([], [B, C])


def test_task_names_count_from_one() -> None:
    assert str(SubtaskName(JobVertexID("0"), "map", 1, 4)) == "'map' (subtask 2/4)"


class SlotTableMachine(RuleBasedStateMachine):
    """Whatever comes in whatever order: every slot has one owner, and every allocation one slot."""

    allocations = st.sampled_from([A, B, C])

    def __init__(self) -> None:
        super().__init__()
        self.table = make_table(2)

    @rule(index=st.integers(-1, 2), allocation=allocations, job=st.sampled_from([JOB, OTHER_JOB]))
    def allocate(self, index: int, allocation: AllocationID, job: JobID) -> None:
        try:
            new = self.table.allocate(index, job, allocation)
        except SlotNotAvailableError:
            return
        slot = self.table.get(allocation)
        assert slot.index == index
        if new:
            slot.tasks[ExecutionAttemptID("x")] = SubtaskName(JobVertexID("0"), "map", 0, 1)

    @rule(allocation=allocations)
    def activate(self, allocation: AllocationID) -> None:
        slot = self.table.find(allocation)
        if slot is not None and slot.state is TaskExecutorSlotState.ALLOCATED:
            assert self.table.activate(allocation).state is TaskExecutorSlotState.ACTIVE

    @rule(allocation=allocations)
    def release(self, allocation: AllocationID) -> None:
        self.table.release(allocation, "test")

    @rule(allocation=allocations)
    def free(self, allocation: AllocationID) -> None:
        slot = self.table.find(allocation)
        if slot is not None and slot.state is TaskExecutorSlotState.RELEASING:
            assert not self.table.free(allocation).tasks

    @invariant()
    def consistent(self) -> None:
        slots = list(self.table)
        assert all((slot.owner is None) is (slot.state is TaskExecutorSlotState.FREE) for slot in slots)
        owned = [slot.owner.allocation_id for slot in slots if slot.owner is not None]
        assert len(set(owned)) == len(owned)
        assert all(self.table.get(allocation) in slots for allocation in owned)
        assert sum(len(self.table.of_job(job)) for job in (JOB, OTHER_JOB)) == len(owned)


TestSlotTableMachine = pytest.mark.slow(SlotTableMachine.TestCase)
