"""Row serializers: what comes back is what went in, and what does not fit is named."""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import pickle
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from yarrow.common.time import Instant
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row, RowKind
from yarrow.runtime.data.errors import RowFormatError, SerializationError
from yarrow.runtime.data.serializers import columns as serializers_columns
from yarrow.runtime.data.serializers.serializers import dump_timestamps, load_timestamps, serializer_for

_ints = {8: Types.BYTE(), 16: Types.SHORT(), 32: Types.INT(), 64: Types.LONG()}
Typed = tuple[TypeInformation, st.SearchStrategy[Any]]
_text = st.text(st.characters(codec=None) | st.just("\0"), max_size=4)
_times = st.times() | st.just(dt.time.max)
ATOMS: list[Typed] = [
    *((info, st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)) for bits, info in _ints.items()),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.FLOAT(), st.floats(allow_nan=False)),
    (Types.BOOLEAN(), st.booleans()),
    (Types.STRING(), _text),
    (Types.CHAR(), st.characters(codec=None)),
    (Types.BIG_INT(), st.integers(-(2**90), 2**90) | st.integers(-9, 9)),
    (Types.BIG_DEC(), st.decimals(allow_nan=False)),
    (Types.INSTANT(), st.builds(Instant, st.integers(-(2**63), 2**63 - 1), st.integers(0, 999_999_999))),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), _times),
    (Types.SQL_TIMESTAMP(), st.datetimes()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=4)),
    (Types.PRIMITIVE_ARRAY(Types.INT()), st.lists(st.integers(-5, 5), max_size=3)),
    (
        Types.PICKLED_BYTE_ARRAY(),
        st.one_of(st.none(), st.integers(), st.lists(st.text(max_size=2), max_size=2)),
    ),
]


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, values, st.none())


def _rows(names: list[str] | None, fields: list[Any], kind: RowKind) -> Row:
    row = Row(*fields)
    if names is not None:
        row.set_field_names(names)
    row.set_row_kind(kind)
    return row


def _composite(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def tuples(fields: list[Typed]) -> Typed:
        values = st.tuples(*[_maybe(strategy) for _, strategy in fields])
        return Types.TUPLE([info for info, _ in fields]), values

    def rows(fields: list[Typed]) -> Typed:
        names = [f"field{i}" for i in range(len(fields))]
        values = st.tuples(*[_maybe(strategy) for _, strategy in fields]).map(list)
        made = st.builds(_rows, st.sampled_from([names, names, None]), values, st.sampled_from(RowKind))
        return Types.ROW_NAMED(names, [info for info, _ in fields]), made

    def unnamed(fields: list[Typed]) -> Typed:
        names = [f"n{i}" for i in range(len(fields))]
        values = st.tuples(*[_maybe(strategy) for _, strategy in fields]).map(list)
        made = st.builds(_rows, st.sampled_from([names, None]), values, st.just(RowKind.INSERT))
        return Types.ROW([info for info, _ in fields]), made

    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        several.map(tuples),
        several.map(rows),
        several.map(unnamed),
        inner.map(lambda one: (Types.LIST(one[0]), st.lists(_maybe(one[1]), max_size=3))),
        inner.map(lambda one: (Types.OBJECT_ARRAY(one[0]), st.lists(_maybe(one[1]), max_size=3))),
        inner.map(
            lambda one: (
                Types.MAP(Types.STRING(), one[0]),
                st.dictionaries(st.text(max_size=2), _maybe(one[1]), max_size=3),
            )
        ),
    )


types_and_values: st.SearchStrategy[Typed] = st.recursive(st.sampled_from(ATOMS), _composite, max_leaves=4)


def _deep_types(value: Any) -> Any:
    if isinstance(value, (list, tuple, Row)):
        return type(value), [_deep_types(item) for item in value]
    if isinstance(value, dict):
        return dict, [(_deep_types(k), _deep_types(v)) for k, v in value.items()]
    return type(value)


