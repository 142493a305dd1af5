"""The vectorised form agrees with the row form for every Arrow type."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.stored_keys import key_groups
from yarrow.common.types import Row
from yarrow.runtime.data.errors import ColumnKeyError
from yarrow.runtime.data.key_groups import key_group_of
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.data.vectorized_keys import distinct_keys

GROUPS = 1009


def _raw(value: Any) -> Any:
    return Row(**{name: _raw(item) for name, item in value.items()}) if isinstance(value, dict) else value


def _expected(values: list[Any]) -> list[int]:
    return [key_group_of(canonicalize(_raw(value)), GROUPS) for value in values]


def _agrees(column: Any, values: list[Any] | None = None) -> None:
    expected = _expected(column.to_pylist() if values is None else values)
    assert key_groups(column, GROUPS).tolist() == expected
    codes, distinct = distinct_keys(column)
    assert [key_group_of(distinct[code], GROUPS) for code in codes.tolist()] == expected


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_moments = st.datetimes(min_value=dt.datetime(1800, 1, 1), max_value=dt.datetime(2200, 1, 1))
_seconds = _moments.map(lambda moment: moment.replace(microsecond=0))
_durations = st.timedeltas(dt.timedelta(microseconds=-(2**63)), dt.timedelta(microseconds=2**63 - 1))
COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    **{f"int{bits}": (getattr(pa, f"int{bits}")(), _signed(bits)) for bits in (8, 16, 32, 64)},
    **{
        f"uint{bits}": (getattr(pa, f"uint{bits}")(), st.integers(0, 2**bits - 1)) for bits in (8, 16, 32, 64)
    },
    "bool": (pa.bool_(), st.booleans()),
    "float16": (pa.float16(), st.floats(width=16)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (
        pa.float64(),
        st.floats() | st.integers(-5, 5).map(float) | st.sampled_from([2.0**63, -(2.0**63), -0.0, 1e300]),
    ),
    "string": (pa.string(), st.text(max_size=4)),
    "large_string": (pa.large_string(), st.text(max_size=4)),
    "string_view": (pa.string_view(), st.text(max_size=20)),
    "binary": (pa.binary(), st.binary(max_size=4)),
    "large_binary": (pa.large_binary(), st.binary(max_size=4)),
    "fixed_size_binary": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", ""])),
    "dictionary of floats": (pa.dictionary(pa.int32(), pa.float64()), st.sampled_from([1.0, 0.5, -0.0])),
    "decimal32": (pa.decimal32(7, 2), st.decimals(-999, 999, places=2)),
    "decimal64": (pa.decimal64(12, 3), st.decimals(-999, 999, places=3)),
    "decimal128": (pa.decimal128(30, 2), st.decimals(-(10**20), 10**20, places=2) | st.just(Decimal("0.50"))),
    "decimal256": (pa.decimal256(60, 1), st.decimals(-(10**40), 10**40, places=1)),
    "date32": (pa.date32(), st.dates()),
    "date64": (pa.date64(), st.dates()),
    "time32[s]": (pa.time32("s"), st.times().map(lambda t: t.replace(microsecond=0))),
    "time64[us]": (pa.time64("us"), st.times()),
    "time64[ns]": (pa.time64("ns"), st.times()),
    "timestamp[s]": (pa.timestamp("s"), _seconds),
    "timestamp[ms]": (pa.timestamp("ms"), _seconds),
    "timestamp[us]": (pa.timestamp("us"), _moments),
    "timestamp[ns]": (pa.timestamp("ns"), _moments),
    "timestamp[us, Berlin]": (
        pa.timestamp("us", "Europe/Berlin"),
        _moments.map(lambda m: m.replace(tzinfo=dt.UTC)),
    ),
    "duration[s]": (pa.duration("s"), st.timedeltas().map(lambda d: dt.timedelta(d.days, d.seconds))),
    "duration[ms]": (pa.duration("ms"), st.timedeltas().map(lambda d: dt.timedelta(d.days, d.seconds, 5000))),
    "duration[us]": (pa.duration("us"), _durations),
    "duration[ns]": (pa.duration("ns"), st.timedeltas(dt.timedelta(days=-99_999), dt.timedelta(days=99_999))),
    "null": (pa.null(), st.none()),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]),
        st.builds(
            lambda a, b: {"a": a, "b": b},
            st.none() | _signed(8),
            st.none() | st.builds(lambda c: {"c": c}, st.sampled_from("xy")),
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=40)
@given(st.data())
def test_each_type_agrees_with_the_row_form(name: str, data: st.DataObject) -> None:
    kind, strategy = COLUMNS[name]
    values = data.draw(st.lists(st.none() | strategy, max_size=12))
    column = pa.array(values, kind)
    start = data.draw(st.integers(0, len(values)))
    _agrees(column, values)
    _agrees(column.slice(start), values[start:])
    _agrees(pa.chunked_array([column.slice(0, start), column.slice(start)], kind), values)


def test_integral_floats_and_integers_meet() -> None:
    assert key_groups(pa.array([1.0, -0.0]), GROUPS).tolist() == key_groups(pa.array([1, 0]), GROUPS).tolist()
    assert (
        key_groups(pa.array([True, False]), GROUPS).tolist() == key_groups(pa.array([1, 0]), GROUPS).tolist()
    )


def test_dictionaries_with_nulls_on_both_levels() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1]), pa.array(["x", None]))
    _agrees(column, ["x", None, None, None])
    _agrees(pa.array([None, None], pa.dictionary(pa.int8(), pa.string())))
    chunks = [pa.array(["a"]).dictionary_encode(), pa.array(["b", "a"]).dictionary_encode()]
    _agrees(pa.chunked_array(chunks))


def test_uuids_and_empty_columns() -> None:
    values = [uuid.UUID(int=5), None]
    _agrees(pa.array([None if v is None else v.bytes for v in values], pa.uuid()), values)
    _agrees(pa.array([], pa.int64()))
    _agrees(pa.chunked_array([], pa.string()))
    _agrees(pa.array([{}, None], pa.struct([])), [{}, None])


@pytest.mark.parametrize(
    ("column", "row"),
    [
        (pa.array([0, 1000, 1], pa.timestamp("ns")), "row 2 .*microsecond"),
        (pa.array([0, 1500], pa.int64()).view(pa.time64("ns")), "row 1 .*microsecond"),
        (pa.array([None, 10**15], pa.timestamp("s")), "row 1 .*years"),
        (pa.array([2**31 - 1], pa.int32()).view(pa.date32()), "row 0 .*years"),
        (pa.array([-1], pa.int64()).view(pa.time64("us")), "row 0 .*time of day"),
    ],
)
def test_values_without_a_row_key_name_their_row(column: Any, row: str) -> None:
    for form in (lambda: key_groups(column, GROUPS), lambda: distinct_keys(column)):
        with pytest.raises(ColumnKeyError, match=row):
            form()


@pytest.mark.parametrize(
    "column", [pa.array([[1]]), pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))]
)
def test_types_without_a_row_key_are_named(column: Any) -> None:
    with pytest.raises(ColumnKeyError, match="cannot be a key"):
        key_groups(column, GROUPS)


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_durations_longer_than_a_timedelta_are_refused_by_row(unit: str) -> None:
    factor = 1000 if unit == "ms" else 1
    most, least = dt.timedelta.max // dt.timedelta(seconds=1) * factor, -(86_400 * 999_999_999) * factor
    _agrees(pa.array([most, least, None, 0], pa.int64()).view(pa.duration(unit)))
    for number in (most + factor, least - 1):
        column = pa.array([0, number], pa.int64()).view(pa.duration(unit))
        for asked in (key_groups, lambda column, groups: distinct_keys(column)):
            with pytest.raises(ColumnKeyError, match=r"row 1 .*longer than a timedelta"):
                asked(column, GROUPS)


def test_durations_with_a_fraction_of_a_microsecond_are_refused_by_row() -> None:
    with pytest.raises(ColumnKeyError, match=r"row 1 .*fraction of a microsecond"):
        key_groups(pa.array([1000, 1], pa.int64()).view(pa.duration("ns")), GROUPS)


def test_rows_numpy_and_arrow_agree_on_durations() -> None:
    spans = [dt.timedelta(seconds=n) for n in range(-5, 5)]
    rows = [key_group_of(canonicalize(span), GROUPS) for span in spans]
    numbers = [key_group_of(canonicalize(np.timedelta64(n, "s")), GROUPS) for n in range(-5, 5)]
    assert rows == numbers == key_groups(pa.array(spans, pa.duration("ns")), GROUPS).tolist()
