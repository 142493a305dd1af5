"""Arrow expressions as conditions: their way into a job, what is refused, and the row on which one fails."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.runtime.graph.programs import environment
from yarrow.common.values.conditions import (
    AllOf,
    AnyOf,
    ArrowExpression,
    Condition,
    Negation,
    condition_of,
    expressions_of,
)
from yarrow.container.operators.columnar.column_selection import truth_of
from yarrow.runtime.columns.arrow_expressions import ExpressionError
from yarrow.runtime.columns.condition_checks import why_not_compared
from yarrow.runtime.graph.job_graph import decode_job_graph, encode_job_graph
from yarrow.table.expressions import col

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string()), ("n", pa.struct([("x", pa.int8())]))])
BATCH = pa.record_batch(
    [
        pa.array([1, None, 4, 5]),
        pa.array(["x", "y", None, "7"]),
        pa.array([{"x": 1}, None, {"x": 3}, {"x": 4}]),
    ],
    schema=SCHEMA,
)


def expression(value: pc.Expression) -> ArrowExpression:
    found = condition_of(value)
    assert isinstance(found, ArrowExpression)
    return found


def truth(condition: Condition, batch: pa.RecordBatch = BATCH) -> list[bool | None]:
    return truth_of(condition, batch).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (pc.field("a") > 3, [False, None, True, True]),
        (pc.field("s").isin(["x", "y"]), [True, True, False, False]),
        (pc.match_substring_regex(pc.field("s"), "[0-9]"), [False, False, None, True]),
        (pc.field("n", "x") * 2 == 6, [False, None, True, False]),
        (pc.field("a").cast("int8") < pc.field("n", "x").cast("int64") + 2, [True, None, True, True]),
        (pc.scalar(True), [True] * 4),
        (pc.field("s").is_null(), [False, False, True, False]),
    ],
)
def test_an_expression_has_the_truth_that_arrow_gives_it(value: pc.Expression, wanted: list[Any]) -> None:
    condition = expression(value)
    assert why_not_compared(condition, SCHEMA) == ""
    assert truth(condition) == wanted
    assert truth(condition, BATCH.slice(1, 0)) == []
    assert truth(condition, BATCH.slice(1, 2)) == wanted[1:3]


def test_conditions_and_expressions_are_combined_by_the_logic_of_sql() -> None:
    large = pc.field("a") > 3
    assert truth(col("s").is_not_null & large) == [False, None, False, True]
    assert truth(col("s").is_null | large) == [False, None, True, True]
    assert truth(~(col("s").is_null | large)) == [True, None, False, False]
    assert truth(~expression(large) & col("a").is_not_null) == [True, False, False, False]
    with pytest.raises(TypeError, match="combined with another condition only, not with 3"):
        col("a").is_null & 3


@settings(max_examples=25, deadline=None)
@given(st.lists(st.none() | st.integers(-5, 5), max_size=20), st.integers(-5, 5))
def test_an_expression_and_a_condition_of_the_same_meaning_agree(
    values: list[int | None], bound: int
) -> None:
    batch = pa.record_batch({"a": pa.array(values, pa.int64())})
    for one, other in (
        ((pc.field("a") > bound) | (pc.field("a") == 0), (col("a") > bound) | (col("a") == 0)),
        (~(pc.field("a") <= bound) & pc.field("a").is_valid(), ~(col("a") <= bound) & col("a").is_not_null),
    ):
        assert truth(expression(one), batch) == truth(other, batch)


def test_the_rows_of_a_large_batch_keep_their_order() -> None:
    numbers = pa.array(range(200_000))
    batch = pa.record_batch({"a": numbers})
    even = expression(pc.bit_wise_and(pc.field("a"), 1) == 0)
    assert truth_of(even, batch).equals(pc.equal(pc.bit_wise_and(numbers, 1), 0))


def test_expressions_travel_with_the_job_as_data() -> None:
    values = [1, 2, 3]
    condition = ~((col("a") > 1) & pc.field("s").isin(values)) | (pc.field("n", "x") > 3)
    env = environment(1)
    env.from_collection([]).to_arrow(pa.schema([])).map_batches(lambda batch: batch).filter(condition).print()
    graph = decode_job_graph(encode_job_graph(env.get_job_graph()))
    (found,) = (
        each.spec.condition
        for vertex in graph.vertices
        for each in vertex.operators
        if each.spec.condition is not None
    )
    assert found == condition and hash(found) == hash(condition)
    match found:
        case AnyOf((Negation(AllOf((_, ArrowExpression()))), ArrowExpression() as last)):
            assert last.text == "(FieldRef.Nested(FieldRef.Name(n) FieldRef.Name(x)) > 3)"
        case _:
            pytest.fail(f"{found} has another shape")
    for part in expressions_of(found):
        # A file of Arrow, and no pickle.
        assert part.message.startswith(b"ARROW1")
        assert "\n" not in part.text and len(part.text) <= 200


def test_an_expression_by_position_cannot_leave_the_process() -> None:
    with pytest.raises(
        ValueError, match=r"FieldPath\(0\) > 3\) cannot leave this process.* Name each column"
    ):
        condition_of(pc.field(0) > 3)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (pc.field("b") > 1, "there is no column 'b'; the stream has ['a', 's', 'n']"),
        (pc.field("n", "y") > 1, "does not fit the columns: No match for FieldRef.Nested"),
        (
            pc.field("a") > "x",
            "(a > \"x\") does not fit the columns: Function 'greater' has no kernel matching",
        ),
        (
            pc.field("a") + 1,
            "the Arrow expression add_checked(a, 1) is of type int64, and a condition is a boolean",
        ),
        (pc.scalar(None), "is of type null, and a condition is a boolean"),
        (
            pc.sum(pc.field("a")) > 3,
            "(sum(a) > 3) calls a function whose result for a row depends on other rows",
        ),
        (pc.cumulative_sum(pc.field("a")) > 3, "depends on other rows"),
    ],
)
def test_what_is_no_condition_over_the_columns_of_a_schema(value: pc.Expression, why: str) -> None:
    assert why in why_not_compared(expression(value), SCHEMA)
    assert why in why_not_compared(col("a").is_null | value, SCHEMA)


def test_a_column_that_is_there_twice_is_named() -> None:
    twice = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    assert "there are 2 columns named 'a'" in why_not_compared(expression(pc.field("a") > 1), twice)


def test_columns_without_an_empty_value_do_not_stand_in_the_way() -> None:
    kinds = [
        pa.dictionary(pa.int8(), pa.string()),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.string_view(),
        pa.list_view(pa.int8()),
        pa.dense_union([pa.field("x", pa.int8())]),
        pa.map_(pa.string(), pa.int8()),
        pa.null(),
    ]
    schema = pa.schema([("a", pa.int64()), *((f"c{number}", kind) for number, kind in enumerate(kinds))])
    assert why_not_compared(expression(pc.field("a") > 1), schema) == ""
    assert "other rows" in why_not_compared(expression(pc.cumulative_sum(pc.field("a")) > 1), schema)


class Wrapped(pa.ExtensionType):  # type: ignore[misc]
    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.wrapped")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Wrapped:
        return cls(storage)


UNION = pa.dense_union([pa.field("x", pa.int8())])


@pytest.mark.parametrize(
    "kind",
    [
        UNION,
        pa.struct([("i", pa.int64()), ("u", UNION)]),
        pa.list_(UNION),
        pa.list_view(UNION),
        pa.map_(pa.string(), UNION),
        pa.dictionary(pa.int8(), UNION),
        pa.run_end_encoded(pa.int32(), UNION),
        Wrapped(pa.struct([("u", pa.list_(UNION))])),
        pa.list_(Wrapped(UNION)),
    ],
    ids=str,
)
def test_unions_at_any_depth_stand_in_the_way_only_of_expressions_that_read_them(kind: pa.DataType) -> None:
    schema = pa.schema([("a", pa.int64()), ("u", kind)])
    assert why_not_compared(expression(pc.field("a") > 1), schema) == ""
    why = "Arrow cannot read columns of unions in expressions, and column 'u' is of type"
    for read in (pc.field("u").is_null(), pc.field("u", "i") > 1):
        assert why in why_not_compared(expression(read), schema)
        assert why in why_not_compared(expression(read), schema.remove(0))


def test_expressions_are_evaluated_beside_a_column_with_unions() -> None:
    union = pa.UnionArray.from_dense(
        pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([7, 8], pa.int8())]
    )
    batch = pa.record_batch({"u": pa.StructArray.from_arrays([union], ["u"]), "a": [0, 2]})
    assert truth(expression(pc.field("a") > 1), batch) == [False, True]
    with pytest.raises(ExpressionError, match=r"fails on row 0 of a batch, with a = 0: divide by zero"):
        truth(expression(pc.divide(pc.scalar(4), pc.field("a")) > 1), batch)


@pytest.mark.parametrize("place", [0, 1, 6, 99])
def test_an_expression_that_fails_names_row_and_columns(place: int) -> None:
    numbers: list[int] = [5] * 100
    numbers[place] = 0
    batch = pa.record_batch({"top": [10] * 100, "a": numbers, "other": ["x"] * 100})
    fails = expression(pc.divide(pc.field("top"), pc.field("a")) > 1)
    said = f"(divide(top, a) > 1) fails on row {place} of a batch, with top = 10, a = 0: divide by zero"
    with pytest.raises(ExpressionError, match=re.escape(said)):
        truth_of(fails, batch)
