"""ColumnarWindows: the common part of operators that aggregate record batches by key and window of event time.

Owner: the task thread. It checks batches, reads times and sends late rows away. It keeps the watermark and the types of
columns in state, which a restored subtask has to know before its first batch. No Python object is made of a row. Must
not know how windows are cut. See docs/design/0035-columnar-windows.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar.aggregate_columns import AggregateColumns, AggregationError
from yarrow.container.operators.columnar.late_batches import LateRows, lose_rows
from yarrow.container.operators.columnar.row_times import RowTimes, Times, TimeUse
from yarrow.container.operators.columnar.vectorized_index import Slots
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.columnar_window.batch_aggregation import BatchAggregation, WindowRows
from yarrow.container.operators.columnar_window.guarded_groups import GuardedGroups
from yarrow.container.operators.columnar_window.key_slots import KeySlots
from yarrow.container.operators.columnar_window.row_columns import RowColumns
from yarrow.container.operators.columnar_window.slice_states import SliceStates
from yarrow.container.operators.columnar_window.stored_columns import StoredColumns
from yarrow.container.operators.late_ledger import LateLedger
from yarrow.container.operators.stored_watermark import StoredWatermark
from yarrow.runtime.common.late_records import LateRemedy
from yarrow.runtime.data.elements import MIN_TIMESTAMP, ArrowBatch
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.graph.window_spec import ColumnarWindowSpec

if TYPE_CHECKING:
    # Most processes leave out no records.
    from yarrow.container.operators.failed_records import FailedRecords

#: Name of the state of columnar windows in snapshots.
STATE_NAME: Final = "_columnar_windows"
#: Names of the columns that bound the window of a result, in epoch ms.
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
#: Most rows of a result.
MOST_ROWS: Final = 64 * 1024
#: No windows.
NO_SLOTS: Final = np.zeros(0, np.int64)
#: Restored keys that become Python objects at once while a snapshot is written.
PIECE: Final = 10_000

_WINDOWS: Final = TimeUse(
    what="windows",
    needed="windows of event time need one",
    too_far="whose windows lie beyond 64 bits",
    before="the windows",
    remedy="Assign timestamps before key_by, or name the column of the times: window(..., time_column=...)",
)
Mask = npt.NDArray[np.bool_]
#: Entries of a snapshot: canonical keys, and plain data for each.
Pieces = Iterable[tuple[list[Any], list[Any]]]


class ColumnarWindows(ColumnarOperator):
    """Aggregates of record batches by key and window.

    Results have the key columns, the bounds of the window and a column for each aggregate. They bear the last time of
    their window. A batch has at most MOST_ROWS of them.
    """

    emits_batches = True
    mixes_keys = True

    def __init__(self, name: str, spec: ColumnarWindowSpec, reach_ms: int) -> None:
        """`reach_ms`: the bounds of a row's windows are at most so far away from the row."""
        super().__init__(name)
        #: The aggregate of the program, which gets whole rows; None = built-in ones.
        self._function: BatchAggregation | None = None
        self._is_open = False
        #: Puts the rows aside of windows at which the function fails; None = these fail the job.
        self._guard: GuardedGroups | None = None
        self._key_column = spec.key_column
        self._columns: AggregateColumns
        if spec.function is None:
            self._columns = AggregateColumns(name, spec.key_column, spec.aggregates, what="windows")
        else:
            self._rows = self._columns = RowColumns(name, spec.key_column)
            self._function = BatchAggregation(name, spec.function, spec.result_schema)
        self._times = RowTimes(name, spec.time_column, reach_ms, _WINDOWS)
        #: Side output of late rows.
        self._late_tag = spec.late_tag
        self._lateness = spec.allowed_lateness_ms
        self._ledger = LateLedger(name, LateRemedy.ALLOWED_LATENESS)
        #: Event time: MIN_TIMESTAMP before the first watermark.
        self.watermark = MIN_TIMESTAMP
        #: The keys; known when the types of columns are.
        self._keys: KeySlots | None = None
        self._schema: pa.Schema
        #: Restored canonical keys and their values, until the types of columns are known.
        self._restored: tuple[list[Any], list[Any]] = ([], [])
        #: A restored operator fires what its watermark had made due before it takes a row.
        self._owes = False

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        if self._function is not None:
            self._function.setup()
        self._stored_watermark = StoredWatermark(context)
        self.watermark = self._stored_watermark.restored
        self._stored_columns = StoredColumns(context, self._cut)
        context.state.register_section(STATE_NAME, self)
        known = self._stored_columns.restored
        if known is not None:
            if self._restored[0]:
                self._stored_columns.check(known, self._columns.names, self.name)
            if {*self._columns.names} <= {*known.names}:
                self._columns.check(known)
                self._begin()
        self._owes = self.event_timers_due
        self._ledger.register(context.environment.metrics, context.metric_group)

    def leave_out_by(self, failed: FailedRecords) -> None:
        # No row comes alone: the function gets windows.
        self._guard = GuardedGroups(self.name, failed, self._key_column)
        super().leave_out_by(failed)

    def open(self) -> None:
        if self._function is not None:
            self._is_open = True
            self._function.open(self.context)

    def close(self) -> None:
        if self._function is not None and self._is_open:
            self._is_open = False
            self._function.close()

    @property
    @abstractmethod
    def _cut(self) -> str:
        """How windows are cut, as far as state depends on it: a restore refuses another cut."""

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._stored_watermark.store(self.watermark)
        self._stored_columns.store(self._columns.types)

    def _begin(self) -> None:
        """Takes up what was restored, now that the types of columns are known."""
        types = self._columns.types
        key = self._columns.key
        keys = KeySlots([types[name] for name in key.names], tuples=key.is_tuple)
        fields = [pa.field(name, kind) for name, kind in zip(key.names, keys.types, strict=True)]
        fields += [pa.field(WINDOW_START, pa.int64()), pa.field(WINDOW_END, pa.int64())]
        self._schema = pa.schema([*fields, *self._result_fields])
        self._keys = keys
        restored, values = self._restored
        if restored:
            try:
                slots = keys.restore(restored)
            except ValueError as error:
                raise self._columns.misfit(error) from None
            self._restore([values[at] for at in np.argsort(slots).tolist()])
        self._restored = ([], [])

    @property
    def _result_fields(self) -> Iterable[pa.Field]:
        """The columns of results behind the bounds of windows."""
        if self._function is not None:
            return list(self._function.schema)
        states = self._columns.new_states()
        return [
            pa.field(aggregate.name, state.type)
            for aggregate, state in zip(self._columns.aggregates, states, strict=True)
        ]

    @abstractmethod
    def _restore(self, values: Sequence[dict[str, Any]]) -> None:
        """Takes the restored values of slots 0 and on."""

    # ------------------------------------------------------------------ rows

    def process_batch(self, batch: ArrowBatch) -> Iterator[ArrowBatch]:
        if not len(batch):
            return
        if self._owes:
            yield from self.fire_event_timers(inf)
        self._columns.refuse_changes(batch)
        self._columns.check(batch.batch.schema)
        if self._keys is None:
            self._begin()
            # What was restored without types had no chance to fire before.
            yield from self.fire_event_timers(inf)
        yield from self._take(batch, self._times.of(batch))

    @abstractmethod
    def _take(self, batch: ArrowBatch, times: Times) -> Iterator[ArrowBatch]:
        """Takes rows with their times (int64, shape (rows,)); gives late rows, and windows that fire for late rows."""

    @property
    def late_dropped(self) -> int:
        """Late rows, and rows of no window, that went nowhere."""
        return self._ledger.dropped

    def _lose(
        self, batch: ArrowBatch, times: Times, ends: Times, late: Mask, nowhere: Mask
    ) -> Iterator[ArrowBatch]:
        """Notes lost rows, and sends late ones to their side output, if there is one.

        Arrays have shape (rows,). `ends`, int64, are the last times of the last windows of rows, or their own times.
        Rows of no window that are not late are `nowhere`.
        """
        self._ledger.of_no_window(int(nowhere.sum()))
        rows = LateRows(times, ends, late, self.watermark)
        yield from lose_rows(self._ledger, self._late_tag, self._columns.key, batch, rows)

    def _slots_of(self, keys: Sequence[pa.Array]) -> Slots:
        """The slot of each row's key, int64, shape (rows,)."""
        assert self._keys is not None
        try:
            return self._keys.slots_of(keys)
        except ColumnKeyError as error:
            explained = self._columns.key.explain(keys, error)
            raise AggregationError(f"operator '{self.name}': {explained}") from error

    def _read_columns(self, records: pa.RecordBatch, times: Times) -> list[pa.Array | None]:
        """The column that each aggregate reads; `times` (int64) and columns have shape (rows,)."""
        if self._function is not None:
            return [self._rows.row_column(records, times)]
        return [self._columns.value_column(records, aggregate) for aggregate in self._columns.aggregates]

    def _new_states(self) -> SliceStates:
        return SliceStates(self._columns.new_states())

    def _result(
        self, slots: Slots, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], values: list[pa.Array]
    ) -> tuple[ArrowBatch | None, Slots]:
        """The results of keys; `slots`, bounds of windows (int64) and `values` have shape (windows,).

        Also returns the places of windows that have failed, whose rows have left by `on_error`: int64, shape (failed
        windows,). None = all have failed.
        """
        assert self._keys is not None
        failing = NO_SLOTS
        if self._function is not None:
            (kept,) = values
            rows = WindowRows.of(kept, self._rows.rows_schema, starts, ends)
            if self._guard is None:
                values = self._function.results(rows)
            else:
                values, failing = self._guard.results(self._function, rows)
                slots, starts, ends = (np.delete(each, failing) for each in (slots, starts, ends))
        if not len(slots):
            return None, failing
        columns = [*self._keys.columns_at(slots), pa.array(starts), pa.array(ends), *values]
        return ArrowBatch(
            pa.RecordBatch.from_arrays(columns, schema=self._schema), pa.array(ends - 1)
        ), failing

    # ------------------------------------------------------------------ time

    def on_watermark(self, timestamp: int) -> tuple[()]:
        # After a restore the inputs begin below the restored watermark.
        self.watermark = max(self.watermark, timestamp)
        return ()

    @abstractmethod
    def fire_event_timers(self, deadline: float) -> Iterator[ArrowBatch]:
        """Results of windows that the watermark has reached; see BatchEmitter."""

    # ------------------------------------------------------------------ snapshots (KeyedSection)

    #: A dict for each key; see the operators.
    value_type = None

    @property
    @abstractmethod
    def entry_count(self) -> int:
        """Number of keys with state."""

    def restore_entries(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Keeps entries until the types of columns are known."""
        keys, values = self._restored
        for key, value in entries:
            keys.append(key)
            values.append(value)

    def freeze_entries(self) -> Pieces:
        """The present keys and values."""
        if self._keys is None:
            keys, values = self._restored
            return ((keys[at : at + PIECE], values[at : at + PIECE]) for at in range(0, len(keys), PIECE))
        return self._frozen(self._keys)

    @abstractmethod
    def _frozen(self, keys: KeySlots) -> Pieces:
        """Keys and values as they are now; the snapshot thread iterates them."""
