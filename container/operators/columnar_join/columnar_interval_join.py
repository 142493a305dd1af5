"""ColumnarIntervalJoiningOperator: an interval join of record batches, without a Python object of a row.

Owner: the task thread. The keys of both sides share an index. A row is found by its word of slot and time; see
`row_words`. The meaning is that of the interval join of rows. See docs/design/0038-as-of-joins.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Final

import numpy as np
import pyarrow as pa

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import HistoryTime, OperatorContext
from yarrow.container.operators.columnar.kept_rows import kept_rows
from yarrow.container.operators.columnar.tuple_index import index_of_keys
from yarrow.container.operators.columnar.vectorized_index import KeyIndex, Slots
from yarrow.container.operators.columnar_join.joined_side import JoinedSide
from yarrow.container.operators.columnar_join.row_words import MOST_SLOTS, Numbers, RowWords
from yarrow.container.operators.columnar_join.sorted_runs import Flags, MeetingRows, SortedRun
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.join.time_buckets import SideBounds
from yarrow.container.operators.late_ledger import LateLedger, LateTime
from yarrow.container.operators.registry import runs
from yarrow.container.operators.stored_watermark import StoredWatermark
from yarrow.container.protocol.errors import TimestampError
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError
from yarrow.runtime.common.late_records import MOST_NAMED, LatePlace, LateRemedy
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, ArrowBatch, SideBatch
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.graph.join_spec import ColumnarIntervalJoinOperator

#: Names of the state of both sides, and of the schemas of their rows.
SIDES: Final = ("_join_left", "_join_right")
SCHEMAS: Final = "_join_schemas"
#: Slots below which keys without rows are not looked for.
_LEAST_SLOTS: Final = 4096


class ColumnarJoinError(YarrowError):
    """The join cannot take a record batch. The message names the operator, and what it expected."""


@runs(ColumnarIntervalJoinOperator)
class ColumnarIntervalJoiningOperator(ColumnarOperator):
    """Runs an interval join of record batches."""

    emits_batches = True
    mixes_keys = True

    def __init__(self, name: str, spec: ColumnarIntervalJoinOperator) -> None:
        super().__init__(name)
        self._spec = spec
        left = SideBounds(spec.lower_ms, spec.upper_ms)
        self._bounds = left, left.mirrored
        self._keeps = spec.kind.keeps_first, spec.kind.keeps_second
        kept = [bounds.delay for bounds, keeps in zip(self._bounds, self._keeps, strict=True) if keeps]
        #: Event time behind the join stays so long behind the watermark, since rows without a partner leave late.
        self._delay = max(kept, default=0)
        self._keys = tuple(BatchKey(columns) for columns in spec.key_columns)
        self._schemas = tuple(pa.ipc.read_schema(pa.py_buffer(schema)) for schema in spec.schemas)
        self._result = pa.ipc.read_schema(pa.py_buffer(spec.schema))
        self._key_types = [self._schemas[0].field(key).type for key in self._keys[0].names]
        self._index: KeyIndex = self._new_index()
        self._ordering: RowWords | None = None
        self._watermark = MIN_TIMESTAMP
        self._most_slots = _LEAST_SLOTS
        self._ledger = LateLedger(name, LateRemedy.MORE_DISORDER)

    def _new_index(self) -> KeyIndex:
        return index_of_keys(self._key_types, tuples=self._keys[0].is_tuple)

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._sides = tuple(JoinedSide(schema, self._present_index) for schema in self._schemas)
        self._require_same_schemas(context)
        for name, side in zip(SIDES, self._sides, strict=True):
            context.state.register_section(name, side)
        self._take_restored()
        self._stored_watermark = StoredWatermark(context)
        self._watermark = self._stored_watermark.restored
        self._ledger.register(context.environment.metrics, context.metric_group)
        for name, side in zip(("left", "right"), self._sides, strict=True):
            rows = side.rows
            context.metric_group.register(f"{name}StateEntries", lambda r=rows: r.size)  # type: ignore[misc]
            context.metric_group.register(f"{name}StateBytes", lambda r=rows: r.bytes)  # type: ignore[misc]
            context.metric_group.register(f"{name}StateOldestRow", lambda r=rows: r.oldest)  # type: ignore[misc]

    def _present_index(self) -> tuple[KeyIndex, RowWords]:
        assert self._ordering is not None, "there are rows"
        return self._index, self._ordering

    def _require_same_schemas(self, context: OperatorContext) -> None:
        descriptor: ListStateDescriptor[Any] = ListStateDescriptor(SCHEMAS, Types.PICKLED_BYTE_ARRAY())
        state = context.operator_state.union_list_state(descriptor)
        for schemas in state.get():
            for number, (was, now) in enumerate(zip(schemas, self._schemas, strict=True)):
                former = pa.ipc.read_schema(pa.py_buffer(was))
                if not former.equals(now):
                    raise InvalidProgramError(
                        f"operator '{self.name}': the restored rows of the {('first', 'second')[number]} stream have"
                        f" the columns {_shown(former)}, and the program has {_shown(now)}. Keep the schema, or give"
                        " the operator another uid to start with empty state"
                    )
        state.update([tuple(self._spec.schemas)])

    def _take_restored(self) -> None:
        found = [side.restored_rows() for side in self._sides]
        batches = [batch for _, rows in found for batch in rows]
        if not batches:
            return
        self._ordering = RowWords.around(batches[0].column(0)[0].as_py())
        slot_of: dict[Any, int] = {key: 0 for keys, _ in found for key in keys}
        slots = self._index.restore(list(slot_of)).tolist()
        slot_of = dict(zip(slot_of, slots, strict=True))
        for side, (keys, rows) in zip(self._sides, found, strict=True):
            of_keys = np.array([slot_of[key] for key in keys], np.int64)
            side.add_restored(self._ordering, of_keys, rows)

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._stored_watermark.store(self._watermark)

    # ------------------------------------------------------------------ rows

    def process_input(self, index: int, batch: ArrowBatch) -> Iterator[ArrowBatch]:
        """Joins the rows of a batch with those that came before them, and keeps them."""
        times = self._times_of(index, batch)
        late = times < self._watermark
        records = batch.batch
        if late.any():
            yield from self._lose(index, batch, times, late)
            records, times = records.filter(pa.array(~late)), times[~late]
        if not records.num_rows:
            return
        if self._ordering is None:
            self._ordering = RowWords.around(int(times[0]))
        ordering = self._ordering
        outside = ordering.outside(times)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise self._failure(
                records, at, f"its time {times[at]} is more than 69 years away from that of the first record"
            )
        slots = self._slots_of(index, records)
        bounds, other = self._bounds[index], self._sides[1 - index]
        met = np.zeros(len(times), np.bool_)
        first = ordering.shifted(slots, times, bounds.lower)
        last = ordering.shifted(slots, times, bounds.upper)
        for pairs in other.rows.meeting(first, last):
            met[pairs.own] = True
            pairs.run.met[pairs.other] = True
            yield self._joined(index, records, times, pairs)
        self._sides[index].rows.add(ordering, ordering.words(slots, times), records, met)

    @property
    def late_dropped(self) -> int:
        """Late rows that went nowhere."""
        return self._ledger.dropped

    def _lose(self, index: int, batch: ArrowBatch, times: Numbers, late: Flags) -> Iterator[ArrowBatch]:
        """Notes the late rows of a batch, and sends them to the side output of their side, if there is one."""
        tag, key, records = self._spec.late_tags[index], self._keys[index], batch.batch
        places = np.flatnonzero(late)
        delays, counts = np.unique(self._watermark - times[places], return_counts=True)
        self._ledger.late_together(
            LatePlace.DROPPED if tag is None else LatePlace.SIDE_OUTPUT,
            dict(zip(delays.tolist(), counts.tolist(), strict=True)),
        )
        named = []
        for at in places[-MOST_NAMED:].tolist():
            values = tuple(records.column(name)[at].as_py() for name in key.names)
            time = int(times[at])
            named.append(
                (
                    values if key.is_tuple else values[0],
                    LateTime(time, self._watermark, self._watermark - time),
                )
            )
        self._ledger.name_last(named)
        if tag is not None:
            for lost in kept_rows(batch, pa.array(late)):
                yield SideBatch(tag, lost)

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
                f" {_shown(records.schema)}, and its schema says {_shown(schema)}"
            )
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
        if self._index.size > MOST_SLOTS:
            raise ColumnarJoinError(
                f"operator '{self.name}': a subtask of a join of columns keeps {MOST_SLOTS} keys at most. Set a higher"
                " parallelism"
            )
        return slots

    def _joined(self, index: int, records: pa.RecordBatch, times: Numbers, pairs: MeetingRows) -> ArrowBatch:
        assert self._ordering is not None, "there are rows"
        own = records.take(pa.array(pairs.own)).columns
        other = pairs.run.rows.take(pa.array(pairs.other)).columns
        stamps = np.maximum(times[pairs.own], self._ordering.times(pairs.run.words[pairs.other]))
        columns = [*other, *own] if index else [*own, *other]
        return ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self._result), pa.array(stamps))

    def _failure(self, records: pa.RecordBatch, at: int, problem: str) -> OperatorFailure:
        record = short_record(records.slice(at, 1).to_pylist()[0])
        return OperatorFailure(
            self.name, record, TimestampError(f"operator '{self.name}': a record cannot be joined: {problem}")
        )

    # ------------------------------------------------------------------ time

    def on_watermark(self, timestamp: int) -> Sequence[ArrowBatch]:
        # After a restore the inputs begin below the restored watermark.
        self._watermark = max(self._watermark, timestamp)
        return ()

    def forwarded_watermark(self, timestamp: int) -> int | None:
        if timestamp == MAX_TIMESTAMP or not self._delay:
            return timestamp
        return timestamp - self._delay if timestamp - self._delay > MIN_TIMESTAMP else None

    def end_history(self, before: HistoryTime) -> HistoryTime:
        watermark = before.watermark
        return HistoryTime(
            None if watermark is None else max(watermark - self._delay, MIN_TIMESTAMP),
            before.lag + self._delay,
        )

    def _over(self, index: int) -> int | None:
        """The last time whose rows of a side are removed: the end of a bucket; None = there is none."""
        bounds = self._bounds[index]
        position = bounds.last_position(self._watermark)
        if position is None or position == MAX_TIMESTAMP:
            return position
        return (position + 1) // bounds.bucket_length * bounds.bucket_length - 1

    @property
    def event_timers_due(self) -> bool:
        """True while rows are left that meet no row any more."""
        return any(
            run.first_time <= over
            for index, side in enumerate(self._sides)
            if (over := self._over(index)) is not None
            for run in side.rows.runs
        )

    def fire_event_timers(self, deadline: float) -> Iterator[ArrowBatch]:
        """Removes rows that meet no row any more, a run at a time; emits those without a partner that a join keeps."""
        for index, side in enumerate(self._sides):
            over = self._over(index)
            if over is None:
                continue
            for run in [run for run in side.rows.runs if run.first_time <= over]:
                yield from self._without(index, side, run, over)
                if perf_counter() >= deadline:
                    return
        self._use_slots_again()

    def _without(self, index: int, side: JoinedSide, run: SortedRun, over: int) -> Iterator[ArrowBatch]:
        """Removes the rows of a run up to a time."""
        assert self._ordering is not None, "there are rows"
        ordering = self._ordering
        gone: Flags = ordering.times(run.words) <= over
        kept = run.chosen(ordering, ~gone)
        at = next(at for at, each in enumerate(side.rows.runs) if each is run)
        side.rows.runs[at : at + 1] = [] if kept is None else [kept]
        if not self._keeps[index]:
            return
        alone = run.chosen(ordering, gone & ~run.met)
        if alone is not None:
            missing = self._schemas[1 - index]
            nulls = [pa.nulls(len(alone.words), field.type) for field in missing]
            columns = [*nulls, *alone.rows.columns] if index else [*alone.rows.columns, *nulls]
            stamps = pa.array(ordering.times(alone.words))
            yield ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self._result), stamps)

    def _use_slots_again(self) -> None:
        """Numbers the keys anew when most of them have no row any more."""
        if self._index.size <= self._most_slots:
            return
        words = [run.words for side in self._sides for run in side.rows.runs]
        live = np.unique(RowWords.slots(np.concatenate(words))) if words else np.zeros(0, np.int64)
        self._most_slots = max(_LEAST_SLOTS, 2 * len(live))
        if 2 * len(live) > self._index.size:
            self._most_slots = 2 * self._index.size
            return
        keys = self._index.frozen_keys()(0, self._index.size)
        place = np.zeros(self._index.size, np.int64)
        self._index = self._new_index()
        if len(live):
            place[live] = self._index.restore([keys[slot] for slot in live.tolist()])
        assert self._ordering is not None, "there were rows"
        ordering = self._ordering
        for side in self._sides:
            side.rows.runs = [
                SortedRun.of(
                    ordering,
                    ordering.words(place[ordering.slots(run.words)], ordering.times(run.words)),
                    run.rows,
                    run.met,
                )
                for run in side.rows.runs
            ]

    def end_keys(self) -> Iterator[ArrowBatch]:
        self._watermark = MAX_TIMESTAMP
        yield from self.fire_event_timers(inf)
        self._watermark = MIN_TIMESTAMP
        self._index = self._new_index()


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
