"""SlotTable: the slots of one TaskExecutor, with their jobs and tasks. Pure: no I/O, no timers.

Owner: the TaskExecutor's event loop. Must not know workers or connections; the caller that changes a state
does everything else.

A slot goes FREE -> ALLOCATED when the ResourceManager gives it to a job, and -> ACTIVE when the JobMaster has
accepted the offer. It goes -> RELEASING when it is given up, and -> FREE when its worker has ended. So no
slot is passed on with a living worker in it. A slot whose worker died goes from ACTIVE back to ALLOCATED and
is offered anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

import msgspec

from yarrow.container.protocol.errors import SlotNotAvailableError, SlotNotFoundError
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobID, JobVertexID, ResourceID
from yarrow.runtime.common.state_machine import StateMachine, transitions
from yarrow.runtime.rpc.messages import ResourceProfile, SlotID, SlotReport, SlotStatus


class TaskExecutorSlotState(Enum):
    """State of one slot."""

    FREE = "FREE"
    ALLOCATED = "ALLOCATED"
    ACTIVE = "ACTIVE"
    RELEASING = "RELEASING"


SLOT_TRANSITIONS: Mapping[TaskExecutorSlotState, frozenset[TaskExecutorSlotState]] = transitions(
    {
        TaskExecutorSlotState.FREE: (TaskExecutorSlotState.ALLOCATED,),
        TaskExecutorSlotState.ALLOCATED: (TaskExecutorSlotState.ACTIVE, TaskExecutorSlotState.RELEASING),
        TaskExecutorSlotState.ACTIVE: (TaskExecutorSlotState.ALLOCATED, TaskExecutorSlotState.RELEASING),
        TaskExecutorSlotState.RELEASING: (TaskExecutorSlotState.FREE,),
    }
)


class SubtaskName(msgspec.Struct, frozen=True):
    """Names a subtask; its text is the task's name in errors."""

    vertex_id: JobVertexID
    vertex: str
    subtask: int
    parallelism: int

    def __str__(self) -> str:
        """'map' (subtask 2/4), counted from 1 as Flink does."""
        return f"'{self.vertex}' (subtask {self.subtask + 1}/{self.parallelism})"


class SlotOwner(msgspec.Struct, frozen=True):
    """The job and allocation for which a slot was allocated."""

    job_id: JobID
    allocation_id: AllocationID


class TaskExecutorSlot(msgspec.Struct):
    """One slot of the TaskExecutor."""

    index: int
    machine: StateMachine[TaskExecutorSlotState]
    #: Set in every state but FREE.
    owner: SlotOwner | None = None
    #: Tasks whose terminal state the worker has not reported yet.
    tasks: dict[ExecutionAttemptID, SubtaskName] = msgspec.field(default_factory=dict)
    #: All tasks that its worker ever got: a source's coordinator outlives the reader beside it.
    hosted: dict[ExecutionAttemptID, SubtaskName] = msgspec.field(default_factory=dict)
    #: Consecutive reports of the JobMaster without this ACTIVE slot.
    missing_reports: int = 0

    @property
    def state(self) -> TaskExecutorSlotState:
        """The present state."""
        return self.machine.state


