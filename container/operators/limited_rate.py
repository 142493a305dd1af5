"""LimitedRate: the share of one source or sink subtask of its rate limit, and its talk with the JobMaster.

Owner: the task's thread. The subtask begins with an equal share of the limit in its spec. The JobMaster sends another
share when subtasks come, go or are idle, and when somebody sets another limit. A subtask without rows tells the
JobMaster, so that its share serves the others, and again when rows come. It must not wait: operators ask, and return.
"""

from __future__ import annotations

import msgspec

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.operators.base import OperatorContext
from yarrow.datastream.connectors.rate_limit import Permits
from yarrow.runtime.rpc.messages import JOB_MASTER_SUBTASK, RateDemand


class LimitedRate:
    """The permits of one subtask, by the clock of its task."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        environment = context.environment
        self._now = environment.clock.monotonic
        limit = context.descriptor.spec.rate_limit
        self._permits = Permits(self._now(), limit.share_of(environment.parallelism))
        #: The JobMaster knows that the subtask has ended.
        self._has_ended = False

    @property
    def limits_something(self) -> bool:
        """Whether there is any bound."""
        return self._permits.limits_something

    @property
    def counts_bytes(self) -> bool:
        """Whether the bytes of rows take permits."""
        return self._permits.share.bytes_per_second is not None

    def take_share(self, share: RateLimit) -> None:
        """Takes another share from the JobMaster."""
        self._permits.set_share(self._now(), share)

    @property
    def permitted_rows(self) -> int | None:
        """Most rows that may come now; 0 = they wait, None = any number."""
        return self._permits.most_rows(self._now()) if self._permits.limits_something else None

    @property
    def seconds_to_wait(self) -> float:
        """Seconds until rows may come; infinity = not before another share comes."""
        return self._permits.seconds_to_wait(self._now())

    def use(self, rows: int, size_bytes: int) -> None:
        """Takes the permits of rows that came."""
        if rows and self._permits.limits_something:
            self._permits.use(self._now(), rows, size_bytes)
            self.look()

    def look(self) -> None:
        """Tells the JobMaster if the subtask has become idle, or is idle no more."""
        permits = self._permits
        if not permits.limits_something or self._has_ended:
            return
        if permits.idleness_changed(self._now()):
            self._tell(needs_share=not permits.is_idle)

    @property
    def seconds_to_look(self) -> float | None:
        """Seconds until the next `look`; None = none is needed before rows come."""
        permits = self._permits
        if not permits.limits_something or permits.is_idle or self._has_ended:
            return None
        seconds = permits.seconds_to_idleness(self._now())
        return None if seconds == float("inf") else seconds

    @property
    def seconds_due(self) -> list[float]:
        """Seconds until rows may come again, if they wait now, and until the next `look`."""
        waits, look = self.seconds_to_wait, self.seconds_to_look
        due = [waits] if 0 < waits < float("inf") else []
        return due if look is None else [*due, look]

    def ended(self) -> None:
        """Leaves the share to the others: no rows come any more."""
        if self._permits.limits_something and not self._has_ended:
            self._has_ended = True
            self._tell(needs_share=False)

    def _tell(self, *, needs_share: bool) -> None:
        environment = self._context.environment
        environment.send_operator_event(
            self._context.descriptor.id,
            JOB_MASTER_SUBTASK,
            environment.subtask,
            msgspec.msgpack.encode(RateDemand(needs_share=needs_share)),
        )
