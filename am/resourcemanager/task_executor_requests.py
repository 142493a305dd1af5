"""TaskExecutorRequests: how many TaskExecutors are requested from the driver, and which are given back.

Owner: the SlotManager. Pure decisions; times are passed in. It requests TaskExecutors for slots that neither
free slots nor pending requests cover. Such slots are needed by jobs, as spares while a job runs, or for the
minimum number of slots. It gives back idle TaskExecutors, those that did not register in time, and pending
ones that are not needed any more.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from yarrow.am.resourcemanager.requested_task_executors import RequestedTaskExecutors
from yarrow.am.resourcemanager.resource_tracker import JobResources, ResourceTracker
from yarrow.am.resourcemanager.settings import SlotManagerSettings
from yarrow.am.resourcemanager.slot_events import ReleaseTaskExecutor, RequestTaskExecutor
from yarrow.am.resourcemanager.task_executor_tracker import TaskExecutorTracker
from yarrow.runtime.rpc.messages import ResourceProfile

#: Seconds for which more TaskExecutors than needed may be pending: a job that restarts asks again soon.
_SURPLUS_PATIENCE = 5.0


class Lack(msgspec.Struct, frozen=True):
    """Slots of one profile that a job lacks and no free slot can serve."""

    job: JobResources
    profile: ResourceProfile
    number: int


class TaskExecutorRequests:
    """The requests to the driver; `requested` follows each of them."""

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
        #: No TaskExecutor is requested for jobs before this monotonic time, in seconds.
        self._for_jobs_from = float("-inf")
        #: Monotonic time in seconds since which more are pending than needed; None = no more are.
        self._surplus_since: float | None = None

    def requirements_declared(self, now: float) -> None:
        """Notes that a job declared its requirements: other jobs may free slots soon."""
        self._for_jobs_from = now + self._settings.requirement_check_delay

    def may_ask_for_jobs(self, now: float) -> bool:
        """False while jobs' requirements may still change."""
        return now >= self._for_jobs_from

    def cover(self, lacking: Sequence[Lack], now: float) -> tuple[list[RequestTaskExecutor], list[Lack]]:
        """Requests what pending TaskExecutors do not cover. Returns the requests and what stays uncovered."""
        requests: list[RequestTaskExecutor] = []
        left: list[Lack] = []
        per_executor = self._settings.slots_per_task_executor
        covered = self._requested.pending * per_executor + self._executors.slots_unknown
        for lack in lacking:
            uncovered = max(0, lack.number - covered)
            covered = max(0, covered - lack.number)
            while uncovered > 0 and self._may_request(now):
                requests.append(self._request(lack.profile))
                spare = per_executor - uncovered
                uncovered -= per_executor
                covered += max(0, spare)
            if uncovered > 0:
                left.append(lack)
        return requests, left

    def keep_spares(self, now: float) -> list[RequestTaskExecutor]:
        """While a job runs, keeps that many more TaskExecutors up or pending than it needs."""
        wanted = self._settings.redundant_task_executors
        requests: list[RequestTaskExecutor] = []
        if wanted == 0 or not self._resources.any_required:
            return requests
        coming = self._requested.pending - -(
            -self._resources.missing // self._settings.slots_per_task_executor
        )
        free = self._executors.without_work
        while free + coming < wanted and self._may_request(now):
            coming += 1
            requests.append(self._request(ResourceProfile()))
        return requests

    def keep_minimum(self, now: float) -> list[RequestTaskExecutor]:
        """Keeps the minimum number of slots up or pending, whatever jobs need."""
        requests: list[RequestTaskExecutor] = []
        per_executor = self._settings.slots_per_task_executor
        while (
            self._executors.slots_total + self._requested.pending * per_executor < self._settings.min_slots
            and self._may_request(now)
        ):
            requests.append(self._request(ResourceProfile()))
        return requests

    def to_release(self, now: float) -> list[ReleaseTaskExecutor]:
        """TaskExecutors that nobody waits for, and those that were idle too long; all of them are forgotten."""
        if not self._settings.can_request:
            return []
        overdue = [
            ReleaseTaskExecutor(resource_id, cause) for resource_id, cause in self._requested.overdue(now)
        ]
        return [*overdue, *self._surplus(now), *self._idle(now)]

    def _request(self, profile: ResourceProfile) -> RequestTaskExecutor:
        self._requested.requested()
        return RequestTaskExecutor(profile)

    def _may_request(self, now: float) -> bool:
        settings = self._settings
        if not settings.can_request or not self._requested.may_request(now):
            return False
        if settings.max_slots is None:
            return True
        ahead = (self._requested.pending + 1) * settings.slots_per_task_executor
        return self._executors.slots_total + ahead <= settings.max_slots

    def _surplus(self, now: float) -> list[ReleaseTaskExecutor]:
        """Gives up pending TaskExecutors that are not needed any more."""
        surplus = self._requested.pending - self._needed()
        if surplus <= 0:
            self._surplus_since = None
            return []
        if self._surplus_since is None:
            self._surplus_since = now
        if now - self._surplus_since < _SURPLUS_PATIENCE:
            return []
        cause = "the TaskExecutor was requested and is no longer needed"
        return [ReleaseTaskExecutor(resource_id, cause) for resource_id in self._requested.give_up(surplus)]

    def _needed(self) -> int:
        """How many pending TaskExecutors jobs, spares and the minimum need."""
        settings, per_executor = self._settings, self._settings.slots_per_task_executor
        needed = -(-self._resources.missing // per_executor)
        if self._resources.any_required and settings.redundant_task_executors:
            needed += max(0, settings.redundant_task_executors - self._executors.without_work)
        return max(needed, -(-(settings.min_slots - self._executors.slots_total) // per_executor))

    def _idle(self, now: float) -> list[ReleaseTaskExecutor]:
        releases = []
        spares = self._settings.redundant_task_executors if self._resources.any_required else 0
        for executor in list(self._executors.all.values()):
            since = executor.idle_since
            if since is not None and spares > 0:
                spares -= 1
            elif self._executors.slots_total - len(executor.slots) < self._settings.min_slots:
                continue
            elif since is not None and now - since >= self._settings.task_executor_timeout:
                self._executors.gone(executor.resource_id)
                cause = (
                    f"the TaskExecutor was idle for {now - since:.0f} s (resourcemanager.taskmanager-timeout)"
                )
                releases.append(ReleaseTaskExecutor(executor.resource_id, cause))
        return releases
