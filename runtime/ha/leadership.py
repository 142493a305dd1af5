"""Leadership: derived from the events of the session: granted, suspended and still leading, revoked.

Owner: the election's thread. Pure: events come in with the monotonic time, decisions go out; no sockets, no clock.
The rule that it keeps: this process has stopped leading before ZooKeeper could let another one lead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

#: Part of the session timeout by which we stop leading earlier than ZooKeeper forgets the session.
_MARGIN = 0.1
#: Between two looks at the session while leading, as part of its timeout.
_HEARTBEAT = 1 / 6


class Standing(StrEnum):
    """The role of a process in the election."""

    FOLLOWING = "FOLLOWING"
    LEADING = "LEADING"
    #: Leads, and does not reach ZooKeeper, which may still know its session.
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True, slots=True)
class Granted:
    """The decision that this process leads from now on."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """The decision that this process leads no more; it must make a new candidacy."""

    cause: str


Decision = Granted | Revoked | None


class Leadership:
    """The leadership of one process. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._standing = Standing.FOLLOWING
        self._timeout = 0.0
        #: When the request was sent that ZooKeeper has answered last: its count of the timeout began no earlier.
        self._heard = float("-inf")
        self.epoch = 0

    @property
    def standing(self) -> Standing:
        """The last decision."""
        return self._standing

    @property
    def leads(self) -> bool:
        """True while granted and not revoked."""
        return self._standing is not Standing.FOLLOWING

    @property
    def ends(self) -> float:
        """Until when it may lead without hearing anything."""
        return self._heard + self._timeout * (1 - _MARGIN)

    @property
    def next_heartbeat(self) -> float:
        """The time of the next request to ZooKeeper."""
        return self._heard + self._timeout * _HEARTBEAT

    def may_lead(self, now: float) -> bool:
        """Whether it leads at this very moment, asked by a thread that may have slept."""
        return self.leads and now < self.ends

    def elected(self, epoch: int, session_timeout: float, sent: float, now: float) -> Decision:
        """ZooKeeper has taken the new epoch, by a request sent at `sent`."""
        self._timeout, self._heard = session_timeout, sent
        if now >= self.ends:
            # The answer took so long that the session may be gone.
            return Revoked(self._silence())
        self._standing, self.epoch = Standing.LEADING, epoch
        return Granted(epoch)

    def heard(self, sent: float, session_timeout: float) -> Decision:
        """A request sent at `sent` was answered within the same session."""
        self._heard = max(self._heard, sent)
        self._timeout = session_timeout
        if self._standing is Standing.SUSPENDED:
            self._standing = Standing.LEADING
        return None

    def suspended(self) -> Decision:
        """The connection is lost; the session may live."""
        if self._standing is Standing.LEADING:
            self._standing = Standing.SUSPENDED
        return None

    def lost(self, cause: str) -> Decision:
        """Hear that the session is gone, or another epoch has begun."""
        if not self.leads:
            return None
        self._standing = Standing.FOLLOWING
        return Revoked(cause)

    def passed(self, now: float) -> Decision:
        """Time has passed."""
        if not self.leads or now < self.ends:
            return None
        self._standing = Standing.FOLLOWING
        return Revoked(self._silence())

    def _silence(self) -> str:
        return (
            f"ZooKeeper did not answer for {self._timeout * (1 - _MARGIN):.3g} s of a session timeout of"
            f" {self._timeout:.3g} s: another master may lead soon"
        )
