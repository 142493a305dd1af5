"""TimerQueue: timers of a keyed operator, one queue for each time domain, and the TimerService of functions.

Owner: the task thread; the snapshot thread may read the result of `snapshot_timers`. Timers are ordered by
timestamp, then by the encoding of the key (docs/design/0003), then by the namespace. So a restored queue
fires in the same order as the lost one, at any parallelism, unless its owner takes timers in any order. Must not know
operators or state backends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Final

import numpy as np

from yarrow.container.protocol.errors import TimerError
from yarrow.container.state.backend import Timer
from yarrow.datastream.functions.timers import TimerService
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.keys import canonicalize, encode_key
from yarrow.runtime.snapshot.key_group_form import TimerValues

#: A timer of one timestamp: its canonical key, or (_NAMESPACED, canonical key, namespace).
_Entry = Any
#: Marks a timer with a namespace. No key holds it.
_NAMESPACED: Final[Any] = object()
#: Stands for the timers of a timestamp that were all deleted.
_EMPTIED: Final[Any] = object()
#: The timers of one timestamp: a single entry, a set of several, or _EMPTIED.
_Bucket = Any

_log = logging.getLogger(__name__)

#: The metric of timers that a function has registered behind the end of their key.
IGNORED_TIMERS = "numIgnoredTimers"
#: Timestamps without timers are removed once there are more of them than this and than others.
_LEAST_SWEEP = 1024


class TimerQueue:
    """Timers of one domain, deduplicated per key, namespace and timestamp. A TimerSection."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        #: Heap of the timestamps in `_buckets`.
        self._times: list[int] = []
        self._count = 0
        #: Timestamps whose bucket is a set, and those of them whose set a snapshot holds: it is copied before
        #: a change.
        self._several: set[int] = set()
        self._frozen: set[int] = set()
        #: True if some timer may have a namespace.
        self._namespaced = False
        #: Number of timestamps whose bucket is _EMPTIED.
        self._emptied = 0
        #: The timestamp that is firing, with its timers as a heap of (encoded key, order of namespace,
        #: entry), including deleted ones. None unless a timestamp with several timers is firing.
        self._front_time: int | None = None
        self._front: list[tuple[bytes, Any, _Entry]] = []

    def __len__(self) -> int:
        return self._count

    def register(self, timestamp: int, key: Any, namespace: Any = None) -> None:
        """Adds a timer of a canonical key; no effect if it is registered already."""
        entry = key
        if namespace is not None:
            entry = _NAMESPACED, key, namespace
            self._namespaced = True
        buckets = self._buckets
        if timestamp not in buckets:
            buckets[timestamp] = entry
            heappush(self._times, timestamp)
        else:
            bucket = buckets[timestamp]
            if bucket.__class__ is set:
                if entry in bucket:
                    return
                (self._changing(timestamp, bucket) if timestamp in self._frozen else bucket).add(entry)
            elif bucket is _EMPTIED:
                buckets[timestamp] = entry
                self._emptied -= 1
            elif bucket is entry or bucket == entry:
                return
            else:
                buckets[timestamp] = {bucket, entry}
                self._several.add(timestamp)
        self._count += 1
        if timestamp == self._front_time:
            heappush(self._front, _ordered(entry))

    def delete(self, timestamp: int, key: Any, namespace: Any = None) -> None:
        """Removes a timer; no effect if it is missing."""
        if self._discard(timestamp, key if namespace is None else (_NAMESPACED, key, namespace)):
            self._count -= 1
            if self._emptied > _LEAST_SWEEP and self._emptied * 2 > len(self._times):
                self._sweep()

    def holds(self, timestamp: int, key: Any, namespace: Any = None) -> bool:
        """Whether a timer is registered."""
        bucket = self._buckets.get(timestamp, _EMPTIED)
        entry = key if namespace is None else (_NAMESPACED, key, namespace)
        return entry in bucket if type(bucket) is set else bool(bucket is not _EMPTIED and bucket == entry)

    def _discard(self, timestamp: int, entry: _Entry) -> bool:
        bucket = self._buckets.get(timestamp, _EMPTIED)
        if bucket is _EMPTIED:
            return False
        if type(bucket) is set:
            if entry not in bucket:
                return False
            if len(bucket) > 1:
                self._changing(timestamp, bucket).remove(entry)
                return True
            self._several.discard(timestamp)
            self._frozen.discard(timestamp)
        elif bucket is not entry and bucket != entry:
            return False
        self._buckets[timestamp] = _EMPTIED
        self._emptied += 1
        return True

    def _changing(self, timestamp: int, bucket: set[_Entry]) -> set[_Entry]:
        if timestamp not in self._frozen:
            return bucket
        self._frozen.remove(timestamp)
        self._buckets[timestamp] = copied = bucket.copy()
        return copied

    def _sweep(self) -> None:
        self._buckets = {time: bucket for time, bucket in self._buckets.items() if bucket is not _EMPTIED}
        self._times = list(self._buckets)
        heapify(self._times)
        self._emptied = 0

    @property
    def next_timestamp(self) -> int | None:
        """Time of the earliest timer."""
        return self.first_timestamp()

    def first_timestamp(self) -> int | None:
        """Time of the earliest timer of this queue itself."""
        times, buckets = self._times, self._buckets
        while times and buckets[times[0]] is _EMPTIED:
            del buckets[heappop(times)]
            self._emptied -= 1
        return times[0] if times else None

    def pop(self, limit: int) -> tuple[int, Any, Any] | None:
        """Removes and returns the first timer up to `limit`: (timestamp, key, namespace); None if there is none."""
        timestamp = self.first_timestamp()
        if timestamp is None or timestamp > limit:
            return None
        bucket = self._buckets[timestamp]
        if type(bucket) is not set:
            entry: Any = bucket
        else:
            if timestamp != self._front_time:
                self._front_time = timestamp
                self._front = [_ordered(each) for each in bucket]
                heapify(self._front)
            # Deleted ones are skipped; one that was deleted and registered again is there twice and fires
            # once.
            entry = heappop(self._front)[2]
            while entry not in bucket:
                entry = heappop(self._front)[2]
        self._discard(timestamp, entry)
        self._count -= 1
        if timestamp == self._front_time and self._buckets[timestamp] is _EMPTIED:
            self._front_time = None
            self._front = []
        return timestamp, *_parts(entry)

    def pop_any(self, limit: int) -> tuple[Any, Any] | None:
        """Removes a timer of the earliest time, if that is `limit` at most: (key, namespace); None if there is none.

        Timers of one time come in any order, which spares the encoding of their keys. Call it or `pop`, never both.
        """
        timestamp = self.first_timestamp()
        if timestamp is None or timestamp > limit:
            return None
        bucket = self._buckets[timestamp]
        self._count -= 1
        if type(bucket) is not set:
            entry = bucket
        elif len(bucket) == 1:
            (entry,) = bucket
        else:
            return _parts(self._changing(timestamp, bucket).pop())
        self._discard(timestamp, entry)
        return _parts(entry)

    def take_keys(self, timestamp: int, most: int) -> Sequence[Any]:
        """Removes up to `most` of the timers of a time, and returns their keys; for timers without namespaces.

        The keys come in any order, which spares their encoding. Call it or `pop`, never both.
        """
        bucket = self._buckets[timestamp]
        if type(bucket) is not set:
            keys = [bucket]
        elif len(bucket) > most:
            bucket = self._changing(timestamp, bucket)
            self._count -= most
            return [bucket.pop() for _ in range(most)]
        else:
            keys = list(bucket)
            self._several.discard(timestamp)
            self._frozen.discard(timestamp)
        self._buckets[timestamp] = _EMPTIED
        self._emptied += 1
        self._count -= len(keys)
        return keys

    def drain(self) -> list[Timer]:
        """Removes all timers and returns them."""
        found = list(self.snapshot_timers())
        self.clear()
        return found

    def clear(self) -> None:
        """Removes all timers."""
        TimerQueue.__init__(self)

    # ------------------------------------------------------------------ TimerSection

    def snapshot_timers(self) -> Collection[Timer]:
        """The present timers; see TimerSection."""
        self._frozen = self._several.copy()
        return FrozenTimers(self._buckets.copy(), self._count, self._namespaced)

    def restore_timers(self, timers: Iterable[Timer]) -> None:
        """Registers the timers of a snapshot."""
        for timer in timers:
            self.register(timer.timestamp, timer.key, timer.namespace)


