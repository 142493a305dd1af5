"""PendingBatches: the rows of record batches that the watermark has not passed, as keyed state.

Owner: the task thread; the snapshot thread reads what a cut has frozen. Rows live in memory on every backend, as those
of columnar joins do, in batches as they came. A snapshot has one value a key: a record batch with the times in front.
Must not know patterns or the watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.operators.columnar_pattern.column_conditions import Truths
from yarrow.container.operators.columnar_pattern.relevant_rows import Marks
from yarrow.container.operators.rows_by_key import order_by_key_and_time
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.column_rows import rows_of_batch

#: Name of the state.
PENDING_BATCHES: Final = "_pattern_pending_batches"
#: Keys that become Python objects at once while a snapshot is written.
_PIECE: Final = 10_000
_TIME: Final = pa.field("time", pa.int64())

#: Times of rows, and codes of their keys: int64, shape (rows,).
Numbers = npt.NDArray[np.int64]


class WaitingColumns(NamedTuple):
    """Rows that wait, at least one."""

    times: Numbers
    records: pa.RecordBatch
    truths: Truths
    marks: Marks
    first_time: int

    @staticmethod
    def of(times: Numbers, records: pa.RecordBatch, truths: Truths, marks: Marks) -> WaitingColumns:
        """Rows with their times (int64, shape (rows,)), results of conditions and marks; see Truths and Marks."""
        return WaitingColumns(times, records, truths, marks, int(times.min()))

    def chosen(self, mask: npt.NDArray[np.bool_]) -> WaitingColumns | None:
        """The rows of a mask, bool, shape (rows,); None if there are none."""
        return self.at(np.flatnonzero(mask))

    def at(self, places: npt.NDArray[np.int64]) -> WaitingColumns | None:
        """The rows at some places (int64, shape (rows,)) in their order; None if there are none."""
        if not len(places):
            return None
        records = rows_of_batch(self.records, pa.array(places))
        return WaitingColumns.of(self.times[places], records, self.truths[places], self.marks[places])

    def pieces_by_time(self, most: int) -> Iterator[WaitingColumns]:
        """The rows in order of time, some `most` of them at a time; rows of one time stay together."""
        if len(self.times) <= most:
            yield self
            return
        whole = self.by_time()
        start, count = 0, len(whole.times)
        while start < count:
            last = whole.times[min(start + most, count) - 1]
            end = int(np.searchsorted(whole.times, last, side="right"))
            yield whole.between(start, end)
            start = end

    def by_time(self) -> WaitingColumns:
        """The rows in order of time."""
        if (self.times[1:] >= self.times[:-1]).all():
            return self
        rows = self.at(np.argsort(self.times, kind="stable"))
        assert rows is not None
        return rows

    def between(self, start: int, end: int) -> WaitingColumns:
        """The rows from `start` on and before `end`, at least one, in the same memory."""
        own = slice(start, end)
        return WaitingColumns.of(
            self.times[own], self.records.slice(start, end - start), self.truths[own], self.marks[own]
        )


class FrozenRows(NamedTuple):
    """Rows as a cut found them."""

    rows: WaitingColumns
    #: Whether the cut found each row: bool, shape (rows,); None = it found all.
    there: npt.NDArray[np.bool_] | None = None


class HeldElsewhere(Protocol):
    """Rows that wait outside PendingBatches, and are part of its snapshots."""

    @property
    def row_count(self) -> int:
        """Number of rows."""
        ...

    def frozen(self) -> list[FrozenRows]:
        """The present rows in order of time, to be read later in another thread."""
        ...


class PendingBatches:
    """The rows of all keys that wait; a KeyedSection."""

    #: Bytes: a record batch without its schema.
    value_type = None

    def __init__(
        self,
        schema: pa.Schema,
        key: BatchKey,
        asked: Callable[[Numbers, pa.RecordBatch], WaitingColumns | None],
        held: HeldElsewhere | None,
    ) -> None:
        """`asked` asks the conditions for restored rows with their times; None = no row can be asked.

        `held`: rows that came before all others, and that a snapshot has too.
        """
        self._stored = pa.schema([_TIME, *schema])
        self._key = key
        self._asked = asked
        self._held = held
        #: In the order in which they came.
        self._waiting: list[WaitingColumns] = []

    @property
    def first_time(self) -> int | None:
        """The earliest time of a row; None without rows."""
        return min((rows.first_time for rows in self._waiting), default=None)

    def add(self, rows: WaitingColumns) -> None:
        """Adds rows behind all others."""
        self._waiting.append(rows)

    def put_back(self, rows: WaitingColumns) -> None:
        """Puts rows that were taken in front of all others."""
        self._waiting.insert(0, rows)

    def take_until(self, time: int) -> WaitingColumns | None:
        """Removes rows up to a time and returns them in the order in which they came; None = there are none."""
        leaving: list[WaitingColumns] = []
        waiting: list[WaitingColumns] = []
        for rows in self._waiting:
            if rows.first_time > time:
                waiting.append(rows)
                continue
            due = rows.times <= time
            if due.all():
                leaving.append(rows)
                continue
            for part, to in ((rows.chosen(due), leaving), (rows.chosen(~due), waiting)):
                if part is not None:
                    to.append(part)
        self._waiting = waiting
        return joined(leaving)

    # ------------------------------------------------------------------ snapshots (KeyedSection)

    @property
    def entry_count(self) -> int:
        """Number of rows: to count keys would mean to look at each."""
        waiting = sum(len(rows.times) for rows in list(self._waiting))
        return waiting + (0 if self._held is None else self._held.row_count)

    def freeze_entries(self) -> Iterable[tuple[list[Any], list[Any]]]:
        """The present keys, each with its rows in order of time."""
        held = () if self._held is None else self._held.frozen()
        return self._entries([*held, *map(FrozenRows, self._waiting)])

    def _entries(self, frozen: Sequence[FrozenRows]) -> Iterator[tuple[list[Any], list[Any]]]:
        parts = [rows if there is None else rows.chosen(there) for rows, there in frozen]
        rows = joined([part for part in parts if part is not None])
        if rows is None:
            return
        codes, keys = codes_of(self._key, rows.records)
        order = order_by_key_and_time(codes, rows.times)
        records = rows_of_batch(rows.records, pa.array(order))
        stored = pa.RecordBatch.from_arrays(
            [pa.array(rows.times[order]), *records.columns], schema=self._stored
        )
        codes = codes[order]
        bounds = groups_of(codes)
        for at in range(0, len(bounds), _PIECE):
            piece = bounds[at : at + _PIECE]
            of_keys = [stored.slice(start, end - start) for _, start, end in piece]
            yield [keys[code] for code, _, _ in piece], [each.serialize().to_pybytes() for each in of_keys]

    def restore_entries(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Adds restored rows; conditions are asked anew, since they may be others now."""
        found = [pa.ipc.read_record_batch(pa.py_buffer(value), self._stored) for _, value in entries]
        if found:
            stored = pa.concat_batches(found)
            records = stored.select(list(range(1, len(self._stored))))
            rows = self._asked(stored.column(0).to_numpy(), records)
            if rows is not None:
                self.add(rows)


