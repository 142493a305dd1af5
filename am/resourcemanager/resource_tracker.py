"""ResourceTracker: what each job needs, what of it is on its way or held, and what is missing.

Owner: the SlotManager. Pure bookkeeping; which slot serves a job is not known here, only for which requirement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from yarrow.am.resourcemanager.slot_events import RequirementsDeclared
from yarrow.am.resourcemanager.slots import Slot, fits
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import ResourceProfile


@dataclass(slots=True)
class JobResources:
    """One job's."""

    declared: RequirementsDeclared
    #: Slots held or on their way, by the profile that they were requested for.
    acquired: dict[ResourceProfile, int] = field(default_factory=dict)

    @property
    def job_id(self) -> JobID:
        """Whose they are."""
        return self.declared.job_id

    @property
    def required(self) -> int:
        """All that it needs."""
        return sum(requirement.number_of_slots for requirement in self.declared.requirements)

    @property
    def has(self) -> int:
        """All that it holds or that is on its way to it."""
        return sum(self.acquired.values())

    def missing(self) -> list[tuple[ResourceProfile, int]]:
        """(profile, number) of the slots not yet acquired."""
        found = []
        for requirement in self.declared.requirements:
            number = requirement.number_of_slots - self.acquired.get(requirement.profile, 0)
            if number > 0:
                found.append((requirement.profile, number))
        return found


class ResourceTracker:
    """Of all jobs, in the order in which they declared first."""

    def __init__(self) -> None:
        self._jobs: dict[JobID, JobResources] = {}

    def job(self, job_id: JobID) -> JobResources | None:
        """What a job needs and has; None while it has declared nothing."""
        return self._jobs.get(job_id)

    def short(self) -> list[JobResources]:
        """Those of jobs that miss some."""
        return [job for job in self._jobs.values() if job.missing()]

    @property
    def missing(self) -> int:
        """Slots that all jobs miss."""
        return sum(number for job in self._jobs.values() for _, number in job.missing())

    @property
    def any_required(self) -> bool:
        """True while a job needs slots, whether it has them or not."""
        return any(job.required for job in self._jobs.values())

    def declared(self, event: RequirementsDeclared) -> bool:
        """All that a job needs from now on; True for a job of which nothing was known."""
        job = self._jobs.get(event.job_id)
        if job is None:
            self._jobs[event.job_id] = JobResources(event)
            return True
        job.declared = event
        return False

    def job_gone(self, job_id: JobID) -> None:
        """It needs nothing any more."""
        self._jobs.pop(job_id, None)

    def requested(self, job_id: JobID, profile: ResourceProfile) -> None:
        """A slot is on its way to the job, for that requirement."""
        job = self._jobs[job_id]
        job.acquired[profile] = job.acquired.get(profile, 0) + 1

    def found(self, slot: Slot, job_id: JobID) -> None:
        """Credits a slot found in a report to the first requirement that it fits and that lacks one."""
        job = self._jobs.get(job_id)
        if job is None:
            return
        profiles = [profile for profile, _ in job.missing() if fits(slot.profile, profile)]
        fallback = [requirement.profile for requirement in job.declared.requirements]
        slot.requested = next(iter(profiles + fallback), ResourceProfile())
        job.acquired[slot.requested] = job.acquired.get(slot.requested, 0) + 1

    def lost(self, slots: Iterable[Slot]) -> None:
        """These serve the jobs no more for which they were requested."""
        for slot in slots:
            if slot.job_id is None or slot.requested is None:
                continue
            job = self._jobs.get(slot.job_id)
            if job is not None:
                job.acquired[slot.requested] = max(0, job.acquired.get(slot.requested, 0) - 1)
