"""ClientActivity: what clients of one listener have asked lately, for those who decide how long the cluster stays.

Owner: the event loop of the REST server. Notes alone; who waits for what is decided elsewhere.
"""

from __future__ import annotations

from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.ids import JobID


class ClientActivity:
    """Times are monotonic seconds of the clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._last_request = float("-inf")
        self._last_heartbeat = self._clock.monotonic()
        self._told: set[JobID] = set()
        #: Collect operators of which a client has had rows, and not the last.
        self._read: set[tuple[JobID, str]] = set()

    def note_request(self) -> None:
        """A client has asked for something."""
        self._last_request = self._clock.monotonic()

    def note_heartbeat(self) -> None:
        """The client to which the cluster is attached lives."""
        self._last_heartbeat = self._clock.monotonic()

    def note_result(self, job_id: JobID) -> None:
        """A client has been told how the job ended."""
        self._told.add(job_id)

    def note_rows(self, job_id: JobID, collect_id: str, *, last: bool) -> None:
        """A client has been given rows of a collect operator; `last`: it knows that no more come."""
        (self._read.discard if last else self._read.add)((job_id, collect_id))

    def reads_rows(self, job_id: JobID) -> bool:
        """Whether a client has begun to read rows of the job, and is not through."""
        return any(read == job_id for read, _ in self._read)

    def seconds_since_request(self) -> float:
        """Infinite before the first."""
        return self._clock.monotonic() - self._last_request

    def seconds_since_heartbeat(self) -> float:
        """Since the last heartbeat, or since this object was made."""
        return self._clock.monotonic() - self._last_heartbeat

    def has_told(self, job_id: JobID) -> bool:
        """Whether a client knows how the job ended."""
        return job_id in self._told
