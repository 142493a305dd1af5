"""filter by conditions over columns, and select, against plain Python: each type, nulls, NaN, and the logic of SQL."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from tests.support.batch_runner import collect
from tests.support.modelled_conditions import CONDITIONS, ROWS, Modelled, batch_of
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types
from yarrow.common.types import Row
from yarrow.container.operators.columnar.column_selection import truth_of
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.runtime.columns.condition_checks import why_not_compared
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.table.expressions import col


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
