"""SlotManager: which job gets which slot, when TaskExecutors are requested, and when idle ones are released.

Owner: the ResourceManager's loop. Pure: `handle(event, now) -> actions`; no I/O, no clock, no randomness of
its own. resource_tracker.py knows what jobs need, and task_executor_tracker.py what TaskExecutors have.
slot_matching.py and avoided_slots.py choose among free slots. task_executor_requests.py and
requested_task_executors.py say what the driver is asked for. shortages.py says why a job waits.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.am.resourcemanager.avoided_slots import AvoidedSlots
from yarrow.am.resourcemanager.requested_task_executors import RequestedTaskExecutors
from yarrow.am.resourcemanager.resource_tracker import JobResources, ResourceTracker
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.am.resourcemanager.shortages import Shortages
from yarrow.am.resourcemanager.slot_events import (
    AskForSlotReport,
    JobGone,
    RequestSlot,
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
    TaskExecutorsDelayed,
    TaskExecutorsLiving,
    TimePassed,
)
from yarrow.am.resourcemanager.slot_matching import SlotMatching
from yarrow.am.resourcemanager.slots import RegisteredTaskExecutor, Slot, SlotState
from yarrow.am.resourcemanager.task_executor_requests import Lack, TaskExecutorRequests
from yarrow.am.resourcemanager.task_executor_tracker import TaskExecutorTracker
from yarrow.runtime.common.ids import AllocationID, IdFactory, JobID, ResourceID, ResourceManagerID
from yarrow.runtime.rpc.messages import ResourceProfile, SlotID, SlotRequest


class SlotManager:
    """The pure core of the ResourceManager."""

    def __init__(self, leader_id: ResourceManagerID, settings: SlotManagerSettings, ids: IdFactory) -> None:
        self._leader_id = leader_id
        self._ids = ids
        self._resources = ResourceTracker()
        self._executors = TaskExecutorTracker(self._resources)
        self._requested = RequestedTaskExecutors(settings.starts)
        self._avoided = AvoidedSlots()
        self._matching = SlotMatching(settings.evenly_spread_out, ids)
        self._requests = TaskExecutorRequests(settings, self._resources, self._executors, self._requested)
        self._shortages = Shortages(settings, self._resources, self._executors, self._requested)
        self._actions: list[SlotManagerAction] = []
        self._handlers: dict[type, Callable[..., None]] = {
            TaskExecutorRegistered: self._registered,
            TaskExecutorGone: self._gone,
            SlotReportReceived: self._reported,
            SlotRequestAcknowledged: self._acknowledged,
            SlotRequestFailed: self._refused,
            SlotFreed: self._freed,
            RequirementsDeclared: self._declared,
            JobGone: self._job_gone,
            TaskExecutorAllocated: self._executor_allocated,
            TaskExecutorRequestFailed: self._executor_failed,
            TaskExecutorsDelayed: self._executors_delayed,
            TaskExecutorsLiving: self._executors_living,
            TimePassed: self._time_passed,
        }

    # Numbers for others.

    @property
    def task_executors(self) -> dict[ResourceID, RegisteredTaskExecutor]:
        """Registered TaskExecutors; read only."""
        return self._executors.all

    @property
    def pending_task_executors(self) -> int:
        """Number of requested TaskExecutors that have not registered."""
        return self._requested.pending

    @property
    def slots_total(self) -> int:
        """Number of slots of registered TaskExecutors."""
        return self._executors.slots_total

    @property
    def slots_free(self) -> int:
        """Number of free slots of registered TaskExecutors."""
        return self._executors.slots_free

    def slots_of(self, job_id: JobID) -> list[Slot]:
        """The slots that a job has, or that were requested for it; none while it has declared nothing."""
        job = self._resources.job(job_id)
        return self._executors.slots_of(job_id) if job is not None and job.has else []

    def handle(self, event: SlotManagerEvent, now: float) -> list[SlotManagerAction]:
        """Takes in one event at monotonic time `now`, in seconds; returns actions to be carried out in order."""
        self._actions = []
        self._handlers[type(event)](event, now)
        waiting = self._match(now)
        self._actions += self._requests.keep_spares(now)
        self._actions += self._requests.keep_minimum(now)
        self._actions += self._shortages.tell(waiting)
        return self._actions

    # TaskExecutors and their reports.

    def _registered(self, event: TaskExecutorRegistered, now: float) -> None:
        self._requested.registered(event.resource_id)
        self._executors.registered(event.resource_id, event.report, now)

    def _gone(self, event: TaskExecutorGone, now: float) -> None:
        self._avoided.forget(event.resource_id)
        self._executors.gone(event.resource_id)
        self._requested.gone(event.resource_id, event.cause, now)

    def _reported(self, event: SlotReportReceived, now: float) -> None:
        self._executors.reported(event.resource_id, event.report, now)

    def _acknowledged(self, event: SlotRequestAcknowledged, now: float) -> None:
        self._executors.acknowledged(event.request, now)

    def _refused(self, event: SlotRequestFailed, now: float) -> None:
        if self._executors.refused(event.request):
            self._avoided.failed(event.request.slot_id, now)
            self._actions.append(AskForSlotReport(event.request.slot_id.resource_id))

    def _freed(self, event: SlotFreed, now: float) -> None:
        slot = self._executors.slot(SlotID(resource_id=event.resource_id, index=event.index))
        if slot is not None and slot.allocation_id == event.allocation_id:
            self._note_end(slot, now)
            self._executors.freed(slot, now)

    def _note_end(self, slot: Slot, now: float) -> None:
        """Notes whether a job lost the slot: a job that gives a slot back lowers its requirements first."""
        job = self._resources.job(slot.job_id) if slot.job_id is not None else None
        if job is None or slot.state is not SlotState.ALLOCATED:
            return
        if job.has <= job.required:
            self._avoided.failed(slot.slot_id, now)
        else:
            self._avoided.succeeded(slot.slot_id)

    # Jobs.

    def _declared(self, event: RequirementsDeclared, now: float) -> None:
        self._shortages.forget(event.job_id)
        if self._resources.declared(event):
            self._executors.credit_found(event.job_id)
        self._requests.requirements_declared(now)

    def _job_gone(self, event: JobGone, now: float) -> None:
        self._shortages.forget(event.job_id)
        self._resources.job_gone(event.job_id)

    # The driver.

    def _executor_allocated(self, event: TaskExecutorAllocated, now: float) -> None:
        if event.resource_id in self._executors.all:
            self._requested.already_there()
        else:
            self._requested.named(event.resource_id, now)

    def _executor_failed(self, event: TaskExecutorRequestFailed, now: float) -> None:
        self._requested.request_failed(event.cause, now)

    def _executors_living(self, event: TaskExecutorsLiving, now: float) -> None:
        for resource_id in event.resource_ids:
            if resource_id not in self._executors.all:
                self._requested.living(resource_id, now)

    def _executors_delayed(self, event: TaskExecutorsDelayed, now: float) -> None:
        self._actions += self._shortages.delayed(event.explanation)

    def _time_passed(self, event: TimePassed, now: float) -> None:
        self._actions += self._requests.to_release(now)

    # Matching.

    def _match(self, now: float) -> list[JobResources]:
        """Gives free slots to the jobs that lack some, oldest declaration first; requests TaskExecutors for the rest.

        Returns the jobs that must hear why they wait.
        """
        short = self._resources.short()
        if not short:
            return []
        free = self._executors.free_slots()
        lacking: list[Lack] = []
        bad = [slot for slot in free if self._avoided.is_avoided(slot.slot_id, now)]
        resting = 0
        if bad:
            free = [slot for slot in free if slot not in bad]
            resting = sum(self._avoided.rests(slot.slot_id, now) for slot in bad)
            bad = [slot for slot in bad if not self._avoided.rests(slot.slot_id, now)]
        for job in short:
            for profile, number in job.missing():
                left = self._allocate(job, profile, number, free)
                if left and bad:
                    # No other slot is free: one that failed is better than none.
                    left = self._allocate(job, profile, left, bad)
                # Resting slots come back soon: nothing is requested in their place.
                waits = min(left, resting)
                left, resting = left - waits, resting - waits
                if left:
                    lacking.append(Lack(job, profile, left))
        if not lacking or not self._requests.may_ask_for_jobs(now):
            return []
        requests, uncovered = self._requests.cover(lacking, now)
        self._actions += requests
        return [lack.job for lack in (lacking if self._requested.has_just_failed(now) else uncovered)]

    def _allocate(self, job: JobResources, profile: ResourceProfile, number: int, free: list[Slot]) -> int:
        """Allocates up to `number` of the free slots, which leave the list; returns how many are still lacking."""
        shares_free = self._executors.shares_free()
        while number and free:
            position = self._matching.choose(free, profile, shares_free)
            if position is None:
                break
            slot = free[position]
            free[position] = free[-1]
            free.pop()
            resource_id = slot.slot_id.resource_id
            shares_free[resource_id] -= 1 / len(self._executors.all[resource_id].slots)
            self._request(job, slot, profile)
            number -= 1
        return number

    def _request(self, job: JobResources, slot: Slot, profile: ResourceProfile) -> None:
        declared = job.declared
        request = SlotRequest(
            slot_id=slot.slot_id,
            job_id=declared.job_id,
            allocation_id=AllocationID(self._ids.hex_id()),
            profile=profile,
            job_master_address=declared.job_master_address,
            job_master_id=declared.job_master_id,
            resource_manager_id=self._leader_id,
            interpreter=declared.interpreter,
        )
        self._executors.requested(slot, request)
        self._actions.append(RequestSlot(request))
