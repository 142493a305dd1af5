"""filter by conditions over columns, and select, against plain Python: each type, nulls, NaN, and the logic of SQL."""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collect
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types
from yarrow.common.types import Row
from yarrow.common.values.conditions import Condition
from yarrow.container.operators.columnar.column_selection import truth_of
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.runtime.columns.condition_checks import why_not_compared
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.table.expressions import col

BERLIN = dt.timezone(dt.timedelta(hours=1))
WHOLE = st.integers(-130, 130) | st.sampled_from([-(2**63), 2**31, 2**63 - 1])
FLOATS = st.sampled_from([0.0, -0.0, 0.1, 1.5, -1.5, math.nan, math.inf, -math.inf, 3.0]) | st.floats(
    width=32
)
TEXTS = st.sampled_from(["", "a", "b", "ä", "\U0001f600", "\uffff", "Z"])
DATES = st.dates() | st.just(dt.date(1970, 1, 1))
TIMES = st.datetimes() | st.just(dt.datetime(1970, 1, 1))
#: Of each type of columns: values of its rows, and those that it is compared with.
VALUES: dict[pa.DataType, tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    pa.bool_(): (st.booleans(), st.booleans()),
    pa.int8(): (st.integers(-128, 127), WHOLE),
    pa.int32(): (st.integers(-200, 200), WHOLE),
    pa.int64(): (WHOLE, WHOLE),
    pa.uint8(): (st.integers(0, 255), WHOLE),
    pa.uint64(): (st.integers(0, 200) | st.just(2**64 - 1), WHOLE.filter(lambda value: value >= 0)),
    pa.float32(): (FLOATS.filter(lambda x: math.isnan(x) or abs(x) < 2**20), FLOATS),
    pa.float64(): (FLOATS, FLOATS | st.integers(-3, 3)),
    pa.string(): (TEXTS, TEXTS),
    pa.large_string(): (TEXTS, TEXTS),
    pa.dictionary(pa.int32(), pa.string()): (TEXTS, TEXTS),
    pa.date32(): (DATES, DATES),
    pa.timestamp("us"): (TIMES, TIMES),
    pa.timestamp("s"): (TIMES.map(lambda time: time.replace(microsecond=0)), TIMES),
    pa.timestamp("us", "Europe/Berlin"): (
        TIMES.filter(lambda time: 1 < time.year < 9999).map(lambda time: time.replace(tzinfo=dt.UTC)),
        TIMES.filter(lambda time: 1 < time.year < 9999).map(lambda time: time.replace(tzinfo=BERLIN)),
    ),
}
NAMES = {kind: f"a {kind}" for kind in VALUES}
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

#: A condition with its model: the truth of a row, None for null.
Modelled = tuple[Condition, Callable[[dict[str, Any]], bool | None]]


def not_nan(value: Any) -> bool:
    return not (isinstance(value, float) and math.isnan(value))


@st.composite
def comparisons(draw: st.DrawFn) -> Modelled:
    kind = draw(st.sampled_from(sorted(VALUES, key=str)))
    name = NAMES[kind]
    if draw(st.integers(0, 4)) == 0:
        return col(name).is_null, lambda row: row[name] is None
    value = draw(VALUES[kind][1].filter(not_nan))
    compare = COMPARED[symbol := draw(st.sampled_from(sorted(COMPARED)))]
    condition = COMPARED[symbol](col(name), value)
    return condition, lambda row: None if row[name] is None else bool(compare(row[name], value))


def both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def combined(parts: st.SearchStrategy[Modelled]) -> st.SearchStrategy[Modelled]:
    pairs = st.tuples(parts, parts)
    return st.one_of(
        pairs.map(lambda p: (p[0][0] & p[1][0], lambda row: both(p[0][1](row), p[1][1](row)))),
        pairs.map(
            lambda p: (
                p[0][0] | p[1][0],
                lambda row: negated(both(negated(p[0][1](row)), negated(p[1][1](row)))),
            )
        ),
        parts.map(lambda p: (~p[0], lambda row: negated(p[1](row)))),
    )


