"""ColumnarJoiningOperator: the base of joins of record batches by key and time, without a Python object of a row.

Owner: the task thread. It has what all of them share: keys, columns, late rows, rows and event time as state. The keys
of both sides share an index. A row is found by its word of slot and time; see `row_words`. It must not know which rows
meet. See docs/design/0038-as-of-joins.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar.late_batches import LateRows, lose_rows
from yarrow.container.operators.columnar.tuple_index import index_of_keys
from yarrow.container.operators.columnar.vectorized_index import KeyIndex, Slots
from yarrow.container.operators.columnar_join.joined_side import JoinedSide
from yarrow.container.operators.columnar_join.row_words import MOST_SLOTS, Numbers, RowWords
from yarrow.container.operators.columnar_join.sorted_runs import MOST_PAIRS, SortedRun
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.held_back_time import HeldBackTimeOperator
from yarrow.container.operators.join.growth_warning import GrowthWarning
from yarrow.container.operators.late_ledger import LateLedger
from yarrow.container.operators.stored_watermark import StoredWatermark
from yarrow.container.protocol.errors import TimestampError
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.columns.schema_text import shown_columns
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError
from yarrow.runtime.common.late_records import LateRemedy
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.column_rows import rows_where
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, ArrowBatch
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.graph.join_spec import ColumnarJoinOperator

LEFT: Final = 0
RIGHT: Final = 1
#: Names of the state of both sides, and of the schemas of their rows.
SIDES: Final = ("_join_left", "_join_right")
SCHEMAS: Final = "_join_schemas"
#: Slots below which keys without rows are not looked for.
LEAST_SLOTS: Final = 4096


class ColumnarJoinError(YarrowError):
    """The join cannot take a record batch. The message names the operator, and what it expected."""


class ColumnarJoiningOperator(HeldBackTimeOperator, ColumnarOperator):
    """Base of the joins of record batches."""

    emits_batches = True
    has_upkeep = True
    mixes_keys = True
    #: What the join notes of each row of both sides, as it is stored.
    marks: ClassVar[tuple[pa.Field, pa.Field]]

    def __init__(self, name: str, spec: ColumnarJoinOperator) -> None:
        super().__init__(name)
        self._joined = spec
        self._keys = tuple(BatchKey(columns) for columns in spec.key_columns)
        self._schemas = tuple(pa.ipc.read_schema(pa.py_buffer(schema)) for schema in spec.schemas)
        self._result = pa.ipc.read_schema(pa.py_buffer(spec.schema))
        self._key_types = [self._schemas[LEFT].field(key).type for key in self._keys[LEFT].names]
        self._index: KeyIndex = self._new_index()
        self._ordering: RowWords | None = None
        self.watermark = MIN_TIMESTAMP
        self._most_slots = LEAST_SLOTS
        self._ledger = LateLedger(name, LateRemedy.MORE_DISORDER)

    def _new_index(self) -> KeyIndex:
        return index_of_keys(self._key_types, tuples=self._keys[LEFT].is_tuple)

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self.sides = tuple(
            JoinedSide(schema, mark, self._present_index)
            for schema, mark in zip(self._schemas, self.marks, strict=True)
        )
        self._require_same_schemas(context)
        for name, side in zip(SIDES, self.sides, strict=True):
            context.state.register_section(name, side)
        self._take_restored()
        self._stored_watermark = StoredWatermark(context)
        self.watermark = self._stored_watermark.restored
        self._ledger.register(context.environment.metrics, context.metric_group)
        self._growth = GrowthWarning(context)
        for name, side in zip(("left", "right"), self.sides, strict=True):
            rows = side.rows
            context.metric_group.register(f"{name}StateEntries", lambda r=rows: r.size)  # type: ignore[misc]
            context.metric_group.register(f"{name}StateBytes", lambda r=rows: r.bytes)  # type: ignore[misc]
            context.metric_group.register(f"{name}StateOldestRow", lambda r=rows: r.oldest)  # type: ignore[misc]

    @property
    def ordering(self) -> RowWords:
        """The words of rows; there is one at least."""
        assert self._ordering is not None, "there are rows"
        return self._ordering

    def _present_index(self) -> tuple[KeyIndex, RowWords]:
        return self._index, self.ordering

    def _require_same_schemas(self, context: OperatorContext) -> None:
        descriptor: ListStateDescriptor[Any] = ListStateDescriptor(SCHEMAS, Types.PICKLED_BYTE_ARRAY())
        state = context.operator_state.union_list_state(descriptor)
        for schemas in state.get():
            for number, (was, now) in enumerate(zip(schemas, self._schemas, strict=True)):
                former = pa.ipc.read_schema(pa.py_buffer(was))
                if not former.equals(now):
                    raise InvalidProgramError(
                        f"operator '{self.name}': the restored rows of the {('first', 'second')[number]} stream have"
                        f" the columns {shown_columns(former)}, and the program has {shown_columns(now)}. Keep the"
                        " schema, or give the operator another uid to start with empty state"
                    )
        state.update([tuple(self._joined.schemas)])

    def _take_restored(self) -> None:
        found = [side.restored_rows() for side in self.sides]
        batches = [batch for _, rows in found for batch in rows]
        if not batches:
            return
        self._ordering = self._ordering_of(batches)
        slot_of: dict[Any, int] = {key: 0 for keys, _ in found for key in keys}
        slots = self._index.restore(list(slot_of)).tolist()
        self._require_slots()
        slot_of = dict(zip(slot_of, slots, strict=True))
        for side, (keys, rows) in zip(self.sides, found, strict=True):
            of_keys = np.array([slot_of[key] for key in keys], np.int64)
            side.add_restored(self._ordering, of_keys, rows)

    def _ordering_of(self, batches: Sequence[pa.RecordBatch]) -> RowWords:
        """Words for the times of all restored rows, which may have come from several subtasks."""
        times = pa.chunked_array([batch.column(0) for batch in batches])
        first, last = (each.as_py() for each in pc.min_max(times).values())
        ordering = RowWords.around((first + last + 1) // 2)
        if ordering.outside(np.array([first, last])).any():
            raise ColumnarJoinError(
                f"operator '{self.name}': the restored rows of a subtask lie between the times {first} and {last}, and"
                " that is more than 139 years. Set the parallelism that the savepoint was taken with"
            )
        return ordering

    def finish(self) -> None:
        super().finish()
        self._growth.end()

    def seconds_until_upkeep(self) -> float | None:
        return self._growth.seconds_until_look()

    def upkeep(self) -> None:
        left, right = (side.rows.size for side in self.sides)
        self._growth.look(self.watermark, self.time_holder(), left, right)

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._stored_watermark.store(self.watermark)

    # ------------------------------------------------------------------ rows

    def process_input(self, index: int, batch: ArrowBatch) -> Iterator[ArrowBatch]:
        """Takes the rows of a batch that are not late."""
        times = self._times_of(index, batch)
        late_from = self.late_from(times)
        late = late_from <= self.watermark
        records = batch.batch
        if late.any():
            rows = LateRows(times, late_from, late, self.watermark)
            yield from lose_rows(self._ledger, self._joined.late_tags[index], self._keys[index], batch, rows)
            records, times = rows_where(records, pa.array(~late)), times[~late]
        if not records.num_rows:
            return
        if self._ordering is None:
            self._ordering = RowWords.around(int(times[0]))
        outside = self._ordering.outside(times)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            middle = self._ordering.middle
            raise self._failure(
                records,
                at,
                f"its time {times[at]} is more than 69 years away from {middle}, around which the join takes times",
            )
        yield from self.take(index, records, times, self._slots_of(index, records))

    @abstractmethod
    def late_from(self, times: Numbers) -> Numbers:
        """The least watermark at which a row of each time is late: int64, shape (rows,) both."""

    @abstractmethod
    def take(self, index: int, records: pa.RecordBatch, times: Numbers, slots: Slots) -> Iterable[ArrowBatch]:
        """Takes rows of a side with their times and the slots of their keys: int64, shape (rows,) each."""

    @property
    def late_dropped(self) -> int:
        """Late rows that went nowhere."""
        return self._ledger.dropped

    def _times_of(self, index: int, batch: ArrowBatch) -> Numbers:
        """The times of the rows of a batch with the declared columns: int64, shape (rows,)."""
        records, stamps = batch.batch, batch.timestamps
        if batch.kinds is not None and any(batch.kinds):
            raise ColumnarJoinError(
                f"operator '{self.name}': a join of columns takes new rows only, and this batch holds updates or"
                " deletions. Join before the operator that emits them"
            )
        schema = self._schemas[index]
        if not records.schema.equals(schema):
            raise ColumnarJoinError(
                f"operator '{self.name}': a batch of the {('first', 'second')[index]} stream has the columns"
                f" {shown_columns(records.schema)}, and its schema says {shown_columns(schema)}"
            )
        if not records.num_rows:
            return np.zeros(0, np.int64)
        if stamps is None or stamps.null_count:
            at = 0 if stamps is None else int(np.flatnonzero(stamps.is_null())[0])
            raise self._failure(
                records, at, "it has no timestamp: call assign_timestamps_and_watermarks before the join"
            )
        times: Numbers = stamps.to_numpy()
        return times

    def _slots_of(self, index: int, records: pa.RecordBatch) -> Slots:
        key = self._keys[index]
        columns = [records.column(name) for name in key.names]
        try:
            slots = self._index.slots_of(columns)
        except ColumnKeyError as error:
            raise ColumnarJoinError(f"operator '{self.name}': {key.explain(columns, error)}") from error
        self._require_slots()
        return slots

    def _require_slots(self) -> None:
        if self._index.size > MOST_SLOTS:
            raise ColumnarJoinError(
                f"operator '{self.name}': a subtask of a join of columns keeps {MOST_SLOTS} keys at most. Set a higher"
                " parallelism"
            )

    def _failure(self, records: pa.RecordBatch, at: int, problem: str) -> OperatorFailure:
        record = short_record(records.slice(at, 1).to_pylist()[0])
        return OperatorFailure(
            self.name, record, TimestampError(f"operator '{self.name}': a record cannot be joined: {problem}")
        )

    # ------------------------------------------------------------------ results

    def pairs(self, index: int, own: pa.RecordBatch, other: pa.RecordBatch, stamps: Numbers) -> ArrowBatch:
        """Rows of a side beside those of the other one, with the times of the results (int64, shape (rows,))."""
        columns = [*other.columns, *own.columns] if index else [*own.columns, *other.columns]
        return ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self._result), pa.array(stamps))

    def alone(self, index: int, rows: pa.RecordBatch, stamps: Numbers) -> Iterator[ArrowBatch]:
        """Rows that meet none beside nulls, with the times of the results (int64, shape (rows,))."""
        schema = self._schemas[1 - index]
        for start in range(0, rows.num_rows, MOST_PAIRS):
            own = rows.slice(start, MOST_PAIRS)
            nulls = [pa.nulls(own.num_rows, field.type) for field in schema]
            other = pa.RecordBatch.from_arrays(nulls, schema=schema)
            yield self.pairs(index, own, other, stamps[start : start + MOST_PAIRS])

    # ------------------------------------------------------------------ time

    def on_watermark(self, timestamp: int) -> Sequence[ArrowBatch]:
        # After a restore the inputs begin below the restored watermark.
        self.watermark = max(self.watermark, timestamp)
        return ()

    @abstractmethod
    def fire_event_timers(self, deadline: float) -> Iterator[ArrowBatch]:
        """Emits what is due at the watermark, and removes rows that meet no row any more; all of them at its end."""

    def use_slots_again(self) -> None:
        """Numbers the keys anew when most of them have no row any more."""
        if self._index.size <= self._most_slots:
            return
        words = [run.words for side in self.sides for run in side.rows.runs]
        live = np.unique(RowWords.slots(np.concatenate(words))) if words else np.zeros(0, np.int64)
        self._most_slots = max(LEAST_SLOTS, 2 * len(live))
        if 2 * len(live) > self._index.size:
            self._most_slots = 2 * self._index.size
            return
        keys = self._index.frozen_keys()(0, self._index.size)
        place = np.zeros(self._index.size, np.int64)
        self._index = self._new_index()
        if len(live):
            place[live] = self._index.restore([keys[slot] for slot in live.tolist()])
        ordering = self.ordering
        for side in self.sides:
            side.rows.runs = [
                SortedRun.of(
                    ordering,
                    ordering.words(place[ordering.slots(run.words)], ordering.times(run.words)),
                    run.rows,
                    run.marks,
                )
                for run in side.rows.runs
            ]

    def end_keys(self) -> Iterator[ArrowBatch]:
        self.watermark = MAX_TIMESTAMP
        yield from self.fire_event_timers(inf)
        self.watermark = MIN_TIMESTAMP
        self._index = self._new_index()
