"""Types: spec round trip, which values belong to them, which are immutable, internal forms."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common import Instant, Row, RowKind, TypeInformation, Types
from yarrow.common.typeinfo import RowTypeInfo

BASIC = [
    Types.STRING(),
    Types.BYTE(),
    Types.BOOLEAN(),
    Types.SHORT(),
    Types.INT(),
    Types.LONG(),
    Types.FLOAT(),
    Types.DOUBLE(),
    Types.CHAR(),
    Types.BIG_INT(),
    Types.BIG_DEC(),
    Types.INSTANT(),
]
SIMPLE = [*BASIC, Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.PICKLED_BYTE_ARRAY()]
ARRAYS = [
    Types.PRIMITIVE_ARRAY(Types.BYTE()),
    Types.PRIMITIVE_ARRAY(Types.LONG()),
    Types.BASIC_ARRAY(Types.STRING()),
]


def _composites(inner: st.SearchStrategy[TypeInformation]) -> st.SearchStrategy[TypeInformation]:
    fields = st.lists(inner, max_size=3)
    return st.one_of(
        inner.map(Types.LIST),
        inner.map(Types.OBJECT_ARRAY),
        st.tuples(inner, inner).map(lambda pair: Types.MAP(*pair)),
        fields.map(Types.TUPLE),
        fields.map(Types.ROW),
        fields.map(lambda types: Types.ROW_NAMED([f"c{i}" for i in range(len(types))], types)),
    )


types: st.SearchStrategy[TypeInformation] = st.recursive(
    st.sampled_from([*SIMPLE, *ARRAYS]), _composites, max_leaves=6
)


@given(types)
def test_a_type_comes_back_from_its_spec_through_json(declared: TypeInformation) -> None:
    restored = TypeInformation.from_spec(json.loads(json.dumps(declared.to_spec())))
    assert restored == declared
    assert hash(restored) == hash(declared)
    assert repr(restored) == repr(declared)


@given(types, types)
def test_types_are_equal_exactly_when_their_specs_are(
    first: TypeInformation, second: TypeInformation
) -> None:
    assert (first == second) == (first.to_spec() == second.to_spec())


@given(types)
def test_types_pickle(declared: TypeInformation) -> None:
    assert pickle.loads(pickle.dumps(declared)) == declared


@pytest.mark.parametrize("spec", ["NOPE", [], ["NOPE"], ["LIST"], ["LIST", "NOPE"], ["MAP", "INT"], 7, None])
def test_an_unknown_spec_is_refused(spec: Any) -> None:
    with pytest.raises(ValueError, match="type spec"):
        TypeInformation.from_spec(spec)


def test_specs_are_a_stored_format() -> None:
    declared = Types.ROW_NAMED(
        ["a", "b"], [Types.INT(), Types.MAP(Types.STRING(), Types.TUPLE([Types.SQL_DATE()]))]
    )
    assert declared.to_spec() == ["ROW", ["INT", ["MAP", "STRING", ["TUPLE", ["SQL_DATE"]]]], ["a", "b"]]
    assert Types.ROW([Types.BIG_DEC()]).to_spec() == ["ROW", ["BIG_DEC"], None]
    assert Types.PRIMITIVE_ARRAY(Types.BYTE()).to_spec() == ["PRIMITIVE_ARRAY", "BYTE"]


def test_a_type_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="cannot be changed"):
        Types.INT().tag = "LONG"


def test_which_types_are_immutable() -> None:
    assert all(declared.is_immutable for declared in SIMPLE if declared != Types.PICKLED_BYTE_ARRAY())
    assert Types.TUPLE([Types.INT(), Types.TUPLE([Types.STRING()])]).is_immutable
    assert Types.PRIMITIVE_ARRAY(Types.BYTE()).is_immutable
    for mutable in (
        Types.PICKLED_BYTE_ARRAY(),
        Types.ROW([Types.INT()]),
        Types.TUPLE([Types.LIST(Types.INT())]),
        Types.PRIMITIVE_ARRAY(Types.INT()),
        Types.MAP(Types.INT(), Types.INT()),
    ):
        assert not mutable.is_immutable, mutable


@pytest.mark.parametrize(
    ("declared", "value", "belongs"),
    [
        (Types.INT(), 2**31 - 1, True),
        (Types.INT(), 2**31, False),
        (Types.BYTE(), -129, False),
        (Types.LONG(), True, False),
        (Types.LONG(), None, False),
        (Types.BIG_INT(), 2**100, True),
        (Types.DOUBLE(), 1, True),
        (Types.DOUBLE(), Decimal(1), False),
        (Types.BOOLEAN(), 1, False),
        (Types.CHAR(), "ab", False),
        (Types.INSTANT(), Instant(0, 0), True),
        (Types.SQL_DATE(), date(2013, 1, 1), True),
        (Types.SQL_DATE(), datetime(2013, 1, 1), False),
        (Types.SQL_TIMESTAMP(), datetime(2013, 1, 1), True),
        (Types.SQL_TIMESTAMP(), datetime(2013, 1, 1, tzinfo=UTC), False),
        (Types.TUPLE([Types.INT(), Types.STRING()]), (1, None), True),
        (Types.TUPLE([Types.INT(), Types.STRING()]), (1,), False),
        (Types.TUPLE([Types.INT()]), [1], False),
        (Types.ROW_NAMED(["a"], [Types.INT()]), Row(a=1), True),
        (Types.ROW_NAMED(["a"], [Types.INT()]), Row(1), True),
        (Types.ROW_NAMED(["a"], [Types.INT()]), Row(b=1), False),
        (Types.LIST(Types.INT()), [1, None], True),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [1, None], False),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"x", True),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": None}, True),
        (Types.MAP(Types.STRING(), Types.INT()), {None: 1}, False),
        (Types.PICKLED_BYTE_ARRAY(), object(), True),
    ],
)
def test_which_values_belong_to_a_type(declared: TypeInformation, value: object, belongs: bool) -> None:
    assert declared.accepts(value) is belongs


@given(st.dates(), st.times(), st.datetimes())
def test_sql_times_come_back_from_their_internal_forms(day: date, moment: time, stamp: datetime) -> None:
    declared = Types.ROW_NAMED(
        ["d", "rest"], [Types.SQL_DATE(), Types.TUPLE([Types.SQL_TIME(), Types.LIST(Types.SQL_TIMESTAMP())])]
    )
    row = Row(d=day, rest=(moment, [stamp, None]))
    assert declared.from_internal_type(declared.to_internal_type(row)) == row


def test_internal_forms_count_from_the_epoch() -> None:
    assert Types.SQL_DATE().to_internal_type(date(1970, 1, 2)) == 1
    assert Types.SQL_TIME().to_internal_type(time(0, 0, 1, 2)) == 1_000_002
    assert Types.SQL_TIMESTAMP().to_internal_type(datetime(1969, 12, 31, 23, 59, 59)) == -1_000_000


def test_a_time_with_a_zone_is_refused_with_a_way_out() -> None:
    with pytest.raises(TypeError, match=r"Types\.INSTANT"):
        Types.SQL_TIMESTAMP().to_internal_type(datetime(2013, 1, 1, tzinfo=UTC))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"field 1 of TUPLE.*int"):
        Types.TUPLE([Types.INT(), int])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="OBJECT_ARRAY"):
        Types.PRIMITIVE_ARRAY(Types.STRING())
    with pytest.raises(ValueError, match="1 names given for the 2 fields"):
        Types.ROW_NAMED(["a"], [Types.INT(), Types.INT()])
    with pytest.raises(ValueError, match="differ"):
        Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()])


def test_names_of_a_row_type() -> None:
    assert Types.ROW([Types.INT()]).get_field_names() == ["f0"]
    named = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.STRING()])
    assert (named.get_field_index("y"), named.get_field_index("z")) == (1, -1)
    assert repr(named) == "RowTypeInfo(x: Integer, y: String)"


def test_rows_keep_their_kind_and_convert_their_fields() -> None:
    declared = RowTypeInfo([Types.SQL_DATE(), Types.ROW([Types.SQL_TIME()])], ["day", "inner"])
    assert declared.need_conversion()
    row = Row(day=date(1970, 1, 3), inner=Row(time(0, 0, 1)))
    row.set_row_kind(RowKind.DELETE)
    internal = declared.to_internal_type(row)
    kind, (day, _) = internal
    assert (kind, day) == (RowKind.DELETE.value, 2), "dates count days"
    read = declared.from_internal_type(internal)
    assert read == row and read.get_row_kind() is RowKind.DELETE and read["day"] == date(1970, 1, 3)
    assert declared.to_internal_type(None) is declared.from_internal_type(None) is None
    with pytest.raises(TypeError, match="takes a Row, not tuple"):
        declared.to_internal_type((date(1970, 1, 3), None))
