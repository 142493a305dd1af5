"""The specs of windows, of streams of rows and of columns, and of rows in order of time.

Owner: none; immutable. An operator of `yarrow.container.operators.window`, `sliced_window`, `pre_aggregation`,
`guarded_window`, `columnar_window` or `event_time_order` runs each.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from yarrow.runtime.graph.operator_spec import ColumnAggregate, KeyColumns, OperatorSpec, TypeSpec

#: Name of the operator state with the watermark of each subtask of an operator that keeps event time.
WATERMARKS: Final = "_window_watermarks"


class WindowKind(StrEnum):
    """What a window keeps of its rows."""

    #: One row: the rows so far, reduced.
    REDUCED = "reduced"
    #: The accumulator of an AggregateFunction.
    AGGREGATED = "aggregated"
    #: All rows.
    ROWS = "rows"


class WindowCallKind(StrEnum):
    """How the window function is called when a window fires."""

    #: There is none: what the window keeps is the result.
    NONE = "none"
    APPLY = "apply"
    PROCESS = "process"
    APPLY_ALL = "apply_all"
    PROCESS_ALL = "process_all"


class WindowOperator(OperatorSpec, frozen=True, kw_only=True, tag="window"):
    """Windows of a keyed stream: an assigner, a trigger, and what happens when a window fires."""

    # The list has watermarks. That of an ended subtask is the greatest, which holds nothing back.
    ended_subtasks_leave_no_unions = True
    operator_package = "window"
    on_error_inputs = (0,)
    keeps_state_as = "windows"

    key_selector: bytes
    #: The pickled WindowAssigner and Trigger.
    assigner: bytes
    trigger: bytes
    kind: WindowKind
    #: The pickled function of REDUCED or AGGREGATED; None for ROWS.
    combining: bytes | None
    call: WindowCallKind
    #: The pickled window function; None if `call` is NONE.
    window_function: bytes | None
    #: Type of what a window keeps for REDUCED and AGGREGATED, that of a row for ROWS and for windows with an evictor;
    #: None = not declared.
    kept_type: TypeSpec = None
    #: The pickled Evictor. With it a window keeps all rows and their times, whatever the kind.
    evictor: bytes | None = None
    #: Windows of event time stay so long behind the watermark, in ms.
    allowed_lateness_ms: int = 0
    #: Side output of late rows; None = they are dropped and counted.
    late_tag: str | None = None
    #: The input is that of a PreAggregationOperator: triples of partial values and of single rows.
    pre_aggregated: bool = False
    #: Each row is in one window, which its rows alone make and fire: rows that come again make the window again.
    remakes_windows: bool = False
    #: The rows are those of two streams, which join or co_group has tagged.
    of_two_streams: bool = False

    @property
    def state_kind(self) -> str:
        return "a join or co_group by window" if self.of_two_streams else self.keeps_state_as

    @property
    def selector_of_each_input(self) -> tuple[bytes | None, ...]:
        """The key selector of the only input."""
        return (self.key_selector,)

    @property
    def rows_enter_before(self) -> bool:
        return self.pre_aggregated

    @property
    def takes_rows_of_windows(self) -> bool:
        return self.remakes_windows

    @property
    def for_left_out_records(self) -> OperatorSpec:
        """The general windows, which try each row before they take it, or keep all rows with their times."""
        keeps_rows = self.kind is WindowKind.ROWS or self.evictor is not None
        return _with_fields_of(self, GuardedRowWindowOperator if keeps_rows else GuardedWindowOperator)


class GuardedWindowOperator(WindowOperator, frozen=True, kw_only=True, tag="guarded_window"):
    """Windows of REDUCED or AGGREGATED that leave out the rows at which that fails; made on workers alone."""

    operator_package = "guarded_window"


class GuardedRowWindowOperator(WindowOperator, frozen=True, kw_only=True, tag="guarded_row_window"):
    """Windows of all rows that put these aside where their function fails; made on workers alone."""

    operator_package = "guarded_window"


class AllWindowOperator(WindowOperator, frozen=True, kw_only=True, tag="window_all"):
    """Windows of a whole stream, in one subtask: all rows have the same key."""

    rescalable = False


class TumblingWindowOperator(WindowOperator, frozen=True, kw_only=True, tag="tumbling_window"):
    """Tumbling windows of time with the default trigger and REDUCED or AGGREGATED: state by window, no timer a key."""

    #: Windows begin at `offset_ms` and at all multiples of `size_ms` from there.
    size_ms: int
    offset_ms: int

    @property
    def for_bounded_input(self) -> OperatorSpec:
        """The general operator, which works key by key."""
        return _in_general(self)


class AllTumblingWindowOperator(TumblingWindowOperator, frozen=True, kw_only=True, tag="tumbling_window_all"):
    """The same of a whole stream, in one subtask."""

    rescalable = False


class SlicedWindowOperator(WindowOperator, frozen=True, kw_only=True, tag="sliced_window"):
    """Windows that overlap, with the default trigger and REDUCED or AGGREGATED: each row is added to one slice.

    The windows are those of `TimeSlices`.
    """

    operator_package = "sliced_window"

    #: Windows have this size, and one starts every slide from the offset on; all in ms.
    size_ms: int
    slide_ms: int
    offset_ms: int
    #: Windows of one start grow by the slide up to the size, and the next ones start there.
    cumulative: bool

    @property
    def for_bounded_input(self) -> OperatorSpec:
        """The general operator, which works key by key."""
        return _in_general(self)


class AllSlicedWindowOperator(SlicedWindowOperator, frozen=True, kw_only=True, tag="sliced_window_all"):
    """The same of a whole stream, in one subtask."""

    rescalable = False


class PreAggregationOperator(OperatorSpec, frozen=True, kw_only=True, tag="pre_aggregation"):
    """Folds the rows of a subtask by slice of windows and by key, in front of the exchange to the windows.

    It emits triples (key, partial value or None, row or None). A partial value bears the time of its slice's start. A
    row that passes by itself bears its own time. The windows are those of `TimeSlices`.
    """

    # The watermarks of the windows, where the operator begins.
    reads_list_behind = WATERMARKS
    operator_package = "pre_aggregation"
    on_error_inputs = (0,)

    key_selector: bytes
    #: REDUCED or AGGREGATED, and the pickled function.
    kind: WindowKind
    combining: bytes
    #: Type of a partial value; None = not declared.
    kept_type: TypeSpec = None
    #: As of SlicedWindowOperator; tumbling windows slide by their size.
    size_ms: int
    slide_ms: int
    offset_ms: int
    cumulative: bool
    #: All partial values leave at the end of a chunk that has reached this number of them.
    max_entries: int = 65_536
    #: All rows pass by themselves.
    is_transparent: bool = False

    @property
    def for_bounded_input(self) -> OperatorSpec:
        """Rows pass by themselves: the windows take all rows of a key one after the other."""
        return msgspec.structs.replace(self, is_transparent=True)

    @property
    def for_left_out_records(self) -> OperatorSpec:
        """The pre-aggregation that tries each row before it takes it."""
        return GuardedPreAggregationOperator(**msgspec.structs.asdict(self))


class GuardedPreAggregationOperator(
    PreAggregationOperator, frozen=True, kw_only=True, tag="guarded_pre_aggregation"
):
    """A pre-aggregation that leaves out the rows at which the function fails; made on workers alone."""

    operator_package = "guarded_window"


def _in_general(spec: WindowOperator) -> WindowOperator:
    """The same windows for the general operator."""
    return _with_fields_of(spec, WindowOperator)


def _with_fields_of(spec: WindowOperator, kind: type[WindowOperator]) -> WindowOperator:
    fields = msgspec.structs.asdict(spec)
    return kind(**{name: fields[name] for name in WindowOperator.__struct_fields__})


class CountWindowOperator(WindowOperator, frozen=True, kw_only=True, tag="count_window"):
    """Count windows of REDUCED or AGGREGATED, one behind the other, without a window function: a counter a key."""

    #: Rows of a window.
    size: int


class AllCountWindowOperator(CountWindowOperator, frozen=True, kw_only=True, tag="count_window_all"):
    """The same of a whole stream, in one subtask."""

    rescalable = False


class SessionWindowOperator(WindowOperator, frozen=True, kw_only=True, tag="session_window"):
    """Sessions of event time with the default trigger and REDUCED or AGGREGATED: a list of sessions a key."""

    #: A session ends so long behind its last row, in ms.
    gap_ms: int


class AllSessionWindowOperator(SessionWindowOperator, frozen=True, kw_only=True, tag="session_window_all"):
    """The same of a whole stream, in one subtask."""

    rescalable = False


class ColumnarWindowSpec(OperatorSpec, frozen=True, kw_only=True):
    """The fields of all specs of columnar windows, which are windows of event time."""

    # As of windows of rows.
    ended_subtasks_leave_no_unions = True
    keeps_state_as = "windows of columns"
    operator_package = "columnar_window"
    on_error_refusal = (
        "its aggregates are built-in, and call no function that could fail at rows. Call on_error on map_batches"
        " before it, or aggregate by aggregate_batches"
    )

    key_column: KeyColumns
    #: Empty where `function` aggregates.
    aggregates: tuple[ColumnAggregate, ...]
    #: The column that holds the times of rows; None = their timestamps do.
    time_column: str | None = None
    #: Windows stay so long behind the watermark, in ms.
    allowed_lateness_ms: int = 0
    #: Side output of batches of late rows; None = they are dropped and counted.
    late_tag: str | None = None
    #: The pickled function of aggregate_batches; None = built-in aggregates.
    function: bytes | None = None
    #: The schema (IPC bytes) of the function's results; empty without a function.
    result_schema: bytes = b""

    @property
    def leaves_out(self) -> tuple[int, ...]:
        """The only input, if a function of the program gets its rows."""
        return () if self.function is None else (0,)

    @property
    def columnar_side_outputs(self) -> tuple[str, ...]:
        return () if self.late_tag is None else (self.late_tag,)


class ColumnarWindowOperator(ColumnarWindowSpec, frozen=True, kw_only=True, tag="columnar_window"):
    """Aggregates of a columnar stream by key and window of event time; the windows have fixed bounds."""

    #: Windows have this size, and one starts every slide from the offset on; all in ms.
    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    #: Windows of one start grow by the slide up to the size, and the next ones start there.
    cumulative: bool = False

    @property
    def takes_rows_of_windows(self) -> bool:
        """Whether each row is in one window."""
        return self.slide_ms == self.size_ms and not self.cumulative


class ColumnarSessionOperator(ColumnarWindowSpec, frozen=True, kw_only=True, tag="columnar_session"):
    """Aggregates of a columnar stream by key and session of event time."""

    #: A session ends so long behind its last row, in ms.
    gap_ms: int

    @property
    def takes_rows_of_windows(self) -> bool:
        return True


class EventTimeOrderOperator(OperatorSpec, frozen=True, kw_only=True, tag="event_time_order"):
    """Rows of a stream without keys wait for the watermark, and leave in order of their time."""

    # As of windows.
    ended_subtasks_leave_no_unions = True
    operator_package = "event_time_order"
    keeps_state_as = "rows of a stream without keys in event-time order"
    keeps_time = True

    #: Side output of late rows; None = they are dropped and counted.
    late_tag: str | None = None

    @property
    def keeps_rows(self) -> bool:
        return True


class KeyedEventTimeOrderOperator(
    EventTimeOrderOperator, frozen=True, kw_only=True, tag="keyed_event_time_order"
):
    """Rows of a keyed stream wait in keyed state, and leave in order of their time."""

    keeps_state_as = "rows of a keyed stream in event-time order"

    key_selector: bytes

    @property
    def selector_of_each_input(self) -> tuple[bytes | None, ...]:
        """The key selector of the only input."""
        return (self.key_selector,)
