"""SideRows: the rows of one side of an interval join in keyed state, by bucket of time and key.

Owner: the task thread. A key has a list a bucket, sorted by time; equal times stand as they came. A bucket is a table
by window, which goes at once. Must not know watermarks, user functions or the other side.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Callable, Sequence
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
        self._size.rows.setdefault(start, 0)
        table = self._at_hand[start] = self._tables.table(bucket)
        return table

    def _new_table(self, start: int) -> ValueTable:
        """The table of a bucket, which is made if there is none."""
        self._buckets.setdefault(start, bucket_at(start, self._length))
        table = self._table(start)
        assert table is not None
        return table

    def adding(self) -> Callable[[Any, Entry], None]:
        """A function that adds a row of a canonical key. Each row goes through it, so it reads no attribute."""
        at_hand, length, opened = self._at_hand, self._length, self._new_table
        size, number_of = self._size, self._size.rows

        def add(key: Any, entry: Entry) -> None:
            time = entry[0]
            start = time - time % length
            table = at_hand.get(start)
            if table is None:
                table = opened(start)
            live = table.live
            entries = live[0] if len(live) == 1 else live[hash(key) % len(live)]
            found = entries.get(key, MISSING)
            if found is MISSING:
                key, entries, found = table.miss(key)
            if found is MISSING:
                entries[key] = [entry]
                size.sample(entry[2])
            elif found[-1][0] <= time:
                found.append(entry)
                entries[key] = found
            else:
                insort_right(found, entry, key=_TIME)
                entries[key] = found
            number_of[start] += 1

        return add

    def finding(self, *, mark: bool) -> Callable[[Any, int, int], list[Entry]]:
        """A function that gives the rows of a canonical key from one time to another one, which must not be changed.

        With `mark` the state notes that they have met a row.
        """
        at_hand, length, opened, others = self._at_hand, self._length, self._table, self._others

        def find(key: Any, first: int, last: int) -> list[Entry]:
            met: list[Entry] = []
            for other in others:
                if other.start <= last and first < other.end:
                    met = met + _met(self._tables.table(other), key, first, last, mark)
            for start in bucket_starts(first, last, length):
                table = at_hand.get(start)
                if table is None:
                    table = opened(start)
                    if table is None:
                        continue
                rows = _met(table, key, first, last, mark)
                met = met + rows if met else rows
            return met

        return find

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


def _met(table: ValueTable, key: Any, first: int, last: int, mark: bool) -> list[Entry]:
    """The rows of a key in one bucket from time `first` to `last`."""
    live = table.live
    entries = live[0] if len(live) == 1 else live[hash(key) % len(live)]
    found: list[Entry] = entries.get(key, MISSING)
    if found is MISSING:
        key, entries, found = table.miss(key)
        if found is MISSING:
            return []
    if first <= found[0][0] and found[-1][0] <= last:
        rows, low = found, 0
    elif found[-1][0] < first or last < found[0][0]:
        return []
    else:
        low = bisect_left(found, first, key=_TIME)
        rows = found[low : bisect_right(found, last, key=_TIME)]
    if mark and not all(map(_HAS_MET, rows)):
        # The list that was read stays as it is: its rows are the result.
        changed = [*found]
        changed[low : low + len(rows)] = [(time, True, row) for time, _, row in rows]
        entries[key] = changed
    return rows
