"""Shortages: why a job waits for its slots, as text. The job hears of each change.

Owner: the SlotManager. Pure. A job also hears when a reason does not hold any more. So its users, and its
failure by slot.request.timeout, see the present cause.
"""

from __future__ import annotations

from collections.abc import Iterable

from yarrow.am.resourcemanager.requested_task_executors import RequestedTaskExecutors
from yarrow.am.resourcemanager.resource_tracker import JobResources, ResourceTracker
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.am.resourcemanager.slot_events import NotifyNotEnoughResources
from yarrow.am.resourcemanager.task_executor_tracker import TaskExecutorTracker
from yarrow.runtime.common.ids import JobID


class Shortages:
    """The last reason that each job was told."""

    def __init__(
        self,
        settings: SlotManagerSettings,
        resources: ResourceTracker,
        executors: TaskExecutorTracker,
        requested: RequestedTaskExecutors,
    ) -> None:
        self._settings = settings
        self._resources = resources
        self._executors = executors
        self._requested = requested
        #: The driver's reason for the delay of requested TaskExecutors.
        self._delay = ""
        self._told: dict[JobID, str] = {}

    def delayed(self, explanation: str) -> list[NotifyNotEnoughResources]:
        """Takes the driver's reason for a delay, "" = none; all jobs that lack slots hear of it."""
        self._delay = explanation
        return [told for job in self._resources.short() for told in self._tell(job)]

    def forget(self, job_id: JobID) -> None:
        """Forgets a job's last reason, because the job declares anew or is gone."""
        self._told.pop(job_id, None)

    def tell(self, waiting: Iterable[JobResources]) -> list[NotifyNotEnoughResources]:
        """Sends the reason to jobs in `waiting`, and tells all others that theirs is outdated.

        Jobs in `waiting` have no pending request, or one that has just failed.
        """
        told: list[NotifyNotEnoughResources] = []
        for job in waiting:
            told += self._tell(job)
        for job_id in list(self._told):
            job_told = self._resources.job(job_id)
            if job_told is not None and job_told.missing():
                told += self._tell(job_told)
            else:
                del self._told[job_id]
                told.append(NotifyNotEnoughResources(job_id, ""))
        return told

    def _tell(self, job: JobResources) -> list[NotifyNotEnoughResources]:
        text = self._explanation(job)
        if text == self._told.get(job.job_id):
            return []
        self._told[job.job_id] = text
        return [NotifyNotEnoughResources(job.job_id, text, self._most_slots())]

    def _most_slots(self) -> int | None:
        """The number of slots that there can be, if known: the cluster starts no TaskExecutors, or a limited number."""
        settings, total = self._settings, self._executors.slots_total
        if not settings.can_request:
            return total
        if settings.max_slots is None:
            return None
        per_executor = settings.slots_per_task_executor
        return total + max(0, settings.max_slots - total) // per_executor * per_executor

    def _explanation(self, job: JobResources) -> str:
        settings, executors, requested = self._settings, self._executors, self._requested
        text = (
            f"needs {job.required} slots, has {job.has};"
            f" {len(executors.all)} TaskExecutors with {executors.slots_total} slots are registered,"
            f" {executors.slots_free} of them free"
        )
        # After failures, pending ones come and go: the text would change with each of them.
        if requested.pending and requested.failures < 2:
            text += f", {requested.pending} TaskExecutors are starting"
        if self._delay:
            text += f"; {self._delay}"
        elif requested.failure:
            text += f"; {self._failures()}: {requested.failure}"
        elif not settings.can_request:
            text += "; this cluster starts none by itself: start more with `yarrow taskmanager`"
        elif settings.max_slots is not None:
            text += f"; slotmanager.number-of-slots.max is {settings.max_slots}"
        return text

    def _failures(self) -> str:
        """Why TaskExecutors do not start, and what happens next."""
        requested, settings = self._requested, self._settings.starts
        if requested.failures < 2:
            return "the last requested TaskExecutor did not start"
        text = f"{requested.failures} TaskExecutors did not start within a minute"
        if requested.failures > settings.max_failure_rate:
            text += (
                f", and the next request follows {settings.retry_interval:g} s later "
                "(resourcemanager.start-worker.retry-interval)"
            )
        return f"{text}, the last one"
