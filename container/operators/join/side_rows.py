"""SideRows: the rows of one side of an interval join in keyed state, by bucket of time and key.

Owner: the task thread. A key has a list a bucket, sorted by time; equal times stand as they came. A bucket is a table
by window, which goes at once. Must not know watermarks, user functions or the other side.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.operators.join.time_buckets import bucket_at, bucket_starts
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.value_table import MISSING
from yarrow.container.state.window_tables import TIME_WINDOWS
from yarrow.datastream.window_types import TimeWindow

#: (time, whether the row has met another one, row)
Entry = tuple[int, bool, Any]
_TIME: Final = itemgetter(0)
_HAS_MET: Final = itemgetter(1)


class SideRows:
    """The rows of one side."""

    def __init__(
        self, state: KeyedStateBackend, name: str, row_type: TypeInformation | None, length: int
    ) -> None:
        """`name`: that of the state. `length`: that of buckets, in milliseconds."""
        stored: TypeInformation = Types.PICKLED_BYTE_ARRAY()
        if row_type is not None:
            stored = Types.LIST(Types.TUPLE([Types.LONG(), Types.BOOLEAN(), row_type]))
        self._values = WindowValues[TimeWindow](state.window_tables(name, stored, TIME_WINDOWS))
        self._length = length
        #: Buckets with rows, by their start.
        self._buckets: dict[int, TimeWindow] = {}
        #: Restored buckets of another length: the program has changed the bounds since.
        self._others: list[TimeWindow] = []
        for bucket in self._values.tables.windows():
            start = bucket.start - bucket.start % length
            if bucket == bucket_at(start, length):
                self._buckets[start] = bucket
            else:
                self._others.append(bucket)

    def add(self, key: Any, entry: Entry) -> None:
        """Adds a row of a key."""
        time = entry[0]
        start = time - time % self._length
        bucket = self._buckets.get(start)
        if bucket is None:
            bucket = self._buckets[start] = bucket_at(start, self._length)
        key, entries, found = self._values.find(bucket, key)
        if found is MISSING:
            found = [entry]
        elif found[-1][0] <= time:
            found.append(entry)
        else:
            insort_right(found, entry, key=_TIME)
        entries[key] = found

    def between(self, key: Any, first: int, last: int, *, mark: bool) -> list[Entry]:
        """The rows of a key from time `first` to `last`. With `mark` the state notes that they have met a row."""
        met: list[Entry] = []
        for bucket in self._buckets_between(first, last):
            canonical, entries, found = self._values.find(bucket, key)
            if found is MISSING:
                continue
            low, high = bisect_left(found, first, key=_TIME), bisect_right(found, last, key=_TIME)
            rows = found[low:high]
            met += rows
            if mark and not all(map(_HAS_MET, rows)):
                found[low:high] = [(time, True, row) for time, _, row in rows]
                entries[canonical] = found
        return met

    def _buckets_between(self, first: int, last: int) -> Iterator[TimeWindow]:
        for other in self._others:
            if other.start <= last and first < other.end:
                yield other
        get = self._buckets.get
        for start in bucket_starts(first, last, self._length):
            bucket = get(start)
            if bucket is not None:
                yield bucket

    # ------------------------------------------------------------------ buckets that end

    def buckets_until(self, position: int) -> list[TimeWindow]:
        """The buckets whose last time is `position` or before it."""
        return self._values.tables.windows_until(position)

    def some_rows(self, bucket: TimeWindow) -> tuple[Sequence[Any], Sequence[list[Entry]]] | None:
        """Some canonical keys of a bucket, with their rows; None if there are none."""
        return next((piece for piece in self._values.tables.rows(bucket) if piece[0]), None)

    def remove(self, bucket: TimeWindow, key: Any) -> None:
        """Removes the rows of a raw key from a bucket."""
        self._values.remove(bucket, key)

    def drop(self, bucket: TimeWindow) -> None:
        """Removes a bucket with all its rows."""
        self._values.drop(bucket)
        start = bucket.start - bucket.start % self._length
        if self._buckets.get(start) == bucket:
            del self._buckets[start]
        else:
            self._others.remove(bucket)
