"""SlotManager: which job gets which slot, when TaskExecutors are requested and when idle ones are released.

Owner: the ResourceManager's loop. Pure: `handle(event, now) -> actions`; no I/O, no clock, no randomness of
its own. A slot is FREE, PENDING (requested, not acknowledged), ALLOCATED, or UNKNOWN after a failed request
until the next slot report says what it holds. Reports heal what lost or reordered messages made inconsistent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from yarrow.am.resourcemanager.avoided_slots import AvoidedSlots
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
    TaskExecutorsDelayed,
    TaskExecutorsLiving,
    TimePassed,
)
from yarrow.am.resourcemanager.slots import RegisteredTaskExecutor, Slot, SlotState, fits
from yarrow.am.resourcemanager.starts import Starts, StartSettings
from yarrow.runtime.common.ids import (
    AllocationID,
    IdFactory,
    JobID,
    ResourceID,
    ResourceManagerID,
)
from yarrow.runtime.rpc.messages import (
    ResourceProfile,
    SlotID,
    SlotRequest,
    SlotStatus,
)

#: Seconds for which more TaskExecutors than needed may be on their way: a job that restarts asks again in a moment.
_SURPLUS_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class SlotManagerSettings:
    """Options of the SlotManager; seconds."""

    #: resourcemanager.taskmanager-timeout
    task_executor_timeout: float = 30.0
    #: cluster.evenly-spread-out-slots
    evenly_spread_out: bool = False
    #: taskmanager.numberOfTaskSlots: how many slots a requested TaskExecutor will bring.
    slots_per_task_executor: int = 1
    #: slotmanager.number-of-slots.max; None = no limit.
    max_slots: int | None = None
    #: slotmanager.number-of-slots.min: kept whether or not a job needs them.
    min_slots: int = 0
    starts: StartSettings = field(default_factory=StartSettings)
    #: False = TaskExecutors come by themselves (standalone): none is requested, none released.
    can_request: bool = True
    #: slotmanager.redundant-taskmanager-num: TaskExecutors kept free while a job runs, to replace lost ones at once.
    redundant_task_executors: int = 0
    #: slotmanager.requirement-check.delay, in seconds: from a job's word of what it needs until TaskExecutors are
    #: asked for. A job that has just ended gives its slots back meanwhile.
    requirement_check_delay: float = 0.0


@dataclass(slots=True)
class _Job:
    declared: RequirementsDeclared
    #: Slots held or on their way, by the profile that they were requested for.
    acquired: dict[ResourceProfile, int] = field(default_factory=dict)
    last_explanation: str = ""

    @property
    def required(self) -> int:
        return sum(requirement.number_of_slots for requirement in self.declared.requirements)

    def missing(self) -> list[tuple[ResourceProfile, int]]:
        """(profile, number) of the slots not yet acquired."""
        found = []
        for requirement in self.declared.requirements:
            number = requirement.number_of_slots - self.acquired.get(requirement.profile, 0)
            if number > 0:
                found.append((requirement.profile, number))
        return found


class SlotManager:
    """The pure core of the ResourceManager."""

    def __init__(self, leader_id: ResourceManagerID, settings: SlotManagerSettings, ids: IdFactory) -> None:
        self._leader_id = leader_id
        self._settings = settings
        self._ids = ids
        self._executors: dict[ResourceID, RegisteredTaskExecutor] = {}
        self._jobs: dict[JobID, _Job] = {}
        self._starts = Starts(settings.starts)
        self._avoided = AvoidedSlots()
        #: Why those on their way do not come, as the driver says.
        self._delay = ""
        #: No TaskExecutor is asked for before.
        self._requests_from = float("-inf")
        #: Since when more are on their way than needed; None = no more are.
        self._surplus_since: float | None = None
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

    # What others may look at.

    @property
    def task_executors(self) -> dict[ResourceID, RegisteredTaskExecutor]:
        """Registered TaskExecutors; read only."""
        return self._executors

    @property
    def pending_task_executors(self) -> int:
        """Requested and not yet registered."""
        return self._starts.pending

    @property
    def slots_total(self) -> int:
        """Slots of registered TaskExecutors."""
        return sum(len(executor.slots) for executor in self._executors.values())

    @property
    def slots_free(self) -> int:
        """Of these, free ones."""
        return sum(executor.free for executor in self._executors.values())

    def handle(self, event: SlotManagerEvent, now: float) -> list[SlotManagerAction]:
        """Takes in one event at monotonic time `now`; the actions are to be carried out in order."""
        self._actions = []
        self._handlers[type(event)](event, now)
        self._match(now)
        self._keep_spares(now)
        self._keep_minimum(now)
        return self._actions

    # TaskExecutors and their reports.

    def _registered(self, event: TaskExecutorRegistered, now: float) -> None:
        known = self._executors.pop(event.resource_id, None)
        if known is not None:
            self._forget_slots(known.slots.values())
        self._starts.registered(event.resource_id)
        slots = {status.slot_id.index: Slot(status.slot_id, status.profile) for status in event.report.slots}
        executor = RegisteredTaskExecutor(event.resource_id, slots, event.report.sequence, now)
        self._executors[event.resource_id] = executor
        for status in event.report.slots:
            self._heal(slots[status.slot_id.index], status)
        self._note_idleness(executor, now)

    def _gone(self, event: TaskExecutorGone, now: float) -> None:
        executor = self._executors.pop(event.resource_id, None)
        self._avoided.forget(event.resource_id)
        if executor is not None:
            self._forget_slots(executor.slots.values())
        self._starts.gone(event.resource_id, event.cause, now)

    def _reported(self, event: SlotReportReceived, now: float) -> None:
        executor = self._executors.get(event.resource_id)
        if executor is None or event.report.sequence < executor.report_sequence:
            return
        executor.report_sequence = event.report.sequence
        for status in event.report.slots:
            slot = executor.slots.get(status.slot_id.index)
            if slot is None:
                slot = executor.slots[status.slot_id.index] = Slot(status.slot_id, status.profile)
            self._heal(slot, status)
        self._note_idleness(executor, now)

    def _heal(self, slot: Slot, status: SlotStatus) -> None:
        """Makes the slot what the TaskExecutor says; only a request on its way is newer than a report."""
        if status.allocation_id is None or status.job_id is None:
            if slot.state is not SlotState.PENDING:
                self._set_free(slot)
        elif slot.allocation_id != status.allocation_id or slot.state is not SlotState.ALLOCATED:
            self._set_allocated(slot, status.allocation_id, status.job_id)

    def _acknowledged(self, event: SlotRequestAcknowledged, now: float) -> None:
        slot = self._slot(event.request.slot_id)
        if slot is None:
            return
        mine = slot.allocation_id == event.request.allocation_id
        if mine or slot.state is SlotState.FREE or slot.state is SlotState.UNKNOWN:
            self._set_allocated(slot, event.request.allocation_id, event.request.job_id)
        self._note_idleness(self._executors[event.request.slot_id.resource_id], now)

    def _refused(self, event: SlotRequestFailed, now: float) -> None:
        slot = self._slot(event.request.slot_id)
        if slot is None or slot.allocation_id != event.request.allocation_id:
            return
        if slot.state is SlotState.PENDING:
            self._avoided.failed(slot.slot_id, now)
            slot.enter(SlotState.UNKNOWN)
            self._disown(slot)
            self._actions.append(AskForSlotReport(event.request.slot_id.resource_id))

    def _freed(self, event: SlotFreed, now: float) -> None:
        slot = self._slot(SlotID(resource_id=event.resource_id, index=event.index))
        if slot is not None and slot.allocation_id == event.allocation_id:
            self._note_end(slot, now)
            self._set_free(slot)
            self._note_idleness(self._executors[event.resource_id], now)

    def _note_end(self, slot: Slot, now: float) -> None:
        """A job lowers its requirements before it gives a slot back: one that it still needs was lost."""
        job = self._jobs.get(slot.job_id) if slot.job_id is not None else None
        if job is None or slot.state is not SlotState.ALLOCATED:
            return
        if sum(job.acquired.values()) <= job.required:
            self._avoided.failed(slot.slot_id, now)
        else:
            self._avoided.succeeded(slot.slot_id)

    # Jobs.

    def _declared(self, event: RequirementsDeclared, now: float) -> None:
        job = self._jobs.get(event.job_id)
        if job is None:
            job = self._jobs[event.job_id] = _Job(event)
            for executor in self._executors.values():
                for slot in executor.slots.values():
                    if slot.job_id == event.job_id:
                        self._count(slot, event.job_id)
        else:
            job.declared = event
            job.last_explanation = ""
        self._requests_from = now + self._settings.requirement_check_delay

    def _job_gone(self, event: JobGone, now: float) -> None:
        self._jobs.pop(event.job_id, None)

    # The driver.

    def _executor_allocated(self, event: TaskExecutorAllocated, now: float) -> None:
        if event.resource_id in self._executors:
            self._starts.already_there()
        else:
            self._starts.named(event.resource_id, now)

    def _executor_failed(self, event: TaskExecutorRequestFailed, now: float) -> None:
        self._starts.request_failed(event.cause, now)

    def _executors_living(self, event: TaskExecutorsLiving, now: float) -> None:
        for resource_id in event.resource_ids:
            if resource_id not in self._executors:
                self._starts.living(resource_id, now)

    def _executors_delayed(self, event: TaskExecutorsDelayed, now: float) -> None:
        self._delay = event.explanation
        for job in self._jobs.values():
            if job.missing():
                self._explain(job)

    def _time_passed(self, event: TimePassed, now: float) -> None:
        if not self._settings.can_request:
            return
        for resource_id, cause in self._starts.overdue(now):
            self._actions.append(ReleaseTaskExecutor(resource_id, cause))
        self._give_up_surplus(now)
        spares = self._settings.redundant_task_executors if self._is_working() else 0
        for executor in list(self._executors.values()):
            since = executor.idle_since
            if since is not None and spares > 0:
                spares -= 1
            elif self.slots_total - len(executor.slots) < self._settings.min_slots:
                continue
            elif since is not None and now - since >= self._settings.task_executor_timeout:
                del self._executors[executor.resource_id]
                cause = f"idle for {now - since:.0f} s (resourcemanager.taskmanager-timeout)"
                self._actions.append(ReleaseTaskExecutor(executor.resource_id, cause))

    # Slots.

    def _slot(self, slot_id: SlotID) -> Slot | None:
        executor = self._executors.get(slot_id.resource_id)
        return None if executor is None else executor.slots.get(slot_id.index)

    def _set_free(self, slot: Slot) -> None:
        slot.enter(SlotState.FREE)
        self._disown(slot)

    def _disown(self, slot: Slot) -> None:
        self._forget_slots([slot])
        slot.allocation_id = slot.job_id = slot.requested = None

    def _set_allocated(self, slot: Slot, allocation_id: AllocationID, job_id: JobID) -> None:
        if slot.allocation_id != allocation_id:
            self._set_free(slot)
            slot.allocation_id, slot.job_id = allocation_id, job_id
            self._count(slot, job_id)
        slot.enter(SlotState.ALLOCATED)

    def _count(self, slot: Slot, job_id: JobID) -> None:
        """Credits a slot found in a report to the first requirement that it fits and that lacks one."""
        job = self._jobs.get(job_id)
        if job is None:
            return
        profiles = [profile for profile, _ in job.missing() if fits(slot.profile, profile)]
        fallback = [requirement.profile for requirement in job.declared.requirements]
        slot.requested = next(iter(profiles + fallback), ResourceProfile())
        job.acquired[slot.requested] = job.acquired.get(slot.requested, 0) + 1

    def _forget_slots(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            if slot.job_id is None or slot.requested is None:
                continue
            job = self._jobs.get(slot.job_id)
            if job is not None:
                job.acquired[slot.requested] = max(0, job.acquired.get(slot.requested, 0) - 1)

    def _note_idleness(self, executor: RegisteredTaskExecutor, now: float) -> None:
        if any(slot.state is not SlotState.FREE for slot in executor.slots.values()):
            executor.idle_since = None
        elif executor.idle_since is None:
            executor.idle_since = now

    # Matching.

    def _match(self, now: float) -> None:
        """Gives free slots to the jobs that miss some, oldest declaration first; requests what then lacks."""
        short = [job for job in self._jobs.values() if job.missing()]
        if not short:
            return
        free = [
            slot
            for executor in self._executors.values()
            for slot in executor.slots.values()
            if slot.state is SlotState.FREE
        ]
        lacking: list[tuple[_Job, ResourceProfile, int]] = []
        bad = [slot for slot in free if self._avoided.is_avoided(slot.slot_id, now)]
        if bad:
            free = [slot for slot in free if slot not in bad]
        for job in short:
            for profile, number in job.missing():
                left = self._allocate(job, profile, number, free)
                if left and bad:
                    # Nothing else is free: better one that failed than none.
                    left = self._allocate(job, profile, left, bad)
                if left:
                    lacking.append((job, profile, left))
        if lacking:
            self._request_more(lacking, now)

    def _allocate(self, job: _Job, profile: ResourceProfile, number: int, free: list[Slot]) -> int:
        """Allocates up to `number` of the free slots (and takes them off the list); what is still lacking."""
        load = {
            executor.resource_id: executor.free / len(executor.slots)
            for executor in self._executors.values()
            if executor.slots
        }
        while number and free:
            position = self._choose(free, profile, load)
            if position is None:
                break
            slot = free[position]
            free[position] = free[-1]
            free.pop()
            resource_id = slot.slot_id.resource_id
            load[resource_id] -= 1 / len(self._executors[resource_id].slots)
            self._request(job, slot, profile)
            number -= 1
        return number

    def _choose(
        self, free: list[Slot], profile: ResourceProfile, load: dict[ResourceID, float]
    ) -> int | None:
        """Position of the slot to take: of the least used TaskExecutor, or any."""
        if self._settings.evenly_spread_out:
            fitting = [i for i, slot in enumerate(free) if fits(slot.profile, profile)]
            return max(fitting, key=lambda i: load[free[i].slot_id.resource_id], default=None)
        start = int(self._ids.hex_id()[-8:], 16) % len(free)
        for step in range(len(free)):
            position = (start + step) % len(free)
            if fits(free[position].profile, profile):
                return position
        return None

    def _request(self, job: _Job, slot: Slot, profile: ResourceProfile) -> None:
        allocation_id = AllocationID(self._ids.hex_id())
        declared = job.declared
        slot.enter(SlotState.PENDING)
        slot.allocation_id, slot.job_id, slot.requested = allocation_id, declared.job_id, profile
        job.acquired[profile] = job.acquired.get(profile, 0) + 1
        self._executors[slot.slot_id.resource_id].idle_since = None
        request = SlotRequest(
            slot_id=slot.slot_id,
            job_id=declared.job_id,
            allocation_id=allocation_id,
            profile=profile,
            job_master_address=declared.job_master_address,
            job_master_id=declared.job_master_id,
            resource_manager_id=self._leader_id,
        )
        self._actions.append(RequestSlot(request))

    def _request_more(self, lacking: list[tuple[_Job, ResourceProfile, int]], now: float) -> None:
        if now < self._requests_from:
            return
        settings = self._settings
        coming = self.pending_task_executors * settings.slots_per_task_executor
        unknown = sum(
            slot.state is SlotState.UNKNOWN
            for executor in self._executors.values()
            for slot in executor.slots.values()
        )
        covered = coming + unknown
        for job, profile, number in lacking:
            uncovered = max(0, number - covered)
            covered = max(0, covered - number)
            while uncovered > 0 and self._may_request(now):
                self._starts.requested()
                self._actions.append(RequestTaskExecutor(profile))
                spare = settings.slots_per_task_executor - uncovered
                uncovered -= settings.slots_per_task_executor
                covered += max(0, spare)
            if uncovered > 0 or self._starts.has_just_failed(now):
                self._explain(job)

    def _is_working(self) -> bool:
        return any(job.required for job in self._jobs.values())

    def _keep_spares(self, now: float) -> None:
        """While a job runs, so many TaskExecutors more than it needs are up or on their way."""
        wanted = self._settings.redundant_task_executors
        if wanted == 0 or not self._is_working():
            return
        missing = sum(number for job in self._jobs.values() for _, number in job.missing())
        per_executor = self._settings.slots_per_task_executor
        coming = self.pending_task_executors - -(-missing // per_executor)
        free = sum(executor.free == len(executor.slots) > 0 for executor in self._executors.values())
        while free + coming < wanted and self._may_request(now):
            coming += 1
            self._starts.requested()
            self._actions.append(RequestTaskExecutor(ResourceProfile()))

    def _keep_minimum(self, now: float) -> None:
        """So many slots are up or on their way, whatever is needed."""
        per_executor = self._settings.slots_per_task_executor
        while (
            self.slots_total + self.pending_task_executors * per_executor < self._settings.min_slots
            and self._may_request(now)
        ):
            self._starts.requested()
            self._actions.append(RequestTaskExecutor(ResourceProfile()))

    def _give_up_surplus(self, now: float) -> None:
        """TaskExecutors on their way that nobody needs any more are not waited for."""
        surplus = self.pending_task_executors - self._needed_task_executors()
        if surplus <= 0:
            self._surplus_since = None
            return
        if self._surplus_since is None:
            self._surplus_since = now
        if now - self._surplus_since >= _SURPLUS_PATIENCE:
            for resource_id in self._starts.give_up(surplus):
                self._actions.append(
                    ReleaseTaskExecutor(resource_id, "it was asked for and is no longer needed")
                )

    def _needed_task_executors(self) -> int:
        """How many of those on their way jobs, spares and the minimum need."""
        settings, per_executor = self._settings, self._settings.slots_per_task_executor
        missing = sum(number for job in self._jobs.values() for _, number in job.missing())
        needed = -(-missing // per_executor)
        if self._is_working() and settings.redundant_task_executors:
            free = sum(executor.free == len(executor.slots) > 0 for executor in self._executors.values())
            needed += max(0, settings.redundant_task_executors - free)
        return max(needed, -(-(settings.min_slots - self.slots_total) // per_executor))

    def _may_request(self, now: float) -> bool:
        settings = self._settings
        if not settings.can_request or not self._starts.may_request(now):
            return False
        if settings.max_slots is None:
            return True
        ahead = (self.pending_task_executors + 1) * settings.slots_per_task_executor
        return self.slots_total + ahead <= settings.max_slots

    def _explain(self, job: _Job) -> None:
        """Tells the job, once for each state of affairs, why it has to wait."""
        settings = self._settings
        text = (
            f"needs {job.required} slots, has {sum(job.acquired.values())};"
            f" {len(self._executors)} TaskExecutors with {self.slots_total} slots are registered,"
            f" {self.slots_free} of them free"
        )
        if self.pending_task_executors:
            text += f", {self.pending_task_executors} TaskExecutors are starting"
        if self._delay:
            text += f"; {self._delay}"
        elif self._starts.failure:
            text += f"; the last one did not start: {self._starts.failure}"
        elif not settings.can_request:
            text += "; this cluster starts none by itself: start more with `yarrow taskmanager`"
        elif settings.max_slots is not None:
            text += f"; slotmanager.number-of-slots.max is {settings.max_slots}"
        if text != job.last_explanation:
            job.last_explanation = text
            self._actions.append(NotifyNotEnoughResources(job.declared.job_id, text))
