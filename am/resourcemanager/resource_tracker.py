"""ResourceTracker: the slots that each job needs, those that it has or has requested, and those that are missing.

Owner: the SlotManager. Pure bookkeeping; it knows requirements only, not which slot serves a job.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from yarrow.am.resourcemanager.slot_events import RequirementsDeclared
from yarrow.am.resourcemanager.slots import Slot, fits
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import ResourceProfile


class JobResources(msgspec.Struct):
    """The requirements and slots of one job."""

    declared: RequirementsDeclared
    #: Number of held or requested slots, by the profile of the requirement.
    acquired: dict[ResourceProfile, int] = msgspec.field(default_factory=dict)

    @property
    def job_id(self) -> JobID:
        """The job that needs them."""
        return self.declared.job_id

    @property
    def required(self) -> int:
        """Number of slots that the job needs."""
        return sum(requirement.number_of_slots for requirement in self.declared.requirements)

    @property
    def has(self) -> int:
        """Number of slots that the job holds or that were requested for it."""
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
    """The resources of all jobs, in the order of their first declarations."""

    def __init__(self) -> None:
        self._jobs: dict[JobID, JobResources] = {}

    def job(self, job_id: JobID) -> JobResources | None:
        """What a job needs and has; None while it has declared nothing."""
        return self._jobs.get(job_id)

    def short(self) -> list[JobResources]:
        """The jobs that lack slots."""
        return [job for job in self._jobs.values() if job.missing()]

    @property
    def missing(self) -> int:
        """Number of slots that all jobs lack."""
        return sum(number for job in self._jobs.values() for _, number in job.missing())

    @property
    def any_required(self) -> bool:
        """True while any job needs slots, whether it has them or not."""
        return any(job.required for job in self._jobs.values())

    def declared(self, event: RequirementsDeclared) -> bool:
        """Replaces a job's requirements; True for a job without earlier ones."""
        job = self._jobs.get(event.job_id)
        if job is None:
            self._jobs[event.job_id] = JobResources(event)
            return True
        job.declared = event
        return False

    def job_gone(self, job_id: JobID) -> None:
        """Removes a job."""
        self._jobs.pop(job_id, None)

    def requested(self, job_id: JobID, profile: ResourceProfile) -> None:
        """Notes that a slot was requested for that requirement of the job."""
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
        """Notes that these slots do not serve the jobs any more for which they were requested."""
        for slot in slots:
            if slot.job_id is None or slot.requested is None:
                continue
            job = self._jobs.get(slot.job_id)
            if job is not None:
                job.acquired[slot.requested] = max(0, job.acquired.get(slot.requested, 0) - 1)
