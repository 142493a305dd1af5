"""AvoidedSlots: slots and TaskExecutors that failed repeatedly, and are not used for a while if others exist.

Owner: the SlotManager. Pure; times are passed in. A slot fails when its job loses it while still needing it,
or when its TaskExecutor does not answer a request. Every note expires: nothing is avoided for ever.
"""

from __future__ import annotations

from collections import deque

from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.messages import SlotID

#: Failures within WITHIN seconds that make a slot, or a TaskExecutor, one to avoid.
FAILURES = 3
WITHIN = 60.0
#: Seconds of avoidance after the last failure; doubled by each further failure, up to the maximum.
AVOIDED_FIRST = 60.0
AVOIDED_MOST = 600.0
#: Seconds. A slot that failed so often within that time rests as long, even without an alternative: a worker
#: that cannot start there would otherwise be started without end.
REST = 1.0

_Place = SlotID | ResourceID


class _Record:
    def __init__(self) -> None:
        self.failures: deque[float] = deque(maxlen=FAILURES)
        self.avoided_for = 0.0
        self.avoided_until = float("-inf")


class AvoidedSlots:
    """The recent failures of slots and TaskExecutors."""

    def __init__(self) -> None:
        self._records: dict[_Place, _Record] = {}

    def failed(self, slot: SlotID, now: float) -> None:
        """Notes that a job lost a slot that it needed, or that a request for the slot failed."""
        self._note(slot, now)
        self._note(slot.resource_id, now)

    def succeeded(self, slot: SlotID) -> None:
        """Notes that a job gave the slot back unneeded, which ends a run of failures."""
        for place in (slot, slot.resource_id):
            record = self._records.get(place)
            if record is not None:
                record.failures.clear()

    def forget(self, resource_id: ResourceID) -> None:
        """Forgets a TaskExecutor that is gone; a new one of that name starts without failures."""
        gone = [
            place
            for place in self._records
            if place == resource_id or (isinstance(place, SlotID) and place.resource_id == resource_id)
        ]
        for place in gone:
            del self._records[place]

    def is_avoided(self, slot: SlotID, now: float) -> bool:
        """Whether other slots should be taken before this one."""
        if not self._records:
            return False
        return any(
            (record := self._records.get(place)) is not None and now < record.avoided_until
            for place in (slot, slot.resource_id)
        )

    def rests(self, slot: SlotID, now: float) -> bool:
        """Whether the slot fails as soon as it is used, and last did so a moment ago."""
        record = self._records.get(slot)
        return (
            record is not None
            and len(record.failures) == FAILURES
            and record.failures[-1] - record.failures[0] < REST
            and now - record.failures[-1] < REST
        )

    def _note(self, place: _Place, now: float) -> None:
        record = self._records.setdefault(place, _Record())
        if now - record.avoided_until > AVOIDED_MOST:
            record.avoided_for = 0.0
        record.failures.append(now)
        if len(record.failures) == FAILURES and now - record.failures[0] <= WITHIN:
            record.avoided_for = min(max(AVOIDED_FIRST, 2 * record.avoided_for), AVOIDED_MOST)
            record.avoided_until = now + record.avoided_for
