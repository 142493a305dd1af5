"""The specs of joins of two keyed streams. Joins by window are windows of one stream, in `window_spec`.

Owner: none; immutable. An operator of `yarrow.container.operators.join` runs each.
"""

from __future__ import annotations

from enum import StrEnum

from yarrow.common.type_information import declared_type
from yarrow.common.typeinfo import Types
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.operator_spec import KeyColumns, OperatorSpec, TypeSpec


class KeyedJoinOperator(OperatorSpec, frozen=True, kw_only=True):
    """Base of the joins of two keyed inputs by a ProcessJoinFunction."""

    # As of windows: the list has watermarks.
    ended_subtasks_leave_no_unions = True
    operator_package = "join"
    # A pair of rows is left out, and both rows stay.
    on_error_inputs = (0, 1)
    takes_pairs = True

    kind: JoinKind
    key_selectors: tuple[bytes, bytes]
    #: The pickled ProcessJoinFunction.
    function: bytes
    #: Types of left and right rows; None = not declared.
    row_types: tuple[TypeSpec, TypeSpec]
    #: Side outputs of late left and right rows; None = they are dropped and counted.
    late_tags: tuple[str | None, str | None] = (None, None)

    @property
    def selector_of_each_input(self) -> tuple[bytes | None, ...]:
        """The key selector of each input."""
        return self.key_selectors

    @property
    def pair_type(self) -> TypeSpec:
        left, right = (declared_type(each) for each in self.row_types)
        # None stands in place of a partner in outer joins, and has no type.
        if left is None or right is None or self.kind is not JoinKind.INNER:
            return None
        return Types.TUPLE([left, right]).to_spec()


class IntervalJoinOperator(KeyedJoinOperator, frozen=True, kw_only=True, tag="interval_join"):
    """Joins rows of two keyed inputs: a left row at t meets right rows from t + lower to t + upper."""

    keeps_state_as = "an interval join"

    #: Both bounds belong to the interval, in ms.
    lower_ms: int
    upper_ms: int


class AsOfDirection(StrEnum):
    """Which right row a left row meets."""

    #: The last one up to its time.
    BACKWARD = "backward"
    #: The first one from its time on.
    FORWARD = "forward"
    #: The nearest one; of two that are equally near, the earlier one.
    NEAREST = "nearest"


class AsOfJoinOperator(KeyedJoinOperator, frozen=True, kw_only=True, tag="as_of_join"):
    """Joins each left row with one right row of its key: the version that holds at the left row's time."""

    keeps_state_as = "an as-of join"

    direction: AsOfDirection
    #: Most milliseconds between both rows; None = any number.
    tolerance_ms: int | None


class DelayedJoinOperator(KeyedJoinOperator, frozen=True, kw_only=True, tag="delayed_join"):
    """Joins all rows of a key that come within a delay of the first one that waits, in one batch."""

    keeps_state_as = "a delayed join"

    #: Length of a batch in ms of event time.
    delay_ms: int


class ImmediateJoinOperator(KeyedJoinOperator, frozen=True, kw_only=True, tag="immediate_join"):
    """Joins each row of the second input with the kept rows of the first one, when it comes."""

    keeps_state_as = "an immediate join"

    #: A row of the first input replaces the one that its key had.
    latest_only: bool = False
    #: The pickled StateTtlConfig of kept rows; None = they stay.
    ttl: bytes | None = None


class ColumnarJoinOperator(OperatorSpec, frozen=True, kw_only=True):
    """Base of the joins of record batches: the columns of both sides stand beside each other."""

    ended_subtasks_leave_no_unions = True
    operator_package = "columnar_join"
    on_error_refusal = (
        "a join of columns calls no function of yours, so that no pair of rows can fail in it. Call on_error on the"
        " functions before or behind it"
    )

    kind: JoinKind
    key_columns: tuple[KeyColumns, KeyColumns]
    #: IPC bytes of the schemas of both sides.
    schemas: tuple[bytes, bytes]
    #: IPC bytes of the schema of the results: the columns of the left side, then those of the right one.
    schema: bytes
    #: Side outputs of batches of late left and right rows; None = they are dropped and counted.
    late_tags: tuple[str | None, str | None] = (None, None)

    @property
    def columnar_side_outputs(self) -> tuple[str, ...]:
        """The tags of late rows."""
        return tuple(tag for tag in self.late_tags if tag is not None)


class ColumnarIntervalJoinOperator(
    ColumnarJoinOperator, frozen=True, kw_only=True, tag="columnar_interval_join"
):
    """An interval join of record batches."""

    keeps_state_as = "an interval join of columns"

    #: Both bounds belong to the interval, in ms.
    lower_ms: int
    upper_ms: int


class ColumnarWindowJoinOperator(ColumnarJoinOperator, frozen=True, kw_only=True, tag="columnar_window_join"):
    """A join of record batches by window of event time."""

    keeps_state_as = "a join by windows of columns"

    #: As of ColumnarWindowOperator.
    size_ms: int
    slide_ms: int
    offset_ms: int
    cumulative: bool


class ColumnarAsOfJoinOperator(ColumnarJoinOperator, frozen=True, kw_only=True, tag="columnar_as_of_join"):
    """An as-of join of record batches."""

    keeps_state_as = "an as-of join of columns"

    direction: AsOfDirection
    #: Most milliseconds between both rows; None = any number.
    tolerance_ms: int | None
