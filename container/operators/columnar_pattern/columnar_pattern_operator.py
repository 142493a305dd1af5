"""ColumnarPatternMatchingOperator: looks for a pattern in record batches; only rows that may matter become objects.

Owner: the task thread. Conditions over columns are computed once a batch, when it comes. Batches wait until the
watermark has passed their rows. Then the rows that may matter go through the matcher of patterns, key by key. See
docs/design/0044-patterns-of-columns.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from math import inf
from typing import Any, Final

import numpy as np
import pyarrow as pa

from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern_matcher import PatternResult
from yarrow.cep.plain_sequences import why_no_plain_sequence
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.container.codegen.code_writer import CompiledCode
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.cep.match_calls import is_tagged
from yarrow.container.operators.cep.matching_code import moves_alone
from yarrow.container.operators.cep.matching_operator import MatchingOperator
from yarrow.container.operators.cep.matching_state import KeptMatches
from yarrow.container.operators.cep.ordered_matching import OrderedMatching
from yarrow.container.operators.columnar.conversions import ArrowToRowsConverter
from yarrow.container.operators.columnar.late_batches import LateRows, lose_rows
from yarrow.container.operators.columnar.row_times import RowTimes, TimeUse
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.columnar_pattern.column_conditions import ColumnConditions, Truths
from yarrow.container.operators.columnar_pattern.due_rows import (
    MOST_CONDITIONS,
    DueRows,
    Live,
    RowsWithResults,
)
from yarrow.container.operators.columnar_pattern.held_rows import HeldRows, can_be_held
from yarrow.container.operators.columnar_pattern.leaving_rows import KeySpan, LeavingByKey, LeavingRows
from yarrow.container.operators.columnar_pattern.pending_batches import (
    PENDING_BATCHES,
    Numbers,
    PendingBatches,
    WaitingColumns,
    codes_of,
)
from yarrow.container.operators.columnar_pattern.relevant_rows import RelevantRows
from yarrow.container.operators.columnar_pattern.sequence_matching import (
    SequenceMatching,
    rows_of_partial_matches,
)
from yarrow.container.operators.registry import runs
from yarrow.container.protocol.failure import short_record
from yarrow.container.state.heap_keyed_state import NO_KEY
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.columns.schema_text import shown_columns
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.column_rows import rows_of_batch, rows_where
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, ArrowBatch
from yarrow.runtime.data.immutability import copy_flat_row
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.graph.column_spec import ArrowToRowsOperator
from yarrow.runtime.graph.pattern_spec import ColumnarPatternOperator

#: Rows that are looked at in one slice for those that are held, at 2 to 4 us each.
_MOST_AT_ONCE: Final = 16_384
#: Name of the operator state with the schema of the rows.
COLUMNS: Final = "_pattern_columns"
_PATTERNS: Final = TimeUse(
    what="rows",
    needed="a pattern takes rows in order of time",
    too_far="which is no event time",
    before="CEP.pattern",
    remedy="Call assign_timestamps_and_watermarks before key_by",
)


class ColumnarPatternError(YarrowError):
    """A pattern cannot take a record batch. The message names the operator, and what it expected."""


@runs(ColumnarPatternOperator)
class ColumnarPatternMatchingOperator(MatchingOperator, ColumnarOperator):
    """Runs a pattern over record batches by key columns."""

    stamps_rows = True
    mixes_keys = True
    #: Timers are those of partial matches alone, and rows wait without one: nothing may fire them key by key.
    timer_service = None

    def __init__(self, name: str, spec: ColumnarPatternOperator) -> None:
        super().__init__(name, spec)
        self._schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(spec.schema))
        self._stored_schema = spec.schema
        self._key = BatchKey(spec.key_column)
        self._late_tag = spec.late_tag
        self._times = RowTimes(name, None, 0, _PATTERNS)
        self._converter = ArrowToRowsConverter(name, ArrowToRowsOperator(as_tuple=False))
        #: Canonical keys with partial matches; the loop over rows in order of time keeps no set of them.
        self._live: set[Any] | Live = set()
        #: Rows that the watermark has passed, in order of time, with the time that has passed behind them.
        self._due: deque[tuple[WaitingColumns, int]] = deque()
        #: The rows that leave in several slices.
        self._leaving: LeavingRows | None = None
        #: Runs rows in order of time; None = key by key.
        self._ordered: OrderedMatching | None = None
        #: The time that has passed behind the rows that run in order of time.
        self._until = MIN_TIMESTAMP
        #: None = partial matches can be seen, or need more than columns.
        self._held: HeldRows | None = None
        #: Runs all rows in its own way; None = the pattern is no plain sequence.
        self._sequence: SequenceMatching | None = None

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._require_same_columns(context)
        self._set_up_matching(context, None)
        if self._fix is not None and all(map(_is_flat, self._schema.types)):
            self._fix = copy_flat_row
        self._conditions = ColumnConditions(self._pattern)
        self._relevant = RelevantRows(self._matcher.table, self._conditions.conditions)
        self._sequence = self._sequence_matching()
        self._held = None if self._sequence is not None else self._held_rows()
        held = self._held if self._sequence is None else self._sequence
        self._pending = PendingBatches(self._schema, self._key, self._asked, held)
        context.state.register_section(PENDING_BATCHES, self._pending)
        live = Live(self._matches.table)
        self._rows = DueRows(self._key, live, self._rows_of)
        if self._sequence is not None:
            self._take_partial_matches()
            return
        few = len(self._conditions.conditions) <= MOST_CONDITIONS
        # Behind strict steps few rows become objects: only the matcher knows which.
        # Asked in front: OrderedMatching changes the timers.
        in_order = few and moves_alone(self._matcher.moves_by_one_test)
        if in_order and not self._relevant.all_go_on and not self._matches.any_complete():
            self._ordered = OrderedMatching(
                self._matcher, self._matches, self._rows, self._queue, self._row_failure
            )
            self._live = live
            return
        self._live = set(self._matches.all_keys())

    def open(self) -> None:
        super().open()
        self.compile_own_loop()

    def compile_own_loop(self) -> CompiledCode | None:
        if self._ordered is None:
            return None
        form = RowsWithResults(self._conditions.conditions)
        return self._ordered.compile(form, inlines=self.computes_conditions)

    def close(self) -> None:
        if self._ordered is not None:
            self._ordered.close()
        super().close()

    def _sequence_matching(self) -> SequenceMatching | None:
        """What runs a plain sequence of steps. Restored matches that wait for others need the table of states."""
        most = self._matching.max_partial_matches
        if why_no_plain_sequence(self._pattern, most) or self._matches.any_complete():
            return None
        if self._fix is copy_flat_row:
            # Each match gets objects of its own.
            self._fix = None
        return SequenceMatching(
            self._key,
            self._pattern.steps,
            self._conditions.conditions,
            self._pattern.within_ms,
            self._rows_of,
            gives_timed_out=self._on_timeout is not None,
        )

    def _take_partial_matches(self) -> None:
        """Lets the rows of restored partial matches wait: run again, they make the same partial matches."""
        found = [(key, self._matches.at(key)[1]) for key in list(self._matches.all_keys())]
        for key, _ in found:
            self._matches.remove(key)
        self._timers.event_timers.clear()
        rows = rows_of_partial_matches([each for _, each in found if each is not None], self._schema)
        if rows is not None:
            asked = self._asked(*rows)
            if asked is not None:
                self._pending.put_back(asked)

    def _held_rows(self) -> HeldRows | None:
        """Where rows stay as columns while their key cannot match, if nobody can see the difference."""
        table = self._matcher.table
        seen = self._on_timeout is not None or self._matching.max_partial_matches is not None
        # Behind a strict step all rows of a key would have to stay.
        if seen or self._relevant.all_go_on or not can_be_held(table):
            return None
        states = self._relevant.possible_states()
        if states is None:
            return None
        assert table.within_ms is not None
        return HeldRows(self._key, table.within_ms, states)

    def _require_same_columns(self, context: OperatorContext) -> None:
        """Raises InvalidProgramError if restored rows have other columns."""
        descriptor: ListStateDescriptor[Any] = ListStateDescriptor(COLUMNS, Types.PICKLED_BYTE_ARRAY())
        state = context.operator_state.union_list_state(descriptor)
        for stored in state.get():
            former = pa.ipc.read_schema(pa.py_buffer(stored))
            if not former.equals(self._schema):
                raise InvalidProgramError(
                    f"operator '{self.name}': the restored rows have the columns {shown_columns(former)}, and the"
                    f" program has {shown_columns(self._schema)}. Keep the schema, or give the operator another uid to"
                    " begin anew"
                )
        state.update([self._stored_schema])

    # ------------------------------------------------------------------ rows

    def process_batch(self, batch: ArrowBatch) -> Iterator[ArrowBatch]:
        """Keeps the rows that may matter until the watermark has passed them; gives late rows back."""
        if not len(batch):
            return
        self._require_columns(batch)
        times, watermark = self._times.of(batch), self._timers.watermark
        late = times <= watermark
        records = batch.batch
        if late.any():
            yield from lose_rows(
                self._ledger, self._late_tag, self._key, batch, LateRows(times, times, late, watermark)
            )
            records, times = rows_where(records, pa.array(~late)), times[~late]
        times, records, truths = self._with_results(times, records)
        if not records.num_rows:
            return
        matters = self._relevant.that_matter(truths)
        if not matters.all():
            places = np.flatnonzero(matters)
            if not len(places):
                return
            records, times, truths = rows_of_batch(records, pa.array(places)), times[places], truths[places]
        self._pending.add(WaitingColumns.of(times, records, truths, self._relevant.of(truths)))

    def _with_results(
        self, times: Numbers, records: pa.RecordBatch
    ) -> tuple[Numbers, pa.RecordBatch, Truths]:
        """Rows with their times (int64, shape (rows,)) and the results of their conditions."""
        return times, records, self._conditions.truths(records)

    def _asked(self, times: Numbers, records: pa.RecordBatch) -> WaitingColumns | None:
        """Rows that may wait; None if there are none."""
        times, records, truths = self._with_results(times, records)
        return WaitingColumns.of(times, records, truths, self._relevant.of(truths)) if len(times) else None

    def _require_columns(self, batch: ArrowBatch) -> None:
        if batch.kinds is not None and any(batch.kinds):
            raise ColumnarPatternError(
                f"operator '{self.name}': a pattern of columns takes new rows only, and this batch holds updates or"
                " deletions. Look for the pattern before the operator that emits them"
            )
        if not batch.batch.schema.equals(self._schema):
            raise ColumnarPatternError(
                f"operator '{self.name}': a batch has the columns {shown_columns(batch.batch.schema)}, and the schema"
                f" of its stream says {shown_columns(self._schema)}"
            )

    # ------------------------------------------------------------------ matching

    def _wanted(
        self, leaving: LeavingRows, span: KeySpan, matches: PartialMatches
    ) -> Iterator[tuple[int, Row]]:
        """The rows of a span which may begin a match, or come while there is a partial one."""
        look_at = self._conditions.look_at
        for place in range(span.start, span.end):
            if matches.runs or leaving.begins[place]:
                row = leaving.object_at(place, span.end)
                look_at(leaving.truths[place])
                yield leaving.times[place], row

    def _keep_matches(self, place: KeptMatches, matches: PartialMatches) -> None:
        super()._keep_matches(place, matches)
        assert isinstance(self._live, set)
        if matches.is_empty:
            self._live.discard(place[0])
        else:
            self._live.add(place[0])

    def _run_due(self, key: Any, time: int) -> list[PatternResult]:
        return self._run(key, lambda _: (), time, None)

    def _emit_each(self, found: Iterable[tuple[Any, PatternResult]]) -> Iterator[tuple[Any, int | None]]:
        results = super()._emit_each(found)
        return results if self._late_tag is None else self._without_late_tag(results)

    def _without_late_tag(
        self, results: Iterable[tuple[Any, int | None]]
    ) -> Iterator[tuple[Any, int | None]]:
        for result, time in results:
            if is_tagged(result) and result[0].tag_id == self._late_tag:
                raise InvalidProgramError(
                    f"operator '{self.name}': {short_record(result[1])} goes to the side output '{self._late_tag}',"
                    " which takes batches of late rows. Give the results of the function another OutputTag"
                )
            yield result, time

    # ------------------------------------------------------------------ time

    @property
    def event_timers_due(self) -> bool:
        """True while rows wait that the watermark has passed, or partial matches whose time has passed."""
        watermark = self._timers.watermark
        times = [self._pending.first_time, self._timers.event_timers.next_timestamp]
        if self._held is not None:
            times.append(self._held.first_end)
        if self._sequence is not None and self._sequence.is_due(watermark):
            return True
        under_way = self._leaving is not None or bool(self._due) or self._rows.first_time is not None
        return under_way or any(time is not None and time <= watermark for time in times)

    def fire_event_timers(self, deadline: float) -> Iterator[tuple[Any, int | None]]:
        """Runs the pattern over the rows that the watermark has passed, then ends partial matches in time."""
        watermark = self._timers.watermark
        if self._sequence is not None:
            for found in self._sequence.run_until(self._pending, watermark, deadline):
                yield from self._emit_each(found)
            return
        if self._ordered is not None:
            yield from self._fire_ordered(self._ordered, watermark, deadline)
            return
        while self._leaving is not None or self._are_due(watermark):
            if self._leaving is None:
                self._leaving = self._rows_that_leave()
            if self._leaving is not None:
                yield from self._run_leaving(self._leaving, deadline)
            if self._leaving is not None or perf_counter() >= deadline:
                return
        if self._held is not None:
            self._held.drop_until(watermark)
        yield from self._fire(self._timers.event_timers, watermark, watermark, deadline)

    def _fire_ordered(
        self, ordered: OrderedMatching, watermark: int, deadline: float
    ) -> Iterator[tuple[Any, int | None]]:
        """The same where the rows of all keys run in order of time."""
        while self._are_due(watermark) or self._rows.first_time is not None:
            if self._rows.first_time is None:
                rows, self._until = self._due.popleft()
                if self._held is not None:
                    sifted = self._held.sift(rows, self._live)
                    if sifted is None:
                        if perf_counter() >= deadline:
                            return
                        continue
                    rows = sifted
                self._rows.begin(rows)
            # Rows of other pieces are later: no more time has passed for their keys.
            yield from self._run_ordered(ordered, self._until, deadline)
            if perf_counter() >= deadline:
                return
        if self._held is not None:
            self._held.drop_until(watermark)
        yield from self._run_ordered(ordered, watermark, deadline)

    def _are_due(self, watermark: int) -> bool:
        """Whether rows leave by now; they are in `_due` then."""
        if not self._due and (rows := self._pending.take_until(watermark)) is not None:
            # Who looks at all rows of a piece at once needs small pieces.
            whole = self._held is None and self._ordered is None
            pieces = [rows] if whole else list(rows.pieces_by_time(_MOST_AT_ONCE))
            ends = [*(int(piece.times[-1]) for piece in pieces[:-1]), watermark]
            self._due.extend(zip(pieces, ends, strict=True))
        return bool(self._due)

    def _rows_that_leave(self) -> LeavingRows | None:
        """The next of the due rows, sorted by key; None = all of them are held."""
        rows, end = self._due.popleft()
        if self._held is not None:
            sifted = self._held.sift(rows, self._live)
            if sifted is None:
                return None
            rows = sifted
        codes, keys = codes_of(self._key, rows.records)
        live = np.fromiter((key in self._live for key in keys), np.bool_, len(keys))
        keyed = LeavingByKey(rows, end, keys, codes, live)
        return LeavingRows(keyed, self._rows_of, eager=not self._relevant.all_go_on)

    def _run_leaving(self, leaving: LeavingRows, deadline: float) -> Iterator[tuple[Any, int | None]]:
        """Runs rows key by key; behind the deadline the others follow in the next slice."""
        state = self.context.state
        for span in leaving.spans:
            state.current_key = key = user_key(span.key)
            found = self._run(key, partial(self._wanted, leaving, span), span.until, None)
            leaving.reached = span.end
            if found:
                yield from self._emit(found, key)
            if perf_counter() >= deadline:
                state.current_key = NO_KEY
                return
        state.current_key = NO_KEY
        self._leaving = None

    def snapshot_state(self, checkpoint_id: int) -> None:
        # Between two slices rows that leave are in no state: those that are left wait again.
        left = None if self._leaving is None else self._leaving.left()
        self._leaving = None
        unrun = None if self._sequence is None else self._sequence.take_left()
        for rows in (*(rows for rows, _ in reversed(self._due)), left, self._rows.take_left(), unrun):
            if rows is not None:
                self._pending.put_back(rows)
        self._due.clear()
        super().snapshot_state(checkpoint_id)

    def _rows_of(self, records: pa.RecordBatch) -> list[Row]:
        return self._converter.to_rows(ArrowBatch(records))[0]

    def end_keys(self) -> Iterator[tuple[Any, int | None]]:
        self._timers.watermark = MAX_TIMESTAMP
        yield from self.fire_event_timers(inf)
        self._timers.watermark = MIN_TIMESTAMP
        # The caller empties the state.
        if self._ordered is not None:
            self._ordered.clear()
        else:
            self._live = set()
        if self._held is not None:
            self._held.clear()
        if self._sequence is not None:
            self._sequence.clear()


def _is_flat(kind: pa.DataType) -> bool:
    """True for a type whose Python values hold no others."""
    plain = (pa.types.is_primitive, pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(test(kind) for test in plain)
