"""TaskExecutorTracker: the registered TaskExecutors, and the believed state of each of their slots.

Owner: the SlotManager. Pure; times are passed in. A slot is FREE, PENDING (requested, not acknowledged) or
ALLOCATED. After a failed request it is UNKNOWN until the next slot report. Reports repair the effects of lost
or reordered messages. Each change of a slot is credited to its job in the ResourceTracker.
"""

from __future__ import annotations

from collections.abc import Iterator

from yarrow.am.resourcemanager.resource_tracker import ResourceTracker
from yarrow.am.resourcemanager.slots import RegisteredTaskExecutor, Slot, SlotState
from yarrow.runtime.common.ids import AllocationID, JobID, ResourceID
from yarrow.runtime.rpc.messages import SlotID, SlotReport, SlotRequest, SlotStatus


class TaskExecutorTracker:
    """All registered TaskExecutors."""

    def __init__(self, resources: ResourceTracker) -> None:
        self._resources = resources
        self._executors: dict[ResourceID, RegisteredTaskExecutor] = {}

    # Numbers for others.

    @property
    def all(self) -> dict[ResourceID, RegisteredTaskExecutor]:
        """By name; read only."""
        return self._executors

    @property
    def slots_total(self) -> int:
        """Number of slots of all TaskExecutors."""
        return sum(len(executor.slots) for executor in self._executors.values())

    @property
    def slots_free(self) -> int:
        """Number of free slots."""
        return sum(executor.free for executor in self._executors.values())

    @property
    def slots_unknown(self) -> int:
        """Number of slots that may turn out to be free."""
        return sum(slot.state is SlotState.UNKNOWN for slot in self._slots())

    @property
    def without_work(self) -> int:
        """Number of TaskExecutors whose slots are all free."""
        return sum(executor.free == len(executor.slots) > 0 for executor in self._executors.values())

    def free_slots(self) -> list[Slot]:
        """The free slots."""
        return [slot for slot in self._slots() if slot.state is SlotState.FREE]

    def slots_of(self, job_id: JobID) -> list[Slot]:
        """The slots that are believed to be a job's."""
        return [slot for slot in self._slots() if slot.job_id == job_id]

    def shares_free(self) -> dict[ResourceID, float]:
        """The free part of each TaskExecutor, from 0 to 1."""
        return {
            executor.resource_id: executor.free / len(executor.slots)
            for executor in self._executors.values()
            if executor.slots
        }

    def slot(self, slot_id: SlotID) -> Slot | None:
        """The slot; None if it is unknown."""
        executor = self._executors.get(slot_id.resource_id)
        return None if executor is None else executor.slots.get(slot_id.index)

    def _slots(self) -> Iterator[Slot]:
        return (slot for executor in self._executors.values() for slot in executor.slots.values())

    # Messages of TaskExecutors.

    def registered(self, resource_id: ResourceID, report: SlotReport, now: float) -> None:
        """Replaces everything known of the TaskExecutor by its report."""
        known = self._executors.pop(resource_id, None)
        if known is not None:
            self._resources.lost(known.slots.values())
        slots = {status.slot_id.index: Slot(status.slot_id, status.profile) for status in report.slots}
        executor = RegisteredTaskExecutor(resource_id, slots, report.sequence, now)
        self._executors[resource_id] = executor
        for status in report.slots:
            self._heal(slots[status.slot_id.index], status)
        executor.note_idleness(now)

    def gone(self, resource_id: ResourceID) -> None:
        """Removes a TaskExecutor with all its slots."""
        executor = self._executors.pop(resource_id, None)
        if executor is not None:
            self._resources.lost(executor.slots.values())

    def reported(self, resource_id: ResourceID, report: SlotReport, now: float) -> None:
        """Takes a later report; ignores one that a newer message has overtaken."""
        executor = self._executors.get(resource_id)
        if executor is None or report.sequence < executor.report_sequence:
            return
        executor.report_sequence = report.sequence
        for status in report.slots:
            slot = executor.slots.get(status.slot_id.index)
            if slot is None:
                slot = executor.slots[status.slot_id.index] = Slot(status.slot_id, status.profile)
            self._heal(slot, status)
        executor.note_idleness(now)

    def _heal(self, slot: Slot, status: SlotStatus) -> None:
        """Sets the slot to the reported state; only a pending request is newer than a report."""
        if status.allocation_id is None or status.job_id is None:
            if slot.state is not SlotState.PENDING:
                self._set_free(slot)
        elif slot.allocation_id != status.allocation_id or slot.state is not SlotState.ALLOCATED:
            self._set_allocated(slot, status.allocation_id, status.job_id)

    def credit_found(self, job_id: JobID) -> None:
        """Credits slots that reports attribute to a job which declares for the first time."""
        for slot in self._slots():
            if slot.job_id == job_id:
                self._resources.found(slot, job_id)

    # Outcomes of requests.

    def requested(self, slot: Slot, request: SlotRequest) -> None:
        """Notes that a free slot was requested."""
        slot.enter(SlotState.PENDING)
        slot.allocation_id, slot.job_id, slot.requested = (
            request.allocation_id,
            request.job_id,
            request.profile,
        )
        self._resources.requested(request.job_id, request.profile)
        self._executors[slot.slot_id.resource_id].idle_since = None

    def acknowledged(self, request: SlotRequest, now: float) -> None:
        """The TaskExecutor gave the slot to the job."""
        slot = self.slot(request.slot_id)
        if slot is None:
            return
        mine = slot.allocation_id == request.allocation_id
        if mine or slot.state is SlotState.FREE or slot.state is SlotState.UNKNOWN:
            self._set_allocated(slot, request.allocation_id, request.job_id)
        self._executors[request.slot_id.resource_id].note_idleness(now)

    def refused(self, request: SlotRequest) -> bool:
        """Sets the slot to UNKNOWN; False if the request does not concern the slot any more."""
        slot = self.slot(request.slot_id)
        if slot is None or slot.allocation_id != request.allocation_id:
            return False
        if slot.state is not SlotState.PENDING:
            return False
        slot.enter(SlotState.UNKNOWN)
        self._disown(slot)
        return True

    def freed(self, slot: Slot, now: float) -> None:
        """Notes that the slot's allocation has ended."""
        self._set_free(slot)
        self._executors[slot.slot_id.resource_id].note_idleness(now)

    def _set_free(self, slot: Slot) -> None:
        slot.enter(SlotState.FREE)
        self._disown(slot)

    def _disown(self, slot: Slot) -> None:
        self._resources.lost([slot])
        slot.allocation_id = slot.job_id = slot.requested = None

    def _set_allocated(self, slot: Slot, allocation_id: AllocationID, job_id: JobID) -> None:
        if slot.allocation_id != allocation_id:
            self._set_free(slot)
            slot.allocation_id, slot.job_id = allocation_id, job_id
            self._resources.found(slot, job_id)
        slot.enter(SlotState.ALLOCATED)