class SlotTable:
    """All slots; every change goes through a method that checks it."""

    #: Consecutive reports without an ACTIVE slot after which it is given up: one may have crossed our offer.
    REPORTS_UNTIL_FREED = 2

    def __init__(self, resource_id: ResourceID, slots: int, profile: ResourceProfile, clock: Clock) -> None:
        self._resource_id = resource_id
        self._profile = profile
        self._by_allocation: dict[AllocationID, TaskExecutorSlot] = {}
        self._report_sequence = 0
        self._slots = [
            TaskExecutorSlot(
                index, StateMachine(f"slot {index}", TaskExecutorSlotState.FREE, SLOT_TRANSITIONS, clock)
            )
            for index in range(slots)
        ]

    @property
    def profile(self) -> ResourceProfile:
        """The profile of each slot."""
        return self._profile

    def __iter__(self) -> Iterator[TaskExecutorSlot]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, allocation_id: AllocationID) -> TaskExecutorSlot | None:
        """The slot of that allocation, in any state but FREE."""
        return self._by_allocation.get(allocation_id)

    def get(self, allocation_id: AllocationID) -> TaskExecutorSlot:
        """Like `find`; raises SlotNotFoundError if there is none."""
        slot = self.find(allocation_id)
        if slot is None:
            raise SlotNotFoundError(
                f"the TaskExecutor {self._resource_id} has no slot of the allocation {allocation_id}: the slot"
                " was freed, or the TaskExecutor was restarted; request a slot again"
            )
        return slot

    def of_job(self, job_id: JobID) -> tuple[TaskExecutorSlot, ...]:
        """The slots allocated for a job, those being released included."""
        return tuple(slot for slot in self._slots if slot.owner is not None and slot.owner.job_id == job_id)

    def allocate(self, index: int, job_id: JobID, allocation_id: AllocationID) -> bool:
        """FREE -> ALLOCATED. False if the slot has that allocation already (a repeated request).

        Raises SlotNotAvailableError if it has another one, or does not exist.
        """
        if not 0 <= index < len(self._slots):
            raise SlotNotAvailableError(
                f"the TaskExecutor {self._resource_id} has the slots 0 to {len(self._slots) - 1}, not {index}"
            )
        slot, owner = self._slots[index], SlotOwner(job_id, allocation_id)
        if slot.owner == owner and slot.state is not TaskExecutorSlotState.RELEASING:
            return False
        if slot.owner is not None or allocation_id in self._by_allocation:
            taken = slot.owner or SlotOwner(job_id, allocation_id)
            raise SlotNotAvailableError(
                f"slot {index} of the TaskExecutor {self._resource_id} is {slot.state.name} for the job "
                f"{taken.job_id} (allocation {taken.allocation_id}), and cannot serve the allocation "
                f"{allocation_id} of the job {job_id}"
            )
        slot.machine.transition(TaskExecutorSlotState.ALLOCATED, f"job {job_id}")
        slot.owner = owner
        self._by_allocation[allocation_id] = slot
        return True

    def activate(self, allocation_id: AllocationID) -> TaskExecutorSlot:
        """ALLOCATED -> ACTIVE; no effect on an ACTIVE slot."""
        slot = self.get(allocation_id)
        if slot.state is not TaskExecutorSlotState.ACTIVE:
            slot.machine.transition(TaskExecutorSlotState.ACTIVE, "the offer was accepted")
            slot.missing_reports = 0
        return slot

    def lose_worker(self, allocation_id: AllocationID, cause: str) -> None:
        """ACTIVE -> ALLOCATED: its worker has ended with all its tasks; it stays the job's and gets another worker."""
        slot = self.get(allocation_id)
        slot.machine.transition(TaskExecutorSlotState.ALLOCATED, cause)
        slot.tasks.clear()
        slot.hosted.clear()
        slot.missing_reports = 0

    def release(self, allocation_id: AllocationID, cause: str) -> bool:
        """-> RELEASING; False if there is no such slot, or it is being released already."""
        slot = self.find(allocation_id)
        if slot is None or slot.state is TaskExecutorSlotState.RELEASING:
            return False
        slot.machine.transition(TaskExecutorSlotState.RELEASING, cause)
        return True

    def free(self, allocation_id: AllocationID) -> TaskExecutorSlot:
        """RELEASING -> FREE: the worker has ended."""
        slot = self.get(allocation_id)
        slot.machine.transition(TaskExecutorSlotState.FREE)
        slot.owner = None
        slot.tasks.clear()
        slot.hosted.clear()
        slot.missing_reports = 0
        del self._by_allocation[allocation_id]
        return slot

    def compare(
        self, job_id: JobID, reported: Mapping[AllocationID, int]
    ) -> tuple[list[AllocationID], list[AllocationID]]:
        """Repairs the effects of lost messages: returns slots to free here, and slots that the JobMaster should forget.

        The JobMaster does not know the former; the latter do not exist here.
        """
        surplus: list[AllocationID] = []
        for slot in self.of_job(job_id):
            assert slot.owner is not None
            if slot.owner.allocation_id in reported or slot.state is not TaskExecutorSlotState.ACTIVE:
                slot.missing_reports = 0
                continue
            slot.missing_reports += 1
            if slot.missing_reports >= self.REPORTS_UNTIL_FREED:
                surplus.append(slot.owner.allocation_id)
        living = {
            slot.owner.allocation_id
            for slot in self.of_job(job_id)
            if slot.owner is not None and slot.state is not TaskExecutorSlotState.RELEASING
        }
        unknown = [allocation_id for allocation_id in reported if allocation_id not in living]
        return surplus, unknown

    def report(self) -> SlotReport:
        """All slots in the ResourceManager's form; a slot that is being released is still taken."""
        self._report_sequence += 1
        return SlotReport(
            slots=tuple(
                SlotStatus(
                    slot_id=SlotID(resource_id=self._resource_id, index=slot.index),
                    profile=self._profile,
                    allocation_id=slot.owner.allocation_id if slot.owner else None,
                    job_id=slot.owner.job_id if slot.owner else None,
                )
                for slot in self._slots
            ),
            sequence=self._report_sequence,
        )
