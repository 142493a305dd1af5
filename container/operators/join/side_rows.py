"""SideRows: the rows of one side of an interval join in keyed state, by bucket of time and key.

Owner: the task thread. A key has a list a bucket, sorted by time; equal times stand as they came. A bucket is a table
by window, which goes at once. Must not know watermarks, user functions or the other side.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.operators.join.side_size import SideSize
from yarrow.container.operators.join.time_buckets import bucket_at, bucket_starts
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.container.state.window_tables import TIME_WINDOWS, WindowTables
from yarrow.datastream.window_types import TimeWindow

#: (time, whether the row has met another one, row)
Entry = tuple[int, bool, Any]
_TIME: Final = itemgetter(0)
_HAS_MET: Final = itemgetter(1)


class SideRows:
    """The rows of one side."""

    def __init__(
        self,
        state: KeyedStateBackend,
        name: str,
        row_type: TypeInformation | None,
        length: int,
        size: SideSize,
    ) -> None:
        """`name`: that of the state. `length`: that of buckets, in milliseconds. `size` counts the rows."""
        self._size = size
        stored: TypeInformation = Types.PICKLED_BYTE_ARRAY()
        if row_type is not None:
            stored = Types.LIST(Types.TUPLE([Types.LONG(), Types.BOOLEAN(), row_type]))
        self._tables: WindowTables[TimeWindow] = state.window_tables(name, stored, TIME_WINDOWS)
        self._length = length
        #: Buckets with rows, by their start.
        self._buckets: dict[int, TimeWindow] = {}
        #: The tables that the rows of the present chunk have asked for, by the start of their bucket.
        self._at_hand: dict[int, ValueTable] = {}
        #: Restored buckets of another length: the program has changed the bounds since.
        self._others: list[TimeWindow] = []
        for bucket in self._tables.windows():
            start = bucket.start - bucket.start % length
            if bucket == bucket_at(start, length):
                self._buckets[start] = bucket
            else:
                self._others.append(bucket)

    # ------------------------------------------------------------------ rows of a chunk

    def begin_chunk(self) -> None:
        """Begins rows that follow one another without a cut. Each chunk has to ask for its tables."""
        self._at_hand.clear()

    def _table(self, start: int) -> ValueTable | None:
        """The table of a bucket; None if there is no such bucket."""
        bucket = self._buckets.get(start)
        if bucket is None:
            return None
        table = self._at_hand[start] = self._tables.table(bucket)
        return table

    def add(self, key: Any, entry: Entry) -> None:
        """Adds a row of a canonical key."""
        time = entry[0]
        start = time - time % self._length
        table = self._at_hand.get(start)
        if table is None:
            if start not in self._buckets:
                self._buckets[start] = bucket_at(start, self._length)
            table = self._table(start)
            assert table is not None
        live = table.live
        entries = live[0] if len(live) == 1 else live[hash(key) % len(live)]
        found = entries.get(key, MISSING)
        if found is MISSING:
            key, entries, found = table.miss(key)
        if found is MISSING:
            found = [entry]
        elif found[-1][0] <= time:
            found.append(entry)
        else:
            insort_right(found, entry, key=_TIME)
        entries[key] = found
        self._size.added(time, entry[2])

    def between(self, key: Any, first: int, last: int, *, mark: bool) -> list[Entry]:
        """The rows of a canonical key from time `first` to `last`.

        With `mark` the state notes that they have met a row.
        """
        met: list[Entry] = []
        for other in self._others:
            if other.start <= last and first < other.end:
                met += self._met(self._tables.table(other), key, first, last, mark=mark)
        at_hand = self._at_hand
        for start in bucket_starts(first, last, self._length):
            table = at_hand.get(start) or self._table(start)
            if table is not None:
                met += self._met(table, key, first, last, mark=mark)
        return met

    @staticmethod
    def _met(table: ValueTable, key: Any, first: int, last: int, *, mark: bool) -> list[Entry]:
        """The rows of a key in one bucket from time `first` to `last`."""
        live = table.live
        entries = live[0] if len(live) == 1 else live[hash(key) % len(live)]
        found = entries.get(key, MISSING)
        if found is MISSING:
            key, entries, found = table.miss(key)
            if found is MISSING:
                return []
        if first <= found[0][0] and found[-1][0] <= last:
            low, high = 0, len(found)
        else:
            low, high = bisect_left(found, first, key=_TIME), bisect_right(found, last, key=_TIME)
        rows: list[Entry] = found[low:high]
        if mark and not all(map(_HAS_MET, rows)):
            found[low:high] = [(time, True, row) for time, _, row in rows]
            entries[key] = found
        return rows

    # ------------------------------------------------------------------ buckets that end

    def buckets_until(self, position: int) -> list[TimeWindow]:
        """The buckets whose last time is `position` or before it."""
        return self._tables.windows_until(position)

    def some_rows(self, bucket: TimeWindow) -> tuple[Sequence[Any], Sequence[list[Entry]]] | None:
        """Some canonical keys of a bucket, with their rows; None if there are none."""
        return next((piece for piece in self._tables.rows(bucket) if piece[0]), None)

    def remove(self, bucket: TimeWindow, key: Any, entries: Sequence[Entry]) -> None:
        """Removes the rows of a raw key, which are `entries`, from a bucket."""
        self._tables.table(bucket).remove(key)
        self._size.removed(map(_TIME, entries))

    def drop(self, bucket: TimeWindow) -> None:
        """Removes a bucket with all its rows. No earlier bucket is left then."""
        self._tables.drop(bucket)
        self._size.removed_until(bucket.end - 1)
        start = bucket.start - bucket.start % self._length
        if self._buckets.get(start) == bucket:
            del self._buckets[start]
            self._at_hand.pop(start, None)
        else:
            self._others.remove(bucket)
