"""Conditions over columns: which values each type of column is compared with, and their way into a job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common.values.conditions import (
    AllOf,
    AnyCondition,
    AnyOf,
    Comparison,
    ComparisonKind,
    Condition,
    Literal,
    LiteralKind,
    Negation,
    NullCheck,
)
from yarrow.runtime.columns.condition_checks import why_not_compared
from yarrow.runtime.graph.job_graph import decode_job_graph, encode_job_graph
from yarrow.table.expressions import col


@pytest.mark.parametrize(
    ("kind", "condition", "why"),
    [
        (pa.decimal128(9, 2), col("x") > 1, "which has no built-in comparison"),
        (pa.binary(), col("x") == "a", "which has no built-in comparison"),
        (pa.uint64(), col("x") > -1, "never below 0"),
        (pa.float64(), col("x") == 2**53 + 1, "no float is exactly 9007199254740993"),
        (pa.timestamp("us"), col("x") < dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "timestamp without a zone"),
        (pa.timestamp("us", "UTC"), col("x") < dt.datetime(2020, 1, 1), "timestamp with a zone"),
        (pa.date32(), col("x") < dt.datetime(2020, 1, 1), "compare it with a date"),
        (pa.string(), col("x") > 1, "compare it with a text"),
        (pa.decimal128(9, 2), col("x").is_null, ""),
    ],
)
def test_which_values_a_column_is_compared_with(kind: pa.DataType, condition: Condition, why: str) -> None:
    found = why_not_compared(condition, pa.schema([("x", kind)]))
    assert why in found and bool(why) is bool(found)


def parts_of(condition: AnyCondition) -> Iterator[AnyCondition]:
    yield condition
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from parts_of(part)
        case Negation(part):
            yield from parts_of(part)


def test_conditions_travel_with_the_job() -> None:
    env = environment(1)
    values: list[AnyCondition] = [
        Comparison("x", kind, Literal(LiteralKind.INTEGER, number))
        for number, kind in enumerate(ComparisonKind)
    ]
    values += [
        Comparison("x", ComparisonKind.EQUAL, Literal(LiteralKind.FLOAT, 3.0)),
        Comparison("x", ComparisonKind.EQUAL, Literal(LiteralKind.BOOLEAN, True)),
        Comparison("x", ComparisonKind.EQUAL, Literal(LiteralKind.TEXT, "3")),
    ]
    condition = ~AllOf((AnyOf(tuple(values)), Negation(NullCheck("y"))))
    env.from_collection([]).to_arrow(pa.schema([("x", pa.int64())])).map_batches(lambda batch: batch).filter(
        condition
    ).print()
    graph = decode_job_graph(encode_job_graph(env.get_job_graph()))
    (found,) = (
        each.spec.condition
        for vertex in graph.vertices
        for each in vertex.operators
        if each.spec.condition is not None
    )
    assert found == condition
    assert [repr(each) for each in parts_of(found)] == [repr(each) for each in parts_of(condition)]
