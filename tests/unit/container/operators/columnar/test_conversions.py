"""Rows to record batches and back: round trips of every shape and type, and errors that name row and field."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.operators.columnar.columns import times_of
from yarrow.common.time import Instant
from yarrow.common.types import Row, RowKind
from yarrow.container.operators.columnar.conversions import (
    ArrowToRowsConverter,
    ConversionError,
    RowsToArrowConverter,
)
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.column_spec import ArrowToRowsOperator, RowsToArrowOperator

PAIR = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def _converted(rows: list[Any], schema: Any = PAIR, stamps: list[int | None] | None = None) -> ArrowBatch:
    converter = RowsToArrowConverter(
        "to columns", RowsToArrowOperator(schema=schema.serialize().to_pybytes())
    )
    delivered: list[ArrowBatch] = []
    converter.deliver = delivered.append
    converter.take_rows(rows, stamps)
    (batch,) = delivered
    batch.batch.validate(full=True)
    assert batch.batch.schema == schema
    return batch


def _column(values: list[Any], kind: Any, nullable: bool = True) -> Any:
    return _converted(
        [(value,) for value in values], pa.schema([pa.field("c", kind, nullable)])
    ).batch.column(0)


def _rows(batch: ArrowBatch, as_tuple: bool = False) -> list[Any]:
    rows, _ = ArrowToRowsConverter("to rows", ArrowToRowsOperator(as_tuple=as_tuple)).to_rows(batch)
    return rows


@dataclasses.dataclass
class User:
    """Fields in another order than the columns."""

    name: str | None
    id: int


class NamedUser(NamedTuple):
    """Fields as the columns."""

    id: int
    name: str | None


class Unnamed(NamedTuple):
    """Fields of other names."""

    x: int
    y: str


@pytest.mark.parametrize(
    "rows",
    [
        [(1, "a"), (2, None)],
        [[1, "a"], [2, None]],
        [Row(1, "a"), Row(2, None)],
        [Row(name="a", id=1), Row(id=2, name=None)],
        [{"id": 1, "name": "a"}, {"id": 2}],
        [{"name": "a", "id": 1}, {"name": None, "id": 2}],
        [User("a", 1), User(None, 2)],
        [NamedUser(1, "a"), NamedUser(2, None)],
        [(1, "a"), User(None, 2)],
    ],
)
def test_rows_of_every_shape(rows: list[Any]) -> None:
    assert _converted(rows).batch.to_pydict() == {"id": [1, 2], "name": ["a", None]}


def test_named_tuples_fit_columns_without_names_of_their_own() -> None:
    schema = pa.schema([("f0", pa.int64()), ("f1", pa.string())])
    assert _converted([Unnamed(1, "a")], schema).batch.to_pydict() == {"f0": [1], "f1": ["a"]}


def test_single_values_maps_and_lists_of_one_column() -> None:
    assert _converted([1, None], pa.schema([("value", pa.int64())])).batch.to_pydict() == {"value": [1, None]}
    lists = pa.schema([("value", pa.list_(pa.int64()))])
    assert _converted([[1, None], [], None], lists).batch.to_pydict() == {"value": [[1, None], [], None]}
    maps = _converted([{"a": 1}, {}], pa.schema([("value", pa.map_(pa.string(), pa.int64()))]))
    assert _rows(maps, as_tuple=True) == [({"a": 1},), ({},)]
    assert _converted([{"value": 1}], pa.schema([("value", pa.int64())])).batch.to_pydict() == {"value": [1]}


def test_timestamps_and_kinds_go_along() -> None:
    deleted = Row.of_kind(RowKind.DELETE, 2, "b")
    batch = _converted([Row(1, "a"), deleted], stamps=[5, None])
    assert (batch.kinds, times_of(batch)) == (b"\x00\x03", [5, None])
    rows, stamps = ArrowToRowsConverter("to rows", ArrowToRowsOperator()).to_rows(batch)
    assert [row.get_row_kind() for row in rows] == [RowKind.INSERT, RowKind.DELETE]
    assert stamps == [5, None]
    with pytest.raises(ConversionError, match="which a tuple cannot show"):
        _rows(batch, as_tuple=True)


class Level(enum.IntEnum):
    """An int to Python."""

    LOW = 1


def test_values_that_fit() -> None:
    assert _column([np.int8(1), Level.LOW, -5], pa.int16()).to_pylist() == [1, 1, -5]
    assert _column([1, 0.5, np.float32(2)], pa.float64()).to_pylist() == [1.0, 0.5, 2.0]
    assert _column([bytearray(b"a"), memoryview(b"b")], pa.binary()).to_pylist() == [b"a", b"b"]
    assert _column([1, Decimal("1.5")], pa.decimal128(5, 2)).to_pylist() == [Decimal("1.00"), Decimal("1.50")]
    assert _column(["a", None, "a"], pa.dictionary(pa.int32(), pa.string())).to_pylist() == ["a", None, "a"]
    east = dt.timezone(dt.timedelta(hours=2))
    instants = _column([dt.datetime(2020, 1, 1, 2, tzinfo=east), None], pa.timestamp("ns", "UTC"))
    assert instants.cast(pa.int64()).to_pylist() == [1577836800 * 10**9, None]
    mixed = _column([Instant(1, 5), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)], pa.timestamp("ns", "UTC"))
    assert mixed.cast(pa.int64()).to_pylist() == [1_000_000_005, 0]


NESTED = pa.struct(
    [pa.field("n", pa.int8(), nullable=False), ("inner", pa.struct([("when", pa.timestamp("ns"))]))]
)


def test_nested_rows_become_rows_again() -> None:
    when = dt.datetime(2020, 1, 1)
    values = [Row(n=1, inner=Row(when=when)), None, {"n": 2, "inner": None}]
    batch = _converted([(value,) for value in values], pa.schema([("c", NESTED)]))
    expected = [Row(n=1, inner=Row(when=when)), None, Row(n=2, inner=None)]
    assert [row["c"] for row in _rows(batch)] == expected
    lists = _converted([([Row(when=when), None],)], pa.schema([("c", pa.list_(NESTED.field(1).type))]))
    assert _rows(lists, as_tuple=True) == [([Row(when=when), None],)]


@pytest.mark.parametrize(
    ("values", "kind", "row", "message"),
    [
        ([1, 2, 300], pa.int8(), 2, "field 'c' .* expected an int for a column of int8, got int 300"),
        ([1, 1.5], pa.int64(), 1, "got float 1.5"),
        ([1.0], pa.int64(), 0, "got float 1.0"),
        ([True], pa.int64(), 0, "got bool True"),
        ([2**53 + 1], pa.float64(), 0, "expected a float"),
        (["1"], pa.float64(), 0, "got str '1'"),
        ([1], pa.bool_(), 0, "expected a bool"),
        (["a", b"b"], pa.string(), 1, "expected a str for a column of string, got bytes"),
        (["a"], pa.binary(), 0, "expected bytes"),
        ([dt.datetime(2020, 1, 1)], pa.timestamp("us", "UTC"), 0, "expected an aware datetime"),
        ([None, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us"), 1, "expected a naive datetime"),
        ([dt.datetime(2020, 1, 1, 0, 0, 0, 5)], pa.timestamp("ms"), 0, r"column of timestamp\[ms\]"),
        ([dt.datetime(9999, 1, 1)], pa.timestamp("ns"), 0, "naive datetime"),
        ([dt.datetime(2020, 1, 1)], pa.date32(), 0, "expected a date"),
        ([dt.date(2020, 1, 1)], pa.timestamp("us"), 0, "got date"),
        ([dt.time(1, tzinfo=dt.UTC)], pa.time64("us"), 0, "a time without a zone"),
        ([Decimal("1.255")], pa.decimal128(5, 2), 0, "expected a Decimal"),
        ([1.5], pa.decimal128(5, 2), 0, "got float"),
        ([[1], [2, "x"]], pa.list_(pa.int64()), 1, "field 'c.element' .* got str 'x'"),
        ([[1], 2], pa.list_(pa.int64()), 1, "expected a list"),
        ([{"a": 1}, {"b": None, 3: 1}], pa.map_(pa.string(), pa.int64()), 1, "field 'c.key' .* got int 3"),
        (
            [None, {"n": None, "inner": None}],
            NESTED,
            1,
            "field 'c.n' .* expected int8, never null, got NoneType",
        ),
        (
            [{"n": 1, "inner": None, "m": 2}],
            NESTED,
            0,
            r"only the columns \['n', 'inner'\]; \['m'\] is unknown",
        ),
    ],
)
def test_a_value_that_does_not_fit_names_row_and_field(
    values: list[Any], kind: Any, row: int, message: str
) -> None:
    with pytest.raises(ConversionError, match=f"'to columns': .*row {row} .*{message}|{message}") as caught:
        _column(values, kind)
    assert f"row {row} (" in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, "a"), (1, "a", 2)], r"row 1 .*2 values, for the columns \['id', 'name'\]"),
        ([(1, "a"), (None, "b")], r"field 'id' of row 1 .*never null, got NoneType"),
        ([{"id": 1, "nam": "a"}], r"row 0 .*\['nam'\] is unknown"),
        ([{"name": "a"}], r"field 'id' of row 0 .*never null"),
        ([Row(id=1)], r"row 0 .*it lacks \['name'\]"),
        ([Unnamed(1, "a")], r"row 0 .*\['x', 'y'\] is unknown"),
        ([(1, "a"), None], r"row 1 .*got NoneType"),
        ([(1, "a"), "ab"], r"row 1 .*a row with the columns"),
    ],
)
def test_a_row_of_another_shape_is_named(rows: list[Any], message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        _converted(rows)


def test_rows_are_counted_across_batches() -> None:
    converter = RowsToArrowConverter("to columns", RowsToArrowOperator(schema=PAIR.serialize().to_pybytes()))
    converter.deliver = lambda batch: None
    converter.take_rows([(1, "a")] * 10, None)
    with pytest.raises(ConversionError, match="row 11 "):
        converter.take_rows([(1, "a"), ("x", "a")], None)


_naive = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
ROUND_TRIPS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text()),
    "large_string": (pa.large_string(), st.text()),
    "binary": (pa.binary(), st.binary()),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "nanoseconds": (pa.timestamp("ns"), _naive),
    "instant": (pa.timestamp("ns", "UTC"), _naive.map(lambda moment: moment.replace(tzinfo=dt.UTC))),
    "duration": (pa.duration("us"), st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999))),
    "decimal": (pa.decimal128(10, 3), st.integers(-(10**9), 10**9).map(lambda v: Decimal(v) / 1000)),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from("ab")),
    "list": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-5, 5), max_size=3)),
    "large_list": (pa.large_list(pa.string()), st.lists(st.text(), max_size=3)),
    "lists": (pa.list_(pa.list_(pa.int8())), st.lists(st.none() | st.lists(st.integers(0, 5)), max_size=3)),
    "map": (
        pa.map_(pa.string(), pa.float64()),
        st.dictionaries(st.text(), st.none() | st.just(0.5), max_size=3),
    ),
    "row": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        st.builds(lambda a: Row(a=a, b=None), st.integers(0, 9)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUND_TRIPS)
@settings(max_examples=25)
@given(data=st.data())
def test_what_goes_in_comes_out(name: str, data: st.DataObject) -> None:
    kind, values_of = ROUND_TRIPS[name]
    values = data.draw(st.lists(st.none() | values_of, min_size=1, max_size=10))
    start = data.draw(st.integers(0, len(values) - 1))
    batch = _converted(
        [(i, value) for i, value in enumerate(values)], pa.schema([("i", pa.int32()), ("v", kind)])
    )
    sliced = ArrowBatch(batch.batch.slice(start))
    expected = [(i, value) for i, value in enumerate(values)][start:]
    assert _rows(sliced, as_tuple=True) == expected
    assert _rows(sliced) == [Row(i=i, v=value) for i, value in expected]


def test_uuids_come_back_as_such() -> None:
    key = uuid.UUID(int=5)
    assert _column([key, None], pa.uuid()).to_pylist() == [key, None]


def test_a_value_without_a_python_object_names_the_column() -> None:
    batch = pa.record_batch({"at": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(ConversionError, match=r"'to rows': column 'at' of type timestamp\[ns\]"):
        _rows(ArrowBatch(batch))


def test_columns_of_one_name_make_no_row() -> None:
    batch = ArrowBatch(pa.record_batch([[1], [2]], names=["a", "a"]))
    assert _rows(batch, as_tuple=True) == [(1, 2)]
    with pytest.raises(ConversionError, match="distinct names"):
        _rows(batch)
