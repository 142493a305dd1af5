"""AvoidedSlots: slots and TaskExecutors that keep failing, left alone for a while where others exist.

Owner: the SlotManager. Pure; times are given. A slot fails when its job loses it while it still needs it, or when its
TaskExecutor does not answer a request. What is noted here wears off by itself: nothing is avoided for ever.
"""

from __future__ import annotations

from collections import deque

from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.messages import SlotID

#: So many failures in a row within so many seconds make a slot, or a TaskExecutor, one to avoid.
FAILURES = 3
WITHIN = 60.0
#: Seconds for which it is avoided after its last failure; twice that after each further one, up to the maximum.
AVOIDED_FIRST = 60.0
AVOIDED_MOST = 600.0
#: A slot that failed so often within so many seconds is left alone as long even where there is no other: a worker that
#: cannot start there would be started without end.
REST = 1.0

_Place = SlotID | ResourceID


class _Record:
    def __init__(self) -> None:
        self.failures: deque[float] = deque(maxlen=FAILURES)
        self.avoided_for = 0.0
        self.avoided_until = float("-inf")


class AvoidedSlots:
    """What failed lately."""

    def __init__(self) -> None:
        self._records: dict[_Place, _Record] = {}

    def failed(self, slot: SlotID, now: float) -> None:
        """A slot was lost to the job that needed it, or its request failed."""
        self._note(slot, now)
        self._note(slot.resource_id, now)

    def succeeded(self, slot: SlotID) -> None:
        """A job gave the slot back because it needs it no more: no failures in a row any longer."""
        for place in (slot, slot.resource_id):
            record = self._records.get(place)
            if record is not None:
                record.failures.clear()

    def forget(self, resource_id: ResourceID) -> None:
        """The TaskExecutor is gone: one of that name that comes again begins anew."""
        gone = [
            place
            for place in self._records
            if place == resource_id or (isinstance(place, SlotID) and place.resource_id == resource_id)
        ]
        for place in gone:
            del self._records[place]

    def is_avoided(self, slot: SlotID, now: float) -> bool:
        """Whether other slots are to be taken before this one."""
        if not self._records:
            return False
        return any(
            (record := self._records.get(place)) is not None and now < record.avoided_until
            for place in (slot, slot.resource_id)
        )

    def rests(self, slot: SlotID, now: float) -> bool:
        """Whether it fails as soon as it is used, and did so a moment ago."""
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