def codes_of(key: BatchKey, records: pa.RecordBatch) -> tuple[Numbers, list[Any]]:
    """A code for each row, int64, shape (rows,), and the canonical key of each code; no key has two codes."""
    codes, keys = key.distinct(records)
    numbers: dict[Any, int] = dict.fromkeys(keys, 0)
    if len(numbers) == len(keys):
        return codes, list(keys)
    numbers = {key: number for number, key in enumerate(numbers)}
    return np.array([numbers[key] for key in keys], np.int64)[codes], list(numbers)


def groups_of(codes: Numbers) -> list[tuple[int, int, int]]:
    """(code, first row, row behind the last) of each group of equal codes: int64, shape (rows,), sorted."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1)).tolist()
    ends = [*starts[1:], len(codes)]
    return [(int(codes[start]), start, end) for start, end in zip(starts, ends, strict=False)]


def joined(waiting: Sequence[WaitingColumns]) -> WaitingColumns | None:
    """All rows as one batch; None if there are none."""
    if len(waiting) < 2:
        return waiting[0] if waiting else None
    return WaitingColumns.of(
        np.concatenate([rows.times for rows in waiting]),
        pa.concat_batches([rows.records for rows in waiting]),
        np.concatenate([rows.truths for rows in waiting]),
        np.concatenate([rows.marks for rows in waiting]),
    )
