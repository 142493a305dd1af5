"""ClientActivity: the latest requests of one listener's clients; they decide how long the cluster stays.

Owner: the event loop of the REST server. It only takes notes; other modules decide who waits for what.
"""

from __future__ import annotations

from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.ids import JobID


class ClientActivity:
    """The requests of one listener's clients; times are monotonic seconds of the clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._last_request = float("-inf")
        self._last_heartbeat = self._clock.monotonic()
        self._told: set[JobID] = set()
        #: Collect operators of which a client has fetched rows, but not the last.
        self._read: set[tuple[JobID, str]] = set()

    def note_request(self) -> None:
        """Notes a request of a client."""
        self._last_request = self._clock.monotonic()

    def note_heartbeat(self) -> None:
        """Notes a heartbeat of the client to which the cluster is attached."""
        self._last_heartbeat = self._clock.monotonic()

    def note_result(self, job_id: JobID) -> None:
        """Notes that a client knows the result of a job."""
        self._told.add(job_id)

    def note_rows(self, job_id: JobID, collect_id: str, *, last: bool) -> None:
        """Notes that a client has rows of a collect operator; `last`: it knows that no more come."""
        (self._read.discard if last else self._read.add)((job_id, collect_id))

    def reads_rows(self, job_id: JobID) -> bool:
        """Whether a client has begun to read rows of the job and has not finished."""
        return any(read == job_id for read, _ in self._read)

    def seconds_since_request(self) -> float:
        """Seconds since the last request; infinite before the first."""
        return self._clock.monotonic() - self._last_request

    def seconds_since_heartbeat(self) -> float:
        """Seconds since the last heartbeat, or since this object was made."""
        return self._clock.monotonic() - self._last_heartbeat

    def has_told(self, job_id: JobID) -> bool:
        """Whether a client knows the result of the job."""
        return job_id in self._told
