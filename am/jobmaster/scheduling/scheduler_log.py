"""SchedulerLog: the last events of a job, the JobScheduler's decisions, and its state before the first of them.

Owner: the JobMaster's loop. Pure, except for the clock that stamps events for readers. It passes each event
on to the scheduler, and must not change a decision. Entries are encoded at once, so that they keep no task or
program alive, and later changes do not reach them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.recorded_events import (
    RecordedAction,
    cut,
    recorded_action,
    recorded_event,
    recorded_snapshot,
)
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions
from yarrow.am.jobmaster.scheduling.scheduler_events import IdleSlotsChecked, SchedulerEvent
from yarrow.am.jobmaster.scheduling.scheduler_state import SchedulerSnapshot
from yarrow.runtime.common.clock import Clock

#: Least number of last events that are kept, if their texts are short enough; at most twice as many are kept.
EVENTS_KEPT: Final = 500
#: Bytes of events since the last snapshot after which another one is taken.
_SEGMENT_BYTES: Final = 2 << 20
#: Most bytes of a dump; a longer one loses its older half.
DUMP_BYTES: Final = 16 << 20
#: Most bytes of events that are shown at a time.
SHOWN_BYTES: Final = 1 << 20
#: Version of the dump format.
DUMP_FORMAT: Final = 1


class LoggedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One event and the decision about it."""

    #: Counts the events of the job under one JobMaster.
    number: int
    #: Time of handling in epoch ms.
    timestamp_ms: int
    event: SchedulerEvent
    actions: list[RecordedAction]
    #: Class of the scheduler's exception; "" = it raised none.
    error: str = ""


class SchedulerDump(msgspec.Struct, frozen=True, kw_only=True):
    """A run of decisions that can be repeated."""

    format: int = DUMP_FORMAT
    #: Why the dump was written.
    reason: str
    #: The state before the first event.
    snapshot: SchedulerSnapshot
    events: list[LoggedDecision]


class _RawDump(msgspec.Struct, frozen=True, kw_only=True):
    """A SchedulerDump whose parts are already encoded."""

    format: int = DUMP_FORMAT
    reason: str
    snapshot: msgspec.Raw
    events: list[msgspec.Raw]


class _Segment(msgspec.Struct):
    """A snapshot and the events after it."""

    snapshot: bytes
    events: list[bytes] = msgspec.field(default_factory=list)
    size: int = 0


_ENCODER: Final = msgspec.json.Encoder()


class SchedulerLog:
    """A JobScheduler whose events are kept."""

    def __init__(self, scheduler: JobScheduler, clock: Clock, events_kept: int = EVENTS_KEPT) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._events_kept = events_kept
        self._number = 0
        self._segments: list[_Segment] = []

    def handle(self, event: SchedulerEvent) -> Actions:
        """Takes in an event and keeps it; returns the scheduler's actions. A scheduler error is kept too."""
        segment = self._segment()
        # Encoded before handling, so that no decision changes the stored form.
        recorded = recorded_event(event)
        try:
            actions = self._scheduler.handle(event)
        except Exception as error:
            self._keep(segment, recorded, [], type(error).__name__)
            raise
        if actions or not isinstance(event, IdleSlotsChecked):
            # A check for idle slots runs each second; without a finding it is not kept.
            self._keep(segment, recorded, list(map(recorded_action, actions)))
        return actions

    def events(self, last: int) -> tuple[bytes, ...]:
        """The last events, oldest first, each as JSON of a LoggedDecision; at most SHOWN_BYTES, but at least one."""
        found, size = list[bytes](), 0
        for encoded in (each for segment in reversed(self._segments) for each in reversed(segment.events)):
            size += len(encoded)
            if len(found) == last or (found and size > SHOWN_BYTES):
                break
            found.append(encoded)
        return tuple(reversed(found))

    def dump(self, reason: str) -> bytes | None:
        """A SchedulerDump as JSON; None if even its newer half is longer than DUMP_BYTES."""
        for segments in self._tails():
            raw = _RawDump(
                reason=cut(reason),
                snapshot=msgspec.Raw(segments[0].snapshot),
                events=[msgspec.Raw(each) for segment in segments for each in segment.events],
            )
            encoded = _ENCODER.encode(raw)
            if len(encoded) <= DUMP_BYTES:
                return encoded
        return None

    def _tails(self) -> Iterator[list[_Segment]]:
        for first in range(len(self._segments)):
            yield self._segments[first:]

    def _segment(self) -> _Segment:
        """The segment for the next event."""
        if self._segments:
            present = self._segments[-1]
            if len(present.events) < self._events_kept and present.size < _SEGMENT_BYTES:
                return present
        snapshot = _ENCODER.encode(recorded_snapshot(self._scheduler.snapshot()))
        self._segments = [*self._segments[-1:], _Segment(snapshot)]
        return self._segments[-1]

    def _keep(
        self, segment: _Segment, event: SchedulerEvent, actions: list[RecordedAction], error: str = ""
    ) -> None:
        self._number += 1
        logged = LoggedDecision(
            number=self._number,
            timestamp_ms=self._clock.epoch_ms(),
            event=event,
            actions=actions,
            error=error,
        )
        encoded = _ENCODER.encode(logged)
        segment.events.append(encoded)
        segment.size += len(encoded)
