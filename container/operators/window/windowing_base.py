"""WindowingBase: what all operators of windows have in common: functions, event time as state, late rows.

Owner: the task thread. A subclass says how windows are kept and when they fire. See docs/design/0030-windows.md and
0034-fast-windows.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

from yarrow.container.codegen.user_functions import close_function, load_function, method_of, open_function
from yarrow.container.operators.base import KeyReadingOperator, OperatorContext, declared_type
from yarrow.container.operators.late_ledger import LateLedger, LateTime
from yarrow.container.operators.rows.row_functions import FunctionOperator
from yarrow.container.operators.stored_watermark import StoredTimeOperator
from yarrow.container.operators.window.evicting_windows import CONTENTS_WITH_TIMES
from yarrow.container.operators.window.stored_forms import require_form, restored_names
from yarrow.container.operators.window.window_calls import WindowCall, window_call
from yarrow.container.operators.window.window_contents import CONTENTS
from yarrow.container.operators.window.window_contexts import AssignerContext, WindowFunctionContext
from yarrow.container.operators.window.window_timers import WaitingTimers, WindowTimers
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.window_tables import TIME_WINDOWS
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.window import TimeWindow, TimeWindowSerializer, Window, WindowAssigner
from yarrow.runtime.common.late_records import LatePlace, LateRemedy
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.data.window_forms import WindowForm
from yarrow.runtime.graph.window_spec import WindowKind, WindowOperator

#: A result of a window with its time, a side output as `(OutputTag, value)`.
Result = tuple[Any, int | None]
Results = Iterator[Result]
#: Results of windows that end, each with its time. With `emits_lists`: lists of results, each with that of their times.
Fired = Iterator[tuple[Any, Any]]


class WindowingBase(StoredTimeOperator, FunctionOperator, KeyReadingOperator):
    """The functions, the clocks and the late rows of an operator of windows."""

    emits_tagged = True
    emits_state = True
    stamps_rows = True
    timers_type: ClassVar[type[WindowTimers]] = WindowTimers
    _timers: WindowTimers

    def __init__(self, name: str, spec: WindowOperator) -> None:
        blob = spec.window_function or spec.combining
        assert blob is not None
        super().__init__(name, blob, keyed=True)
        self._spec = spec
        self._lateness = spec.allowed_lateness_ms
        self._ledger = LateLedger(name, LateRemedy.ALLOWED_LATENESS)
        self._late_tag = None if spec.late_tag is None else OutputTag(spec.late_tag)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec, state = self._spec, context.state
        self._selector = method_of(load_function(spec.key_selector, self.name), "get_key", self.name)
        self._assigner: WindowAssigner[Any, Any] = load_function(spec.assigner, self.name)
        require_form(self._form_name, context, self._read_forms)
        # Without a window function that of reduce or aggregate is the operator's function.
        self._combining: Any = self.function if spec.window_function is None else None
        if spec.window_function is not None and spec.combining is not None:
            self._combining = load_function(spec.combining, self.name)
        self._event_time = self._assigner.is_event_time()
        self._form, self._window_type = _form_of(self._assigner)
        timers = self.timers_type(context.environment.clock, self.name, lambda: state.current_key)
        self.keep_time(context, timers)
        self._waiting = WaitingTimers(context, self._timers.watermark)
        self._ledger.register(context.environment.metrics, context.metric_group)

    @property
    def _form_name(self) -> str:
        """The name of the state in which windows keep their rows."""
        return CONTENTS if self._spec.evictor is None else CONTENTS_WITH_TIMES

    @property
    def _read_forms(self) -> Collection[str]:
        """Names of states besides that of the operator's own form which it takes up."""
        return ()

    @property
    def _results_stay(self) -> bool:
        """True if no result can change once it is made, where no window function runs.

        A function of aggregate may give one object for key after key, and change it before each of these results.
        """
        output_type = declared_type(self.context.descriptor.output_type)
        return self._spec.kind is WindowKind.REDUCED or copier_for(output_type) is None

    @property
    def _has_both_functions(self) -> bool:
        """True if a window function stands behind reduce or aggregate."""
        return self._spec.window_function is not None and self._combining is not None

    def _open_functions(self, *, merging: bool) -> None:
        """Opens the functions, and makes the calls of the window function; `merging`: windows may merge."""
        super().open()
        runtime = self._runtime_context
        if self._has_both_functions:
            open_function(self._combining, runtime)
        self._assigner_context = AssignerContext(self._timers, runtime)
        function_context = WindowFunctionContext(
            self.context.state,
            self._timers,
            self._form,
            runtime,
            restored_names(self.context),
            merging=merging,
        )
        self._function_states = function_context.states
        self._call: WindowCall = window_call(self._spec.call, self.function, function_context, self.name)

    def close(self) -> None:
        opened = self._opened
        try:
            super().close()
        finally:
            if opened and self._has_both_functions:
                close_function(self._combining)

    @property
    def late_dropped(self) -> int:
        """Late rows, and rows of no window, that went nowhere."""
        return self._ledger.dropped

    def _late_row(
        self, row: Any, timestamp: int | None, *, late: bool, windows: Sequence[Window] = ()
    ) -> Results:
        """Notes a row that no window takes, and sends it to the side output of late rows if it is `late`.

        `windows` are those of the row. The one that ends last says how late the row is, or else its own time.
        """
        if not late:
            self._ledger.of_no_window()
            return
        stamp, watermark = MIN_TIMESTAMP if timestamp is None else timestamp, self._timers.watermark
        last = max(windows, key=lambda window: window.max_timestamp(), default=None)
        end = stamp if last is None else last.max_timestamp()
        place = LatePlace.DROPPED if self._late_tag is None else LatePlace.SIDE_OUTPUT
        time = LateTime(stamp, watermark, watermark - end + 1)
        self._ledger.late(place, self.context.state.current_key, time, last)
        if self._late_tag is not None:
            yield (self._late_tag, self._row_of(row)), timestamp

    def _row_of(self, row: Any) -> Any:
        """The user's row, or the partial value, where the input is pre-aggregated."""
        if not self._spec.pre_aggregated:
            return row
        _, partial, single = row
        return single if partial is None else partial

    def refuse_time(self, row: Any, key: Any, timestamp: Any, error: Exception) -> Exception:
        """The error for a row whose time gives no window: it is no number, or near the end of all numbers.

        The assigner says what is missing.
        """
        self.context.state.current_key = key
        row, window = self._row_of(row), None
        try:
            stamp = MIN_TIMESTAMP if timestamp is None else timestamp
            window = next(iter(self._assigner.assign_windows(row, stamp, self._assigner_context)), None)
        except (TypeError, ValueError) as refused:
            if timestamp is None:
                error = refused
        return self._failure_in(short_record(row), window, error)

    def _failure_in(self, record: str, window: Any, error: BaseException) -> OperatorFailure:
        # An assigner that fails gives no window.
        where = [] if window is None else [f"window {short_record(window)}"]
        if self._spec.rescalable:
            # The rows of a whole stream have one key, which is none of the user's.
            where.append(f"of the key {short_record(self.context.state.current_key)}")
        return OperatorFailure(self.name, f"{record} ({' '.join(where)})" if where else record, error)


def _form_of(assigner: WindowAssigner[Any, Any]) -> tuple[WindowForm[Any], type[Window]]:
    """The stored form of an assigner's windows, and their type."""
    serializer = assigner.get_window_serializer()
    if type(serializer) is TimeWindowSerializer:
        return TIME_WINDOWS, TimeWindow
    return WindowForm.of_serializer(serializer), Window
