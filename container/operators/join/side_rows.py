"""SideRows: the rows of one side of an interval join in keyed state, by bucket of time and key.

Owner: the task thread. A key has a list a bucket, sorted by time; equal times stand as they came. A bucket is a table
by window, which goes at once. Must not know watermarks, user functions or the other side.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
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
#: A bucket in generated code: a dict with entries by canonical key, and a function that gives those of a key which the
#: dict does not have; None = it has all keys.
Bucket = tuple[dict[Any, list[Entry]], Callable[[Any], list[Entry] | None] | None]
_NO_BUCKET: Final[Bucket] = ({}, None)
_TIME: Final = itemgetter(0)
_HAS_MET: Final = itemgetter(1)


def stored_rows(
    state: KeyedStateBackend, name: str, row_type: TypeInformation | None
) -> WindowTables[TimeWindow]:
    """The rows of a side as state, by bucket and key. `name`: that of the state. `row_type`: the declared type."""
    stored: TypeInformation = Types.PICKLED_BYTE_ARRAY()
    if row_type is not None:
        stored = Types.LIST(Types.TUPLE([Types.LONG(), Types.BOOLEAN(), row_type]))
    tables: WindowTables[TimeWindow] = state.window_tables(name, stored, TIME_WINDOWS)
    return tables


class SideRows:
    """The rows of one side."""

    def __init__(
        self,
        tables: WindowTables[TimeWindow],
        length: int,
        size: SideSize,
    ) -> None:
        """`length`: that of buckets, in milliseconds. `size` counts the rows."""
        self._size = size
        self._tables = tables
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

    @property
    def length(self) -> int:
        """The length of buckets, in milliseconds."""
        return self._length

    @property
    def number_of(self) -> dict[int, int]:
        """The rows of each bucket by its start, to which generated code adds."""
        return self._size.rows

    @property
    def has_other_buckets(self) -> bool:
        """True while restored buckets of another length are left."""
        return bool(self._others)

    def begin_chunk(self) -> None:
        """Begins rows that follow one another without a cut. Each chunk has to ask for its tables."""
        self._at_hand.clear()

    def bucket(self, start: int) -> Bucket:
        """The bucket of a start for the present chunk, which only looks into it."""
        table = self._at_hand.get(start) or self._table(start)
        return _NO_BUCKET if table is None else _bucket(table, _read)

    def new_bucket(self, start: int) -> Bucket:
        """The bucket of a start for the present chunk, which adds to it."""
        self._buckets.setdefault(start, bucket_at(start, self._length))
        table = self._at_hand.get(start) or self._table(start)
        assert table is not None
        return _bucket(table, _to_change)

    def begin(self, key: Any, entry: Entry, start: int) -> None:
        """Adds the first row of a canonical key to a bucket at hand."""
        key, entries, _ = self._at_hand[start].miss(key)
        entries[key] = [entry]
        self._size.sample(entry[2])

    def _table(self, start: int) -> ValueTable | None:
        """The table of a bucket; None if there is no such bucket."""
        bucket = self._buckets.get(start)
        if bucket is None:
            return None
        self._size.rows.setdefault(start, 0)
        table = self._at_hand[start] = self._tables.table(bucket)
        return table

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

    def has_until(self, position: int) -> bool:
        """True if there is a bucket whose last time is `position` or before it."""
        return bool(self.buckets_until(position))

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


def _bucket(table: ValueTable, missed: Callable[[ValueTable, Any], list[Entry] | None]) -> Bucket:
    whole = table.whole
    if whole is not None:
        return whole, None
    live = table.live
    return (live[0] if len(live) == 1 else {}), partial(missed, table)


def _read(table: ValueTable, key: Any) -> list[Entry] | None:
    """The entries of a canonical key, which must not be changed; None = there are none."""
    found: Any = table.read(key)
    return None if found is MISSING else found


def _to_change(table: ValueTable, key: Any) -> list[Entry] | None:
    """The entries of a canonical key, for one more; None = there are none."""
    key, entries, found = table.find(key)
    if found is MISSING:
        return None
    entries[key] = found
    rows: list[Entry] = found
    return rows


def _met(table: ValueTable, key: Any, first: int, last: int, mark: bool) -> list[Entry]:
    """The rows of a key in one bucket from time `first` to `last`."""
    found: Any = table.read(key)
    if found is MISSING:
        return []
    rows: list[Entry] = found
    if first <= found[0][0] and found[-1][0] <= last:
        low = 0
    elif found[-1][0] < first or last < found[0][0]:
        return []
    else:
        low = bisect_left(found, first, key=_TIME)
        rows = found[low : bisect_right(found, last, key=_TIME)]
    if mark and not all(map(_HAS_MET, rows)):
        # The list that was read stays as it is: its rows are the result.
        key, entries, _ = table.find(key)
        changed = [*found]
        changed[low : low + len(rows)] = [(time, True, row) for time, _, row in rows]
        entries[key] = changed
    return rows