@given(st.data())
def test_round_trip_of_any_declared_type(data: st.DataObject) -> None:
    info, strategy = data.draw(types_and_values)
    rows = data.draw(st.lists(_maybe(strategy), max_size=10))
    serializer = serializer_for(info)
    encoded = serializer.dump_rows(rows)
    for form in (encoded, memoryview(encoded)):
        loaded = serializer.load_rows(form)
        assert loaded == rows
        assert _deep_types(loaded) == _deep_types(rows)


@given(st.data())
def test_damaged_bytes_end_in_a_typed_error_or_rows(data: st.DataObject) -> None:
    info, strategy = data.draw(types_and_values.filter(lambda typed: "Pickled" not in repr(typed[0])))
    serializer = serializer_for(info)
    encoded = bytearray(serializer.dump_rows(data.draw(st.lists(_maybe(strategy), min_size=1, max_size=5))))
    for end in range(len(encoded)):
        with pytest.raises(RowFormatError):
            serializer.load_rows(bytes(encoded[:end]))
    with pytest.raises(RowFormatError):
        serializer.load_rows(bytes(encoded) + b"x")
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    # Tuples that can be read, but have other values than declared, are told by row and field.
    with contextlib.suppress(RowFormatError, SerializationError):
        serializer.load_rows(bytes(encoded))


@pytest.mark.parametrize("damaged", [b"\x02\xd1\x91\xc0", b"\x02\xcd\x91\xc0", b"\x02\xd4\x91\xc0"])
def test_damaged_tuples_that_are_no_list_of_rows_end_in_a_typed_error(damaged: bytes) -> None:
    with pytest.raises(RowFormatError, match="cannot be read"):
        serializer_for(Types.TUPLE([Types.BYTE()])).load_rows(damaged)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
@example([None, None])
@example([1, None, 2])
def test_timestamps(timestamps: list[int | None]) -> None:
    assert load_timestamps(dump_timestamps(timestamps)) == timestamps


def test_nan_and_negative_zero_keep_their_bits() -> None:
    serializer = serializer_for(Types.DOUBLE())
    nan, zero = serializer.load_rows(serializer.dump_rows([float("nan"), -0.0]))
    assert nan != nan
    assert str(zero) == "-0.0"


def test_a_float_does_not_depend_on_the_border_it_crossed() -> None:
    serializer = serializer_for(Types.FLOAT())
    assert serializer.load_rows(serializer.dump_rows([0.1])) == [0.1]


class Level(enum.IntEnum):
    LOW = 1


class Pair(NamedTuple):
    a: int
    b: int


def test_equal_values_of_other_classes_come_back_as_the_declared_one() -> None:
    cases: list[tuple[TypeInformation, list[Any], list[Any]]] = [
        (Types.LONG(), [np.int32(5), Level.LOW], [5, 1]),
        (Types.DOUBLE(), [1, np.float32(0.5)], [1.0, 0.5]),
        (Types.BOOLEAN(), [np.bool_(True)], [True]),
        (Types.TUPLE([Types.LONG(), Types.LONG()]), [Pair(1, 2)], [(1, 2)]),
    ]
    for info, rows, expected in cases:
        serializer = serializer_for(info)
        loaded = serializer.load_rows(serializer.dump_rows(rows))
        assert loaded == expected
        assert [type(value) for value in loaded] == [type(value) for value in expected]


_person = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.BYTE()])


