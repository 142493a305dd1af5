"""AttachedClients: jobs that live only as long as their client, and the last heartbeat of each client.

Owner: the Dispatcher's loop. This master's clock measures silence, from the start of the job here or from the
last heartbeat. The client's clock may differ, and a new master gives every client the whole time again.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.common.timers import TimerHandle, Timers


class AttachedClients:
    """The attached clients of one leadership's jobs."""

    def __init__(self, clock: Clock, timers: Timers, gone: Callable[[JobID, float], None]) -> None:
        """`gone` is called once for a job whose client was silent for the given seconds."""
        self._clock = clock
        self._timers = timers
        self._gone = gone
        self._clients: dict[JobID, _Client] = {}

    def expect(self, job_id: JobID, timeout: float) -> None:
        """Expects a heartbeat of the job's client every `timeout` seconds from now on."""
        self.forget(job_id)
        client = self._clients[job_id] = _Client(timeout, self._clock.monotonic())
        client.timer = self._timers.call_later(timeout, lambda: self._look(job_id))

    def note_heartbeat(self, job_id: JobID) -> None:
        """Notes a heartbeat of the job's client; no effect for a job without an attached client."""
        if (client := self._clients.get(job_id)) is not None:
            client.last = self._clock.monotonic()

    def forget(self, job_id: JobID) -> None:
        """Expects no heartbeat for the job any more."""
        client = self._clients.pop(job_id, None)
        if client is not None and client.timer is not None:
            client.timer.cancel()

    def close(self) -> None:
        """Forgets all clients."""
        for job_id in list(self._clients):
            self.forget(job_id)

    def _look(self, job_id: JobID) -> None:
        client = self._clients[job_id]
        left = client.timeout - (self._clock.monotonic() - client.last)
        if left > 0:
            client.timer = self._timers.call_later(left, lambda: self._look(job_id))
            return
        del self._clients[job_id]
        self._gone(job_id, client.timeout)


class _Client:
    def __init__(self, timeout: float, last: float) -> None:
        self.timeout = timeout
        self.last = last
        self.timer: TimerHandle | None = None