class FrozenTimers(Collection[Timer]):
    """The timers of a queue at the cut of a snapshot."""

    def __init__(self, buckets: dict[int, _Bucket], count: int, namespaced: bool) -> None:
        self._buckets = buckets
        self._count = count
        self._namespaced = namespaced

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Timer]:
        for timestamp, bucket in self._buckets.items():
            if type(bucket) is set:
                for entry in bucket:
                    yield Timer(timestamp, *_parts(entry))
            elif bucket is not _EMPTIED:
                yield Timer(timestamp, *_parts(bucket))

    def __contains__(self, timer: object) -> bool:
        return any(timer == each for each in self)

    def pieces(self, size: int) -> Iterator[tuple[list[Any], TimerValues]]:
        """Keys, and the times and namespaces of their timers, at most `size` at a time.

        No step looks at timers one by one as long as none has a namespace.
        """
        entries: list[Any] = []
        times: list[int] = []
        counts: list[int] = []
        for timestamp, bucket in self._buckets.items():
            if bucket is _EMPTIED:
                continue
            of_time = iter(bucket if type(bucket) is set else (bucket,))
            while piece := list(islice(of_time, size - len(entries))):
                entries += piece
                times.append(timestamp)
                counts.append(len(piece))
                if len(entries) >= size:
                    full = [self._piece(entries, times, counts)]
                    # No reference here keeps the list alive while the piece is written.
                    entries, times, counts, piece = [], [], [], []
                    yield full.pop()
        if entries:
            last = [self._piece(entries, times, counts)]
            del entries
            yield last.pop()

    def _piece(
        self, entries: list[Any], times: list[int], counts: list[int]
    ) -> tuple[list[Any], TimerValues]:
        """Keys and values of entries. `counts`: how many of them each of the times has."""
        stamps = np.repeat(np.array(times, dtype=np.int64), counts)
        if not self._namespaced:
            return entries, TimerValues(stamps, None)
        keys, namespaces = zip(*map(_parts, entries), strict=True)
        return list(keys), TimerValues(stamps, namespaces)


