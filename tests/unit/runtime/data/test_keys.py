"""The canonical form: which values are one key, which are not, which are refused."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given

from tests.support.stored_keys import decode_key
from tests.unit.runtime.data.key_examples import (
    BERLIN,
    Bits,
    Colour,
    Level,
    Name,
    Place,
    Point,
    Ratio,
    Slotted,
    Word,
    keys,
)
from yarrow.common.types import Row, RowKind
from yarrow.runtime.data.errors import KeyDecodeError, UnsupportedKeyError
from yarrow.runtime.data.key_groups import key_group_of
from yarrow.runtime.data.keys import NAN, RowKey, canonicalize, encode_key, user_key

nan = float("nan")
UTC_NOON = dt.datetime(2024, 6, 1, 12, tzinfo=dt.UTC)


class Span(dt.timedelta):
    """A plain subclass of timedelta."""


class Group(frozenset[Any]):
    """A plain subclass of frozenset."""


ONE_KEY: list[list[Any]] = [
    [
        1,
        1.0,
        True,
        np.int8(1),
        np.uint64(1),
        np.float32(1),
        np.bool_(True),
        Decimal(1),
        Decimal("1.00"),
        Level.LOW,
    ],
    [0, -0.0, 0.0, False, Decimal("-0"), np.float64(-0.0), Decimal("0E+20000")],
    [nan, float("nan"), np.float32("nan"), Decimal("NaN"), Decimal("sNaN"), -nan],
    [0.5, np.float32(0.5), Decimal("0.50"), Ratio.HALF],
    [Decimal("0.1"), Decimal("0.100")],
    [float("inf"), Decimal("Infinity"), np.float16("inf")],
    [10**300, Decimal("1E300")],
    [int(1e300), 1e300, np.float64(1e300)],
    ["one", Word.ONE, Name("one"), np.str_("one")],
    [b"ab", np.bytes_(b"ab")],
    [(1, "a"), Point(True, "a"), (1.0, Name("a"))],
    [(nan, 1), (float("nan"), True)],
    [
        UTC_NOON,
        dt.datetime(2024, 6, 1, 14, tzinfo=BERLIN),
        dt.datetime(2024, 6, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    ],
    [dt.datetime(2024, 10, 27, 2, 30), dt.datetime(2024, 10, 27, 2, 30, fold=1)],
    [Colour.RED, Colour.CRIMSON],
    [Place("x", 1), Place("x", 1.0, note="other"), Place(Name("x"), True)],
    [Row(a=1, b=nan), Row(a=1.0, b=float("nan")), Row.of_kind(RowKind.DELETE, a=1, b=nan)],
    [Row(1, "x"), Row(True, "x")],
    [
        dt.timedelta(seconds=1), Span(seconds=1), np.timedelta64(1, "s"), np.timedelta64(1000, "ms"),
        np.timedelta64(10**9, "ns"), np.timedelta64(10**12, "ps"), np.timedelta64(10**15, "fs"),
        np.timedelta64(10**18, "as"), np.timedelta64(500, ("ms", 2)),
    ],
    [dt.timedelta(weeks=1), np.timedelta64(1, "W"), np.timedelta64(7, "D")],
    [dt.timedelta(hours=2), np.timedelta64(2, "h"), np.timedelta64(120, "m")],
    [dt.timedelta(days=-999_999_999), np.timedelta64(-999_999_999, "D")],
    [frozenset(["b", 1, nan]), frozenset([True, float("nan"), Name("b")]), Group([np.str_("b"), 1.0, nan])],
    [frozenset([(1, Row(2))]), frozenset([Point(1.0, Row(True + 1))])],
    [range(0), range(5, 5), range(3, 0), range(0, -3)],
    [range(7, 8), range(7, 9, 2), range(7, 0, -10)],
    [range(0, 4, 2), range(0, 3, 2), range(False, 4, 2)],
    [range(3, 0, -1), range(3, 0, -1)],
    [range(2**70, 2**70 + 5, 3), range(2**70, 2**70 + 6, 3)],
]  # fmt: skip
DIFFERENT_KEYS: list[Any] = [
    None, 1, 0, 2**64, 0.5, nan, Decimal("0.1"), 0.1, "1", b"1", "", b"", (), (1,), ((1,),), (None,), "None",
    dt.date(2024, 6, 1), dt.datetime(2024, 6, 1), dt.datetime(2024, 6, 1, tzinfo=dt.UTC), dt.time(0),
    uuid.UUID(int=1), Colour.RED, Colour.GREEN, "RED", Bits.A, Place("x", 1), Slotted("x"), ("x", 1),
    Row("x", 1), Row(name="x", number=1), Row(number=1, name="x"), Row(), -1, float("inf"), float("-inf"),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN), dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    dt.timedelta(0), dt.timedelta(microseconds=1), dt.timedelta(microseconds=-1), dt.timedelta.max, dt.timedelta.min,
    dt.timedelta(microseconds=2**63 - 1), dt.timedelta(microseconds=2**63), dt.timedelta(microseconds=-(2**63)),
    frozenset(), frozenset([0]), frozenset([0, 1]), frozenset([(0, 1)]), frozenset([frozenset([0, 1])]),
    frozenset([nan]),
    range(0), range(1), range(2), range(1, 2), range(0, 4, 2), range(0, 5, 2), range(1, -1, -1), range(0, 2**70),
    (0, 1), frozenset(["01"]), frozenset(["0", "1"]),
]  # fmt: skip


@pytest.mark.parametrize("values", ONE_KEY, ids=range(len(ONE_KEY)))
def test_values_equal_in_python_are_one_key(values: list[Any]) -> None:
    assert len({canonicalize(value) for value in values}) == 1
    assert len({encode_key(canonicalize(value)) for value in values}) == 1
    assert len({key_group_of(canonicalize(value), 32768) for value in values}) == 1


def test_other_values_are_different_keys() -> None:
    assert len({canonicalize(value) for value in DIFFERENT_KEYS}) == len(DIFFERENT_KEYS)
    assert len({encode_key(canonicalize(value)) for value in DIFFERENT_KEYS}) == len(DIFFERENT_KEYS)


@given(keys, keys)
@example(1, True)
@example(0.1, np.float32(0.1))
@example(2**53 + 1, float(2**53))
def test_canonical_equality_is_equality_of_encodings(a: Any, b: Any) -> None:
    first, second = canonicalize(a), canonicalize(b)
    same = encode_key(first) == encode_key(second)
    assert (second in {first: None}) is same
    if a in {first: None}:
        assert encode_key(canonicalize(a)) == encode_key(first)
    if b in {first: None}:  # what an engine does that looks a raw key up
        assert same


@given(keys)
def test_canonicalizing_twice_changes_nothing(key: Any) -> None:
    canonical = canonicalize(key)
    assert canonicalize(canonical) in {canonical: None}


@pytest.mark.slow
@given(keys)
def test_round_trip(key: Any) -> None:
    canonical = canonicalize(key)
    encoded = encode_key(canonical)
    decoded = decode_key(encoded)
    assert decoded in {canonical: None}
    assert type(decoded) is type(canonical)
    assert encode_key(decoded) == encoded


def test_nan_is_one_object_also_inside() -> None:
    assert canonicalize(float("nan")) is NAN
    assert canonicalize((1, (float("nan"),)))[1][0] is NAN
    assert canonicalize(Place(float("nan"))).name is NAN
    assert decode_key(encode_key(NAN)) is NAN


def test_canonical_keys_pass_unchanged() -> None:
    for key in (5, "a", b"b", None, (1, "a"), Place("x"), Colour.RED, dt.date(2020, 1, 1)):
        assert canonicalize(key) is key


def test_a_raw_row_finds_its_key_in_a_dict() -> None:
    state = {canonicalize(Row(a=1.0, b="x")): "value"}
    assert state.get(Row(a=1, b="x")) == "value"
    assert state.get(Row(a=2, b="x")) is None
    assert user_key(next(iter(state))) == Row(a=1, b="x")


def test_a_row_that_changes_later_does_not_change_its_key() -> None:
    row = Row(1, 2)
    key = canonicalize(row)
    row[0] = 9
    assert key == RowKey(None, (1, 2))
    assert user_key((key, 3)) == (Row(1, 2), 3)


def test_the_decimal_context_does_not_matter() -> None:
    with decimal.localcontext(decimal.Context(prec=2, traps=[decimal.FloatOperation, decimal.Inexact])):
        assert canonicalize(Decimal("123.456000")) == Decimal("123.456")
        assert canonicalize(Decimal("0.5")) == 0.5
        assert type(canonicalize(Decimal("0.5"))) is float


class Shouting(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.lower(self) == str.lower(str(other))

    def __hash__(self) -> int:
        return hash(str.lower(self))


class Odd(enum.Enum):
    A = "a"

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other)

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass
class Mutable:
    x: int


@dataclass(frozen=True, eq=False)
class ByIdentity:
    x: int


@dataclass(frozen=True)
class Lossy:
    x: int
    y: int = field(compare=False)


@dataclass(frozen=True)
class Holder:
    x: Any


def _nested(depth: int) -> Any:
    key: Any = 1
    for _ in range(depth):
        key = (key,)
    return key


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ([1], "tuple"),
        ({1}, "frozenset"),
        ({"a": 1}, "tuple"),
        (bytearray(b"x"), "bytes"),
        (Fraction(1, 2), "Key by None"),
        (1j, "Key by None"),
        (frozenset([Fraction(1, 2)]), "Key by None"),
        (pd.Timedelta("1s"), "timedelta"),
        (object(), "Key by None"),
        (len, "Key by None"),
        (int, "Key by None"),
        (dt.time(1, tzinfo=dt.UTC), "tzinfo"),
        (dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=3))), "timestamp"),
        (np.datetime64("2020-01-01"), "item"),
        (np.timedelta64(1, "Y"), "item"),
        (np.timedelta64(1), "item"),
        (np.timedelta64("NaT", "s"), "None"),
        (np.timedelta64(1, "ns"), "whole number"),
        (np.timedelta64(2**62, "s"), "whole number"),
        (np.complex64(1), "item"),
        (pd.Timestamp("2020-01-01"), "datetime"),
        (Decimal("1E+999999"), "text"),
        (Shouting("A"), "str"),
        (Odd.A, "value"),
        (Bits.A | Bits.B, "value"),
        (Mutable(1), "frozen"),
        (ByIdentity(1), "tuple"),
        (Lossy(1, 2), "default"),
        (Holder([1]), "tuple"),
        ((1, [2]), "tuple"),
        (Row(a={}), "tuple"),
        (_nested(70), "flat"),
        (_nested(100_000), "flat"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_other_type_is_refused_with_a_remedy(key: Any, remedy: str) -> None:
    with pytest.raises(UnsupportedKeyError, match=remedy) as caught:
        encode_key(canonicalize(key))
    named = caught.value.for_operator("Counts")
    assert "Operator 'Counts'" in str(named)
    assert caught.value.key_type.__qualname__ in str(named)


def test_a_class_inside_a_function_is_refused() -> None:
    @dataclass(frozen=True)
    class Local:
        x: int

    class LocalEnum(enum.Enum):
        A = 1

    for key in (Local(1), LocalEnum.A):
        with pytest.raises(UnsupportedKeyError, match="module level"):
            canonicalize(key)


def test_encoding_refuses_what_is_not_canonical() -> None:
    for key in (True, 1.0, np.int64(1), [1], object(), Level.LOW):
        with pytest.raises(TypeError, match="canonical"):
            encode_key(key)


@pytest.mark.parametrize(
    "key", [dt.timedelta(seconds=1), frozenset([1, "a"]), range(3), range(0), frozenset()]
)
def test_raw_keys_find_theirs_in_a_dict(key: Any) -> None:
    assert {canonicalize(key): "found"}[key] == "found"
    assert decode_key(encode_key(canonicalize(key))) == key


def test_a_raw_duration_of_numpy_is_taken_for_no_number() -> None:
    numbers: dict[Any, str] = {1: "number"}
    assert numbers.get(np.timedelta64(1, "s")) is None


def test_user_code_sees_rows_in_a_frozenset() -> None:
    key = frozenset([(1, Row("a", 2))])
    assert user_key(canonicalize(key)) == key
    ((_, row),) = user_key(canonicalize(key))
    assert row.f0 == "a"


@pytest.mark.parametrize(
    ("encoding", "told"),
    [
        ("0113" + "01ffffffffffffffff" + "010000000000000000" + "010000000000000001", "range"),
        ("0113" + "010000000000000001" + "010000000000000000" + "010000000000000000", "range"),
        ("0113" + "00" + "010000000000000000" + "010000000000000001", "range"),
        ("0111" + "00000010" + "7f" * 16, "out of range"),
        ("0112" + "00ffffff" + "00", "announces"),
    ],
)
def test_damaged_encodings_are_refused(encoding: str, told: str) -> None:
    with pytest.raises(KeyDecodeError, match=told):
        decode_key(bytes.fromhex(encoding))
