"""Aggregates computed elsewhere become exactly what the operator itself gives: values, nulls, names and types."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.operators.columnar.columnar_aggregation import VectorizedAggregation
from yarrow.container.operators.columnar.sql_results import (
    Computed,
    SqlResultError,
    SqlResults,
    computed_columns,
)
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.batch.batch_sql import why_inexact
from yarrow.runtime.graph.column_spec import ArrowAggregateOperator, SqlResultsOperator
from yarrow.runtime.graph.operator_spec import AggregateKind, ColumnAggregate, KeyColumns, KeyedAggregates

K = AggregateKind
_INSTANTS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1))
#: The type of a column, the type in which Spark gives it back, and its values.
COLUMNS: dict[str, tuple[pa.DataType, pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), pa.bool_(), st.booleans()),
    "int8": (pa.int8(), pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), pa.int64(), st.integers(-(2**40), 2**40)),
    "uint8": (pa.uint8(), pa.int16(), st.integers(0, 255)),
    "uint16": (pa.uint16(), pa.int32(), st.integers(0, 65_535)),
    "uint32": (pa.uint32(), pa.int64(), st.integers(0, 2**32 - 1)),
    "float32": (pa.float32(), pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), pa.float64(), st.floats()),
    "string": (pa.string(), pa.string(), st.text(max_size=3)),
    "large_string": (pa.large_string(), pa.string(), st.text(max_size=3)),
    "coded": (pa.dictionary(pa.int8(), pa.string()), pa.string(), st.text(max_size=2)),
    "date": (pa.date32(), pa.date32(), st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    "naive": (pa.timestamp("us"), pa.timestamp("us"), _INSTANTS),
    "zoned": (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC"), _INSTANTS),
}
KEYS = [name for name in COLUMNS if not name.startswith("float")]
KINDS = (K.SUM, K.MEAN, K.MIN, K.MAX, K.COUNT)


def aggregates_of(schema: pa.Schema, keys: KeyColumns) -> KeyedAggregates:
    """Every aggregate that is computed elsewhere, over column `v`, and the number of rows."""
    each = (ColumnAggregate(kind, "v", f"v {kind.value}") for kind in KINDS)
    exact = [item for item in each if not why_inexact(schema, KeyedAggregates(keys, (item,)))]
    return KeyedAggregates(keys, (*exact, ColumnAggregate(K.COUNT, None, "rows")))


def best(what: AggregateKind, values: Sequence[Any]) -> Any:
    """As Spark orders values: NaN is above all others."""
    numbers = [value for value in values if value == value]
    if what is K.MIN:
        return min(numbers) if numbers else math.nan
    return max(numbers) if len(numbers) == len(values) else math.nan


def computed_by_hand(computed: Computed, rows: Sequence[dict[str, Any]], plain: pa.DataType) -> pa.Scalar:
    """What Spark SQL gives for the rows of one key, with its type."""
    if computed.column is None:
        return pa.scalar(len(rows), pa.int64())
    values = [row[computed.column] for row in rows if row[computed.column] is not None]
    if computed.what is K.COUNT:
        return pa.scalar(len(values), pa.int64())
    if computed.what is K.SUM:
        return pa.scalar(sum(values) if values else None, pa.int64())
    return pa.scalar(best(computed.what, values) if values else None, plain)


def column_of(values: Sequence[Any], plain: pa.DataType, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, plain).dictionary_encode().cast(kind)
    return pa.array(values, plain).cast(kind)


def of_operator(rows: pa.RecordBatch, aggregates: KeyedAggregates) -> pa.RecordBatch:
    spec = ArrowAggregateOperator(key_column=aggregates.key_column, aggregates=aggregates.aggregates)
    (result,) = VectorizedAggregation("totals", spec).process_batch(ArrowBatch(rows))
    return result.batch


def in_words(batch: pa.RecordBatch) -> list[str]:
    """Rows as text, in one order: NaN is NaN there, and -0.0 is not 0.0."""
    return sorted(repr(row) for row in batch.to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("value", COLUMNS)
@settings(max_examples=30)
@given(data=st.data())
def test_results_are_those_of_the_operator(value: str, data: st.DataObject) -> None:
    key_name = data.draw(st.sampled_from(KEYS))
    (key_type, plain_key, keys_of), (kind, plain, values_of) = COLUMNS[key_name], COLUMNS[value]
    pairs = data.draw(
        st.lists(st.tuples(st.none() | keys_of, st.none() | values_of), min_size=1, max_size=12)
    )
    schema = pa.schema([("k", key_type), ("v", kind)])
    keys, values = zip(*pairs, strict=True)
    given_rows = pa.record_batch(
        [column_of(keys, plain_key, key_type), column_of(values, plain, kind)], schema=schema
    )
    aggregates = aggregates_of(schema, "k")
    rows = [dict(zip("kv", pair, strict=True)) for pair in pairs]
    by_key: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        by_key.setdefault(row["k"], []).append(row)
    wanted = computed_columns(aggregates)
    columns = [pa.array(list(by_key), plain_key)]
    for each in wanted:
        found = [computed_by_hand(each, of_key, plain) for of_key in by_key.values()]
        columns.append(pa.array([scalar.as_py() for scalar in found], found[0].type))
    raw = pa.record_batch(columns, names=[f"x{at}" for at in range(len(columns))])
    operator = SqlResults(
        "files", SqlResultsOperator(schema=schema.serialize().to_pybytes(), aggregates=aggregates)
    )
    (result,) = operator.process_batch(ArrowBatch(raw))
    expected = of_operator(given_rows, aggregates)
    assert result.batch.schema == expected.schema
    assert in_words(result.batch) == in_words(expected)
    assert result.timestamps is None


def test_a_type_that_was_not_expected_is_named() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int32())])
    aggregates = KeyedAggregates("k", (ColumnAggregate(K.MAX, "v", "best"),))
    operator = SqlResults(
        "files", SqlResultsOperator(schema=schema.serialize().to_pybytes(), aggregates=aggregates)
    )
    batch = pa.record_batch([pa.array(["a"]), pa.array(["7"])], names=["k", "r0"])
    with pytest.raises(SqlResultError) as raised:
        list(operator.process_batch(ArrowBatch(batch)))
    assert "operator 'files': Spark SQL gives column 'best' the type string, and int32 is expected" in str(
        raised.value
    )