CONDITIONS = st.recursive(comparisons(), combined, max_leaves=5)
ROWS = st.lists(
    st.fixed_dictionaries({NAMES[kind]: st.none() | values for kind, (values, _) in VALUES.items()}),
    max_size=8,
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {}
    for kind, name in NAMES.items():
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        column = pa.array([row[name] for row in rows], plain)
        columns[name] = column.dictionary_encode().cast(kind) if plain != kind else column
    return pa.record_batch(columns)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(ROWS, CONDITIONS)
def test_a_condition_has_the_truth_of_the_model(rows: list[dict[str, Any]], modelled: Modelled) -> None:
    condition, model = modelled
    batch = batch_of(rows)
    assert why_not_compared(condition, batch.schema) == ""
    assert truth_of(condition, batch).to_pylist() == [model(row) for row in batch.to_pylist()]


def test_in_and_between_are_comparisons() -> None:
    batch = pa.record_batch({"x": pa.array([1, 2, None, 4, 5], pa.int16())})
    assert truth_of(col("x").in_(1, 4), batch).to_pylist() == [True, False, None, True, False]
    assert truth_of(~col("x").in_(1, 4), batch).to_pylist() == [False, True, None, False, True]
    assert truth_of(col("x").between(2, 4), batch).to_pylist() == [False, True, None, True, False]
    assert truth_of(col("x").is_not_null, batch).to_pylist() == [True, True, False, True, True]


def test_reals_are_compared_as_in_python() -> None:
    batch = pa.record_batch({"x": pa.array([math.nan, -0.0, 0.1], pa.float32())})
    assert truth_of(col("x") != 3, batch).to_pylist() == [True, True, True]
    assert truth_of(col("x") > -math.inf, batch).to_pylist() == [False, True, True]
    assert truth_of(col("x") == 0, batch).to_pylist() == [False, True, False]
    # The column holds the float of 32 bits next to 0.1, which is larger.
    assert truth_of(col("x") > 0.1, batch).to_pylist() == [False, False, True]


# ---------------------------------------------------------------------- programs

ROW = Types.ROW_NAMED(["name", "number"], [Types.STRING(), Types.LONG()])
PEOPLE = [Row("ann", 3), Row("bob", 8), Row("eve", 5)]


def test_rows_become_columns_that_are_filtered_and_selected() -> None:
    env = environment(1)
    people = env.from_collection(PEOPLE, ROW)
    found = people.filter((col("number") > 3) & (col("name") != "eve")).select("number", "name")
    assert found.is_columnar
    assert collect(env, found.to_rows(as_tuple=True)) == [(8, "bob")]


def test_an_arrow_expression_filters_columns() -> None:
    env = environment(1)
    people = env.from_collection([*PEOPLE, Row("zoe", None)], ROW)
    found = people.filter((pc.field("number") > 3) & ~pc.field("name").isin(["eve"]))
    assert found.is_columnar
    assert collect(env, found.to_rows(as_tuple=True)) == [("bob", 8)]


def test_a_schema_that_is_known_late_is_checked_by_the_operator() -> None:
    def run(build: Callable[[Any], Any]) -> str:
        env = environment(1)
        batches = env.from_collection(PEOPLE, ROW).map_batches(lambda batch: batch)
        with pytest.raises(OperatorFailure) as failed:
            collect(env, build(batches).to_rows())
        return str(failed.value.__cause__)

    assert run(lambda s: s.filter(col("age") > 3)) == (
        "operator 'Filter': there is no column 'age'; the stream has ['name', 'number']"
    )
    assert "column 'number' is of type int64: compare it with a whole number" in run(
        lambda s: s.filter(col("number") == "3")
    )
    assert "operator 'Select': there is no column 'age'" in run(lambda s: s.select("age"))
    assert run(lambda s: s.filter(pc.field("age") > 3)) == (
        "operator 'Filter': there is no column 'age'; the stream has ['name', 'number']"
    )
    assert "'Filter': the Arrow expression number is of type int64" in run(
        lambda s: s.filter(pc.field("number"))
    )


def test_an_arrow_expression_that_fails_on_a_row_fails_the_job_with_operator_and_row() -> None:
    env = environment(1)
    people = env.from_collection([*PEOPLE, Row("zoe", 0)], ROW)
    with pytest.raises(OperatorFailure) as failed:
        collect(env, people.filter(pc.divide(pc.scalar(9), pc.field("number")) > 1).to_rows())
    assert failed.value.operator_name == "Filter"
    assert "fails on row 3 of a batch, with number = 0: divide by zero" in str(failed.value.__cause__)


def test_what_is_refused_while_the_program_is_built() -> None:
    people = environment(1).from_collection(PEOPLE, ROW)
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: people.filter(col("age") > 3), "filter: there is no column 'age'"),
        (
            lambda: people.filter(col("number") > 3.5),
            "compare it with a whole number, not with the float 3.5",
        ),
        (lambda: people.filter(col("number") == True), "not with the boolean True"),  # noqa: E712
        (lambda: people.filter(pc.field("age") > 3), "filter: there is no column 'age'"),
        (lambda: people.filter(pc.field("number") + 1), "is of type int64, and a condition is a boolean"),
        (lambda: people.filter(pc.field(1) > 3), "Name each column, as in pc.field"),
        (lambda: people.select("age"), "select: there is no column 'age'"),
        (lambda: people.select("name", "name"), "are named twice"),
        (lambda: people.select(), "select takes names of columns"),
    ]
    for call, why in refused:
        with pytest.raises(InvalidProgramError, match=why.replace("(", r"\(")):
            call()