@pytest.mark.parametrize(
    ("info", "rows", "message"),
    [
        (Types.INT(), [1, 2**31], r"row 1: expected an int of 32 bits .*got int 2147483648"),
        (Types.BYTE(), [0, None, -129], r"row 2: expected an int of 8 bits"),
        (Types.LONG(), [1, "2"], r"row 1: .*got str '2'"),
        (Types.LONG(), [1.0], r"row 0: .*got float 1.0"),
        (Types.DOUBLE(), [1.0, "x"], r"row 1: expected a float, got str 'x'"),
        (Types.DOUBLE(), [2**53 + 1], r"row 0: expected a float"),
        (Types.DOUBLE(), [True], r"row 0: expected a float, got bool"),
        (Types.BOOLEAN(), [True, 1], r"row 1: expected a bool, got int 1"),
        (Types.STRING(), ["a", b"a"], r"row 1: expected a str, got bytes"),
        (Types.CHAR(), ["a", "ab"], r"row 1: expected a str of one character"),
        (Types.BIG_INT(), [2**70, 1.5], r"row 1: expected an int"),
        (Types.BIG_DEC(), [Decimal(1), 1.5], r"row 1: expected a Decimal"),
        (Types.SQL_DATE(), [dt.datetime(2020, 1, 1)], r"row 0: expected a date \(not a datetime\)"),
        (Types.SQL_TIME(), [dt.time(1, tzinfo=dt.UTC)], r"row 0: expected a time without time zone"),
        (
            Types.SQL_TIMESTAMP(),
            [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
            r"row 0: expected a datetime without",
        ),
        (Types.INSTANT(), [5], r"row 0: expected an Instant"),
        (Types.INSTANT(), [Instant(2**70, 0)], r"row 0: expected an Instant whose seconds fit"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [bytearray(b"x")], r"row 0: expected bytes"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [[1, None]], r"field \[1\] of row 0: .*got NoneType"),
        (Types.TUPLE([Types.LONG()]), [(1,), (1, 2)], r"row 1: expected a tuple of 1 fields"),
        (Types.TUPLE([Types.LONG()]), [[1]], r"row 0: expected a tuple of 1 fields, got list"),
        (Types.TUPLE([Types.LONG(), Types.TUPLE([Types.INT()])]), [(1, (2**40,))], r"field 1\.0 of row 0"),
        (_person, [Row("x", 1), Row("x", 200)], r"field age of row 1: expected an int of 8 bits"),
        (_person, [Row(name="x", years=1)], r"row 0: expected a Row of 2 fields \(name, age\) in this order"),
        (_person, [("x", 1)], r"row 0: expected a Row"),
        (Types.LIST(Types.INT()), [[1], [2, "x"]], r"field \[1\] of row 1"),
        (Types.LIST(Types.INT()), [(1, 2)], r"row 0: expected a list, got tuple"),
        (Types.MAP(Types.STRING(), Types.INT()), [{"a": "b"}], r"field \['a'\] of row 0"),
        (Types.MAP(Types.STRING(), Types.INT()), [{None: 1}], r"field  key of row 0: expected a str"),
        (None, [1, threading.Lock()], r"row 1, .*cannot be pickled.*lock"),
        (Types.PICKLED_BYTE_ARRAY(), [1, threading.Lock()], r"row 1, .*cannot be pickled.*lock"),
        (
            Types.TUPLE([Types.INT(), Types.PICKLED_BYTE_ARRAY()]),
            [(1, lambda: 1)],
            r"field 1 of row 0: expected a value that pickles",
        ),
    ],
)
def test_what_does_not_fit_is_named(info: TypeInformation | None, rows: list[Any], message: str) -> None:
    serializer = serializer_for(info)
    with pytest.raises(SerializationError, match=message):
        # The classes of what is in tuples of plain types are checked by the side that reads.
        serializer.load_rows(serializer.dump_rows(rows))


_numbers = st.one_of(
    *(
        st.tuples(
            st.just(bits),
            st.sampled_from(
                [-(1 << (bits - 1)) - 1, -(1 << (bits - 1)), (1 << (bits - 1)) - 1, 1 << (bits - 1)]
            ),
        )
        for bits in _ints
    ),
    st.tuples(st.sampled_from(list(_ints)), st.integers(-(1 << 64), 1 << 64) | st.none()),
)


@given(
    st.lists(_numbers, min_size=1, max_size=3),
    st.sampled_from([0, 3, 4, 30]),
    st.booleans(),
    st.text(max_size=3),
)
def test_a_number_beyond_its_width_is_refused_by_the_side_that_writes(
    numbers: list[tuple[int, int | None]], before: int, nested: bool, text: str
) -> None:
    fields: list[TypeInformation] = [_ints[bits] for bits, _ in numbers]
    value: tuple[Any, ...] = tuple(number for _, number in numbers)
    good: tuple[Any, ...] = (1,) * len(numbers)
    if nested:
        fields, value, good = [Types.TUPLE(fields)], (value,), (good,)
    serializer = serializer_for(Types.TUPLE([*fields, Types.STRING()]))
    rows = [(*good, text)] * before + [(*value, text)]
    fits = all(n is None or -(1 << (bits - 1)) <= n < 1 << (bits - 1) for bits, n in numbers)
    if fits:
        assert serializer.load_rows(serializer.dump_rows(rows)) == rows
    else:
        with pytest.raises(
            SerializationError, match=rf"field .* of row {before}: expected an int of \d+ bits"
        ):
            serializer.dump_rows(rows)


@dataclass
class Record:
    a: int
    b: list[int]


def test_undeclared_rows_are_pickled() -> None:
    rows = [Record(1, [2]), None, {"x": (1, 2)}]
    serializer = serializer_for(None)
    assert serializer.load_rows(memoryview(serializer.dump_rows(rows))) == rows
    with pytest.raises(RowFormatError):
        serializer.load_rows(serializer.dump_rows(rows)[:-3])
    with pytest.raises(RowFormatError, match="tuple"):
        serializer.load_rows(pickle.dumps((1, 2), 5))


def test_another_type_is_refused_on_reading() -> None:
    encoded = serializer_for(Types.TUPLE([Types.LONG(), Types.STRING()])).dump_rows([(1, "a"), (2, "b")])
    with pytest.raises(RowFormatError):
        serializer_for(Types.STRING()).load_rows(encoded)
    with pytest.raises(RowFormatError):
        serializer_for(Types.LONG()).load_rows(encoded)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"x" * 40, None, b"y" * 30]),
        (Types.STRING(), ["x" * 40, "y\0" * 30]),
        (Types.PICKLED_BYTE_ARRAY(), [b"x" * 40]),
        (Types.BIG_INT(), [1 << 900]),
    ],
    ids=str,
)
def test_bytes_are_read_whatever_their_number(
    monkeypatch: pytest.MonkeyPatch, kind: TypeInformation, rows: list[Any]
) -> None:
    monkeypatch.setattr(serializers_columns, "MAX_ELEMENTS", 8)
    serializer = serializer_for(kind)
    data = serializer.dump_rows(rows)
    assert serializer.load_rows(data) == rows
    with pytest.raises(RowFormatError):
        serializer.load_rows(data[:-9])


@pytest.mark.parametrize(
    ("kind", "row"),
    [(Types.LIST(Types.LONG()), [1, 2, 3]), (Types.MAP(Types.LONG(), Types.LONG()), {1: 1, 2: 2, 3: 3})],
    ids=str,
)
def test_more_elements_than_are_read_are_not_written(
    monkeypatch: pytest.MonkeyPatch, kind: TypeInformation, row: Any
) -> None:
    serializer = serializer_for(kind)
    data = serializer.dump_rows([row] * 3)
    monkeypatch.setattr(serializers_columns, "MAX_ELEMENTS", 9)
    assert serializer.load_rows(serializer.dump_rows([row] * 3)) == [row] * 3
    monkeypatch.setattr(serializers_columns, "MAX_ELEMENTS", 8)
    with pytest.raises(RowFormatError, match="have 9 elements, more than 8"):
        serializer.dump_rows([row] * 3)
    with pytest.raises(RowFormatError, match="number 9, more than 8"):
        serializer.load_rows(data)
