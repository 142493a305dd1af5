"""TimeOrderedRows: the rows of all keys that wait for the watermark in memory, by time alone.

Owner: the task thread; the snapshot thread makes the stored form. A state backend on the heap keeps all rows in memory
anyhow, so a row needs no place by key, and no timer. Stored, each key has a list of its rows in order of time and the
timer of its first row, as `PendingRows` keeps them. Must not know patterns or the watermark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.operators.cep.pending_rows import PENDING_ROWS, stored_rows_type
from yarrow.container.operators.event_time_order.keyed_rows_by_time import KeyedRowsByTime, RowsOfTime
from yarrow.container.state.backend import KeyedStateBackend, Timer
from yarrow.container.state.frozen_shard import PIECE
from yarrow.container.state.pacing import Pacing
from yarrow.container.state.timers import TimerQueue

#: Times whose rows are looked at before the snapshot thread rests.
_TIMES: Final = 64


class TimeOrderedRows(KeyedRowsByTime):
    """The rows that wait; a KeyedSection."""

    def __init__(self, state: KeyedStateBackend, row_type: TypeInformation | None) -> None:
        """`row_type` None = not declared."""
        super().__init__()
        #: See KeyedSection.
        self.value_type = stored_rows_type(row_type)
        state.register_section(PENDING_ROWS, self)

    # ------------------------------------------------------------------ stored (KeyedSection)

    @property
    def entry_count(self) -> int:
        """Number of rows: to count keys would mean to look at each."""
        return self.count

    def freeze_entries(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """The present keys, each with its rows in order of time."""
        return _by_key(self.freeze())

    def restore_entries(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Takes restored rows."""
        waiting = [(time, key, row) for key, rows in entries for time, row in rows]
        # Rows of one key and time stay as they are.
        waiting.sort(key=lambda entry: entry[0])
        for time, key, row in waiting:
            self.add(key, time, row)


class RowTimers(TimerQueue):
    """Timers of keys with partial matches, beside rows that wait without a timer."""

    def __init__(self, rows: TimeOrderedRows) -> None:
        super().__init__()
        self._rows = rows

    @property
    def next_timestamp(self) -> int | None:
        """When the first row leaves, or the first timer is due."""
        first, row = self.first_timestamp(), self._rows.first_time
        return first if row is None or (first is not None and first < row) else row

    def drain(self) -> list[Timer]:
        """Removes all timers and returns them, without those of rows."""
        found = list(super().snapshot_timers())
        self.clear()
        return found

    def snapshot_timers(self) -> Collection[Timer]:
        """The present timers, where the first row of a key does not come before its own."""
        return _WithRows(super().snapshot_timers(), self._rows.freeze())


class _WithRows(Collection[Timer]):
    """The first timer of each key at a cut, be it one of rows or not; the snapshot thread reads it once."""

    def __init__(self, timers: Collection[Timer], rows: Iterator[RowsOfTime]) -> None:
        self._timers, self._rows = timers, rows
        self._times: dict[Any, int] | None = None

    def _first_times(self) -> dict[Any, int]:
        """The time of the first timer of each key."""
        times = self._times
        if times is None:
            pacing, times = Pacing(), dict[Any, int]()
            for at, rows in enumerate(reversed(list(self._rows)), 1):
                # Earlier rows come later here.
                times.update(dict.fromkeys(rows.entries[rows.start : rows.end : 2], rows.time))
                if not at % _TIMES:
                    pacing.step()
            for timer in self._timers:
                row = times.get(timer.key)
                if row is None or timer.timestamp < row:
                    times[timer.key] = timer.timestamp
            self._times = times
        return times

    def __len__(self) -> int:
        return len(self._first_times())

    def __iter__(self) -> Iterator[Timer]:
        for key, time in self._first_times().items():
            yield Timer(time, key)

    def __contains__(self, timer: object) -> bool:
        return any(timer == each for each in self)


def _by_key(frozen: Iterator[RowsOfTime]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Keys with their rows in order of time, some thousand keys at a time. Snapshot thread."""
    pacing, found = Pacing(), defaultdict[Any, list[tuple[int, Any]]](list)
    for at, (time, entries, start, end) in enumerate(frozen, 1):
        keys_and_rows = iter(entries[start:end])
        for key, row in zip(keys_and_rows, keys_and_rows, strict=True):
            found[key].append((time, row))
        if not at % _TIMES:
            pacing.step()
    rest = iter(found.items())
    while piece := list(islice(rest, PIECE)):
        yield [key for key, _ in piece], [rows for _, rows in piece]