def _parts(entry: _Entry) -> tuple[Any, Any]:
    """Key and namespace of an entry."""
    if entry.__class__ is tuple and entry and entry[0] is _NAMESPACED:
        return entry[1], entry[2]
    return entry, None


def _ordered(entry: _Entry) -> tuple[bytes, Any, _Entry]:
    key, namespace = _parts(entry)
    return encode_key(key), () if namespace is None else namespace, entry


class OperatorTimerService(TimerService):
    """The TimerService of functions; `current_key` None = the stream is not keyed, timers are refused."""

    def __init__(self, clock: Clock, operator_name: str, current_key: Callable[[], Any] | None) -> None:
        self._clock = clock
        self._operator_name = operator_name
        self._current_key = current_key
        self.event_timers = TimerQueue()
        self.processing_timers = TimerQueue()
        #: The present event time.
        self.watermark = MIN_TIMESTAMP
        #: True while the timers of a key of bounded input fire: what the function registers now is ignored.
        self.key_has_ended = False
        #: Number of ignored timers.
        self.ignored = 0

    def current_processing_time(self) -> int:
        return self._clock.epoch_ms()

    def current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        if not self._ignores(timestamp):
            self.processing_timers.register(self._checked(timestamp), self._key())

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self.processing_timers.delete(timestamp, self._key())

    def register_event_time_timer(self, timestamp: int) -> None:
        if not self._ignores(timestamp):
            self.event_timers.register(self._checked(timestamp), self._key())

    def delete_event_time_timer(self, timestamp: int) -> None:
        self.event_timers.delete(timestamp, self._key())

    def _ignores(self, timestamp: int) -> bool:
        """Counts a timer behind the end of its key, as Flink ignores it in batch; names the operator once."""
        if not self.key_has_ended:
            return False
        self._checked(timestamp)
        if not self.ignored:
            _log.warning(
                "operator '%s': on_timer registers timers; in batch mode they are ignored, since all timers of a key "
                "fire when its records have come",
                self._operator_name,
            )
        self.ignored += 1
        return True

    def _key(self) -> Any:
        if self._current_key is None:
            raise UnsupportedFeatureError(
                f"operator '{self._operator_name}': timers need a keyed stream; call key_by before process"
            )
        return canonicalize(self._current_key())

    def _checked(self, timestamp: int) -> int:
        if type(timestamp) is int and MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            return timestamp
        what = (
            (
                "None, the result of ctx.timestamp() for a record without timestamp: assign timestamps before"
                " this operator (assign_timestamps_and_watermarks with a timestamp assigner)"
            )
            if timestamp is None
            else f"{timestamp!r}: give whole milliseconds since the epoch, an int of 64 bits"
        )
        raise TimerError(f"operator '{self._operator_name}': a timer was registered for {what}")
