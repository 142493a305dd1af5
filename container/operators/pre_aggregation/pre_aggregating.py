"""PreAggregatingOperator: folds the rows of a subtask by slice and key, in front of the exchange to their windows.

Owner: the task thread. Partial values leave when the watermark passes the first window of their slice, when there are
too many, before a barrier, and before idleness. So they are no state. A row that may be late for the operator behind
passes by itself. See docs/design/0043-pre-aggregation-of-windows.md.
"""

from __future__ import annotations

from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import Emit, OperatorContext
from yarrow.container.operators.pre_aggregation.held_values import HeldValues, Miss
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_key
from yarrow.container.operators.rows.keyed_aggregation import TableVariables
from yarrow.container.operators.rows.row_functions import FunctionOperator
from yarrow.container.operators.stored_watermark import restored_watermarks
from yarrow.container.operators.time_slices import TimeSlices
from yarrow.container.operators.window.window_contents import CONTENTS
from yarrow.container.operators.window.window_folding import Combination, generate_update
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.folded_states import refuse_none
from yarrow.datastream.functions.key_functions import NullByteKeySelector
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.graph.window_spec import PreAggregationOperator

#: Partial values that leave in one call: the exchange sends full batches between two.
_AT_ONCE = 1024


@runs(PreAggregationOperator)
class PreAggregatingOperator(FunctionOperator):
    """Folds rows by slice and key, as far as none of them can be late for the operator of the windows."""

    holds_rows = True
    # Partial values leave before idleness does.
    holds_time = True
    stamps_rows = True

    def __init__(self, name: str, spec: PreAggregationOperator) -> None:
        super().__init__(name, spec.combining)
        self._spec = spec

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec = self._spec
        selector = load_function(spec.key_selector, self.name)
        self._of_whole_stream = isinstance(selector, NullByteKeySelector)
        self._selector = method_of(selector, "get_key", self.name)
        self._layout = TimeSlices(spec.size_ms, spec.slide_ms, spec.offset_ms, cumulative=spec.cumulative)
        self._held = HeldValues()
        #: The operator of the windows is not ahead of this time, as long as this subtask has not been idle. It begins
        #: at a restored watermark, and does not pass a subtask that is active.
        self._reached = max(restored_watermarks(context), default=MIN_TIMESTAMP)
        #: True if there is no such time. Then any row may be late, and each passes by itself.
        self._unbound = spec.is_transparent

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._give_away(MAX_TIMESTAMP)

    def finish(self) -> None:
        self._give_away(MAX_TIMESTAMP)

    # ------------------------------------------------------------------ rows

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        key = generate_key(code, self._selector, value, None)
        with code.block(f"if {value} is None:"):
            code.line(f"raise {code.bind('refuse_none', self._refuse_none)}({value})")
        step, start = self._layout.step, code.fresh("lo")
        with code.block("try:"):
            code.line(f"{start} = {timestamp} - ({timestamp} - {self._layout.offset}) % {step}")
        with code.block("except TypeError:"):
            # The operator of the windows refuses a row without time.
            code.line(f"{start} = None")
        table = TableVariables.fresh(code)
        code.at_start(f"{table.sharded} = False")
        slices = code.bind("slices", self._held.slices)
        enter = code.bind("enter", self._enter)
        code.line(f"{table.entries}, {table.miss} = {slices}.get({start}) or {enter}({start})")
        with code.block(f"if {table.miss} is None:"):
            single = code.fresh("v")
            code.line(f"{single} = ({key}, None, {value})")
            emit(single, timestamp)
        with code.block("else:"):
            self._generate_fold(code, table, (key, value, start))

    def _generate_fold(self, code: CodeWriter, table: TableVariables, row: tuple[str, str, str]) -> None:
        """Generates the code that folds a row into the dict at hand; `row`: variables of key, row and slice's start."""
        combination = Combination.of(self._spec, self.function, self.context)
        # `miss` counts the keys, so it hears of each new one.
        generate_update(code, self, combination, table, row, "False")

    def _enter(self, start: int | None) -> tuple[dict[Any, Any] | None, Miss | None]:
        """The values of a slice that rows have come to first; (None, None) if they pass by themselves."""
        if start is None or self._unbound:
            return None, None
        leaves_at = self._leaves_at(start)
        if leaves_at is None or leaves_at <= self._reached:
            return None, None
        return self._held.open(start, leaves_at)

    def _leaves_at(self, start: int) -> int | None:
        """The last time of the first window that contains a slice; None = no window does."""
        ends = self._layout.ends_of(start)
        return ends[0] - 1 if ends else None

    def end_of_chunk(self) -> None:
        if self._held.count >= self._spec.max_entries:
            self._give_away(MAX_TIMESTAMP)

    def explain(self, row: Any, key: Any, start: int, error: Exception) -> Exception:
        """See FoldsRows."""
        end = self._layout.ends_of(start)[0]
        window = TimeWindow(self._layout.start_of(end), end)
        of_key = "" if self._of_whole_stream else f" of the key {short_record(key)}"
        record = f"{short_record(row)} (window {short_record(window)}{of_key})"
        return OperatorFailure(self.name, record, error)

    def forget(self, key: Any, start: int) -> None:
        """See FoldsRows."""
        self._held.remove(start, key)

    def _refuse_none(self, row: Any) -> Exception:
        return refuse_none(self.name, CONTENTS)

    def _give_away(self, time: int) -> None:
        """Emits the partial values of slices that leave at a time or before."""
        for start, triples in self._held.take(time):
            for at in range(0, len(triples), _AT_ONCE):
                part = triples[at : at + _AT_ONCE]
                self.emit_held(part, [start] * len(part))

    # ------------------------------------------------------------------ time

    def on_watermark(self, timestamp: int) -> tuple[()]:
        if timestamp > self._reached:
            self._reached = timestamp
            self._give_away(timestamp)
        return ()

    def on_idle(self, idle: bool) -> tuple[()]:
        if idle:
            # From now on the operator of the windows may be ahead of this subtask.
            self._give_away(MAX_TIMESTAMP)
            self._unbound = True
        self.time_behind.set_idle(idle)
        return ()
