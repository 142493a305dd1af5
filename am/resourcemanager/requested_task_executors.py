"""RequestedTaskExecutors: TaskExecutors that were requested and have not registered, and failures to start.

Owner: the ResourceManager's loop. Pure bookkeeping with given times; a part of the SlotManager, which
requests them. After more failures within a minute than allowed, nothing is requested for a while, because it
would fail again.
"""

from __future__ import annotations

from collections import deque

import msgspec

from yarrow.runtime.common.ids import ResourceID

#: Seconds in which a TaskExecutor of an earlier leadership must register again.
_AGAIN = 30.0
#: Seconds over which failures are counted (resourcemanager.start-worker.max-failure-rate is per minute).
_WINDOW = 60.0


class StartSettings(msgspec.Struct, frozen=True):
    """Limits of starts; times are seconds."""

    #: resourcemanager.start-worker.max-failure-rate
    max_failure_rate: float = 10.0
    #: resourcemanager.start-worker.retry-interval
    retry_interval: float = 3.0
    #: resourcemanager.taskmanager-registration.timeout
    registration_timeout: float = 300.0


class RequestedTaskExecutors:
    """The TaskExecutors that were requested of the driver and have not registered yet."""

    def __init__(self, settings: StartSettings) -> None:
        self._settings = settings
        #: Number of requests whose TaskExecutor the driver has not named yet.
        self._unnamed = 0
        #: Named by the driver and not registered yet, with the time in seconds by which each must register.
        self._awaited: dict[ResourceID, float] = {}
        #: Of these, those that an earlier leadership started: given up only when they are overdue.
        self._earlier: set[ResourceID] = set()
        self._failures: deque[float] = deque()
        self._none_before = float("-inf")
        #: Why the last one did not start; "" = it did.
        self.failure = ""

    @property
    def pending(self) -> int:
        """Number of requested TaskExecutors that have not registered."""
        return self._unnamed + len(self._awaited)

    @property
    def failures(self) -> int:
        """Failures in the minute before the last failure; 0 if one has registered since."""
        return len(self._failures) if self.failure else 0

    def requested(self) -> None:
        """Counts a request."""
        self._unnamed += 1

    def named(self, resource_id: ResourceID, now: float) -> None:
        """Notes the name under which the driver starts a requested one; it has not registered."""
        self._unnamed = max(0, self._unnamed - 1)
        self._awaited[resource_id] = now + self._settings.registration_timeout

    def living(self, resource_id: ResourceID, now: float) -> None:
        """Notes one that an earlier leadership has started."""
        self._earlier.add(resource_id)
        self._awaited[resource_id] = now + min(_AGAIN, self._settings.registration_timeout)

    def already_there(self) -> None:
        """Notes one that registered before the driver told its name."""
        self._unnamed = max(0, self._unnamed - 1)

    def registered(self, resource_id: ResourceID) -> None:
        """Notes a registration."""
        self._awaited.pop(resource_id, None)
        self._earlier.discard(resource_id)
        self.failure = ""

    def request_failed(self, cause: str, now: float) -> None:
        """Notes that the driver could not start one."""
        self._unnamed = max(0, self._unnamed - 1)
        self._failed(cause, now)

    def gone(self, resource_id: ResourceID, cause: str, now: float) -> None:
        """Notes the end of one; if it had not registered, that is a failure to start."""
        self._earlier.discard(resource_id)
        if self._awaited.pop(resource_id, None) is not None:
            self._failed(cause, now)

    def overdue(self, now: float) -> list[tuple[ResourceID, str]]:
        """Those that did not register in time, with their causes.

        They are not waited for any more; the caller releases them.
        """
        late = [
            (resource_id, self._why_overdue(resource_id))
            for resource_id, due in self._awaited.items()
            if due <= now
        ]
        for resource_id, cause in late:
            self.gone(resource_id, cause, now)
        return late

    def _why_overdue(self, resource_id: ResourceID) -> str:
        if resource_id in self._earlier:
            return f"{resource_id} did not register again under the new leadership"
        key = "resourcemanager.taskmanager-registration.timeout"
        return f"{resource_id} did not register within {self._settings.registration_timeout:g} s ({key})"

    def give_up(self, number: int) -> list[ResourceID]:
        """Gives up that many unneeded ones, last named first, without counting failures; the caller releases them."""
        named = [resource_id for resource_id in self._awaited if resource_id not in self._earlier]
        given_up = named[: -number - 1 : -1]
        for resource_id in given_up:
            del self._awaited[resource_id]
        return given_up

    def _failed(self, cause: str, now: float) -> None:
        self.failure = cause
        self._failures.append(now)
        while self._failures[0] <= now - _WINDOW:
            self._failures.popleft()
        if len(self._failures) > self._settings.max_failure_rate:
            self._none_before = now + self._settings.retry_interval

    def has_just_failed(self, now: float) -> bool:
        """True at the time of the event that reported a failure: jobs have not heard of it yet."""
        return bool(self._failures) and self._failures[-1] == now and bool(self.failure)

    def may_request(self, now: float) -> bool:
        """False in the pause after too many failures."""
        return now >= self._none_before
