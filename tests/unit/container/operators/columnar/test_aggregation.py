"""Running aggregates of columns against plain Python, whatever the batch boundaries are."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.operators.columnar.columns import KEY_COLUMNS, array_of, cut, times_of
from yarrow.common.types import Row
from yarrow.container.operators.columnar.aggregate_columns import AggregationError
from yarrow.container.operators.columnar.columnar_aggregation import VectorizedAggregation
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.graph.column_spec import ArrowAggregateOperator
from yarrow.runtime.graph.operator_spec import AggregateKind, ColumnAggregate

K = AggregateKind


def _operator(*aggregates: ColumnAggregate) -> VectorizedAggregation:
    return VectorizedAggregation("totals", ArrowAggregateOperator(key_column="key", aggregates=aggregates))


def _of(kind: AggregateKind, column: str | None = "value") -> ColumnAggregate:
    return ColumnAggregate(kind, column, kind.value)


def _final(operator: VectorizedAggregation, batches: Sequence[ArrowBatch]) -> dict[Any, dict[str, Any]]:
    """The last row emitted for each canonical key."""
    final = {}
    for batch in batches:
        for result in operator.process_batch(batch):
            keys = set()
            for row in result.batch.to_pylist():
                key = row.pop("key")
                key = canonicalize(Row(**key) if isinstance(key, dict) else key)
                assert key not in keys, "a key came twice in one result"
                keys.add(key)
                final[key] = row
    return final


def _batch(keys: Any, values: Any, **more: Any) -> ArrowBatch:
    return ArrowBatch(pa.record_batch([keys, values], names=["key", "value"]), **more)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEY_COLUMNS)
@settings(max_examples=25)
@given(data=st.data())
def test_sums_by_every_type_of_key(name: str, data: st.DataObject) -> None:
    kind, keys_of = KEY_COLUMNS[name]
    keys = data.draw(st.lists(st.none() | keys_of, min_size=1, max_size=30))
    values = data.draw(st.lists(st.none() | st.integers(-99, 99), min_size=len(keys), max_size=len(keys)))
    cuts = data.draw(st.lists(st.integers(0, 30), max_size=4))
    batches = cut({"key": array_of(keys, kind), "value": pa.array(values, pa.int64())}, cuts)
    final = _final(_operator(_of(K.SUM), _of(K.COUNT, None)), batches)
    expected: dict[Any, dict[str, Any]] = {}
    for key, value in zip(keys, values, strict=True):
        row = expected.setdefault(
            canonicalize(Row(**key) if isinstance(key, dict) else key), {"sum": None, "count": 0}
        )
        row["count"] += 1
        if value is not None:
            row["sum"] = (row["sum"] or 0) + value
    assert final == expected


def _greatest(values: list[Any]) -> Any:
    return math.nan if any(value != value for value in values) else max(values)


def _least(values: list[Any]) -> Any:
    numbers = [value for value in values if value == value]
    return min(numbers) if numbers else math.nan


_plain = st.integers(-1000, 1000)
VALUE_COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any], tuple[AggregateKind, ...]]] = {
    "int8": (pa.int8(), st.integers(-128, 127), (K.SUM, K.MIN, K.MAX, K.MEAN)),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1), (K.SUM, K.MIN, K.MAX, K.MEAN)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), (K.MIN, K.MAX)),
    "uint64": (pa.uint64(), st.integers(0, 2**58), (K.SUM, K.MIN, K.MAX)),
    "bool": (pa.bool_(), st.booleans(), (K.SUM, K.MIN, K.MAX, K.MEAN)),
    "float64": (pa.float64(), st.floats(), (K.MIN, K.MAX)),
    "float32": (pa.float32(), st.floats(width=32), (K.MIN, K.MAX)),
    "whole floats": (pa.float64(), _plain.map(float), (K.SUM, K.MEAN)),
    "date": (pa.date32(), st.dates(), (K.MIN, K.MAX)),
    "timestamp": (pa.timestamp("us"), st.datetimes(), (K.MIN, K.MAX)),
    "duration": (pa.duration("s"), _plain.map(lambda s: dt.timedelta(seconds=s)), (K.SUM, K.MIN, K.MAX)),
    "string": (pa.string(), st.text(max_size=3), (K.MIN, K.MAX)),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from("abc"), (K.MIN, K.MAX)),
    "decimal": (pa.decimal128(9, 2), _plain.map(lambda v: Decimal(v) / 100), (K.SUM, K.MIN, K.MAX)),
}
_expected: dict[AggregateKind, Callable[[list[Any]], Any]] = {
    K.SUM: lambda values: sum(values[1:], start=values[0]),
    K.MIN: _least,
    K.MAX: _greatest,
    K.MEAN: lambda values: sum(values) / len(values),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUE_COLUMNS)
@settings(max_examples=25)
@given(data=st.data())
def test_aggregates_of_every_type_of_value(name: str, data: st.DataObject) -> None:
    kind, values_of, kinds = VALUE_COLUMNS[name]
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), st.none() | values_of), min_size=1, max_size=30))
    cuts = data.draw(st.lists(st.integers(0, 30), max_size=4))
    keys = pa.array([key for key, _ in rows], pa.int64())
    column = array_of([value for _, value in rows], kind)
    final = _final(_operator(*map(_of, kinds)), cut({"key": keys, "value": column}, cuts))
    of_key: dict[int, list[Any]] = {key: [] for key, _ in rows}
    for (key, _), value in zip(rows, column.to_pylist(), strict=True):
        if value is not None:
            of_key[key].append(value)
    for key, values in of_key.items():
        for aggregate in kinds:
            expected = _expected[aggregate](values) if values else None
            got = final[key][aggregate.value]
            assert (
                got == pytest.approx(expected, nan_ok=True)
                if isinstance(expected, float)
                else got == expected
            )


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=30))
def test_sums_are_exact_or_refused(rows: list[tuple[int, int]]) -> None:
    operator, sums = _operator(_of(K.SUM)), {0: 0, 1: 0}
    for start in range(0, len(rows), 4):
        part = rows[start : start + 4]
        after = dict(sums)
        for key, value in part:
            after[key] += value
        batch = _batch(pa.array([key for key, _ in part]), pa.array([value for _, value in part]))
        if all(-(2**63) <= value < 2**63 for value in after.values()):
            assert _final(operator, [batch]) == {key: {"sum": after[key]} for key, _ in part}
            sums = after
        else:
            with pytest.raises(AggregationError, match=r"'totals'.*'value'.*key [01] is"):
                operator.process_batch(batch)
            return


def test_an_overflow_of_uint64_is_found() -> None:
    operator = _operator(_of(K.SUM))
    batch = _batch(pa.array(["a"]), pa.array([2**64 - 1], pa.uint64()))
    assert _final(operator, [batch]) == {"a": {"sum": 2**64 - 1}}
    with pytest.raises(AggregationError, match=r"key 'a' is 36893488147419103230, which does not fit uint64"):
        operator.process_batch(batch)


def test_a_batch_gives_one_row_a_key_with_the_time_of_its_last_row() -> None:
    batch = _batch(pa.array([1, 2, 1]), pa.array([10, 20, 30]), timestamps=pa.array([5, 6, 7]))
    (result,) = _operator(_of(K.SUM)).process_batch(batch)
    assert result.batch.to_pylist() == [{"key": 2, "sum": 20}, {"key": 1, "sum": 40}]
    assert times_of(result) == [6, 7]


def test_types_of_the_result() -> None:
    keys = pa.array(["a"]).dictionary_encode()
    (result,) = _operator(_of(K.SUM), _of(K.MIN), _of(K.MEAN)).process_batch(
        _batch(keys, pa.array([1], pa.int16()))
    )
    assert result.batch.schema.types == [keys.type, pa.int64(), pa.int16(), pa.float64()]


def test_more_keys_than_a_batch_has_rows() -> None:
    operator = _operator(_of(K.SUM))
    keys = np.arange(200_000)
    final = _final(
        operator,
        [_batch(pa.array(part), pa.array(part)) for part in np.array_split(np.concatenate((keys, keys)), 7)],
    )
    assert len(final) == operator.keys == 200_000
    assert all(row["sum"] == 2 * key for key, row in final.items())


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.record_batch({"key": [1], "other": [1]}), r"no column named 'value'.*\['key', 'other'\]"),
        (
            pa.record_batch({"key": [1], "value": ["x"]}),
            "sum of column 'value': a column of type string has no sum",
        ),
        (pa.record_batch({"key": [[1]], "value": [1]}), "key column 'key'"),
    ],
)
def test_what_cannot_be_aggregated_names_the_column(batch: Any, message: str) -> None:
    with pytest.raises(AggregationError, match=f"'totals'.*{message}"):
        _operator(_of(K.SUM)).process_batch(ArrowBatch(batch))


def test_a_change_of_type_is_refused() -> None:
    operator = _operator(_of(K.SUM))
    operator.process_batch(_batch(pa.array([1]), pa.array([1])))
    with pytest.raises(AggregationError, match=r"'value' is of type double, .* was int64"):
        operator.process_batch(_batch(pa.array([1]), pa.array([1.5])))


def test_updates_and_whole_rows_are_refused() -> None:
    with pytest.raises(AggregationError, match="updates or deletions"):
        _operator(_of(K.SUM)).process_batch(_batch(pa.array([1]), pa.array([1]), kinds=b"\x03"))
    with pytest.raises(UnsupportedFeatureError, match="min_by keeps whole rows"):
        _operator(_of(K.MIN_BY))
