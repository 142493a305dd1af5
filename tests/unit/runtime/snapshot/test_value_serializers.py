"""Serializers of declared states, and what becomes of values when the declaration changes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row, RowKind
from yarrow.runtime.snapshot.errors import (
    StateMigrationError,
    StateSerializationError,
    UntrustedPickleError,
)
from yarrow.runtime.snapshot.handles import SerializerConfig, ValueFormat
from yarrow.runtime.snapshot.value_serializers import (
    holds_pickles,
    restored_serializer,
    stored_serializer,
    value_serializer,
)

VALUES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.BIG_INT(), st.integers()),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.STRING(), st.text(st.characters())),
    (Types.BOOLEAN(), st.booleans()),
    (Types.SQL_DATE(), st.dates()),
    (Types.BIG_DEC(), st.decimals(allow_nan=False, allow_infinity=False, places=3)),
    (Types.TUPLE([Types.STRING(), Types.LONG()]), st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1))),
    (Types.LIST(Types.INT()), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3)),
    (Types.MAP(Types.STRING(), Types.LONG()), st.dictionaries(st.text(), st.integers(0, 9), max_size=3)),
    (
        Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()]),
        st.builds(lambda a, b: Row(a=a, b=b), st.integers(0, 9), st.none() | st.text()),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("declared", "strategy"), VALUES, ids=lambda p: str(p) if isinstance(p, TypeInformation) else ""
)
@given(data=st.data())
def test_values_of_declared_types_come_back(
    declared: TypeInformation, strategy: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    values = data.draw(st.lists(strategy | st.none(), max_size=5))
    serializer = value_serializer(declared, "s", "op")
    again = restored_serializer(serializer.config(), declared, "op", "s")
    assert again.load_values(serializer.dump_values(values)) == values
    for value in values:
        found = again.load_value(serializer.dump_value(value))
        assert found == value and type(found) is type(value)


def test_the_configuration_travels_in_metadata() -> None:
    config = value_serializer(Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), "s", "op").config()
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=SerializerConfig)
    assert stored_serializer(again, "op", "s").load_values(
        stored_serializer(config, "op", "s").dump_values([{"a": [1]}])
    ) == [{"a": [1]}]
    assert (
        restored_serializer(again, Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), "op", "s").config()
        == config
    )


def test_a_value_of_another_type_is_named() -> None:
    serializer = value_serializer(Types.LONG(), "count", "counting")
    message = r"operator 'counting', state 'count': .*'x'.*Long"
    with pytest.raises(StateSerializationError, match=message):
        serializer.dump_values([1, "x"])
    with pytest.raises(StateSerializationError, match=message):
        serializer.dump_value("x")
    with pytest.raises(StateSerializationError, match="cannot be read"):
        serializer.load_values(b"\x01\x05\x00\x00\x00")


def migrated(was: TypeInformation | None, now: TypeInformation | None, *values: Any) -> list[Any]:
    old = value_serializer(was, "s", "op")
    reader = restored_serializer(old.config(), now, "op", "s")
    found = reader.load_values(old.dump_values(list(values)))
    assert [reader.load_value(old.dump_value(value)) for value in values] == found
    # What is written from now on is of the present type.
    assert reader.config() == value_serializer(now, "s", "op").config()
    assert value_serializer(now, "s", "op").load_values(reader.dump_values(found)) == found
    return found


NAMED = Types.ROW_NAMED
INT, LONG, DOUBLE, STRING = Types.INT(), Types.LONG(), Types.DOUBLE(), Types.STRING()


@pytest.mark.parametrize(
    ("was", "now", "value", "expected"),
    [
        (INT, LONG, 5, 5),
        (INT, DOUBLE, 5, 5.0),
        (Types.FLOAT(), DOUBLE, 0.5, 0.5),
        (LONG, Types.BIG_INT(), 5, 5),
        (LONG, Types.BIG_DEC(), 5, Decimal(5)),
        (Types.CHAR(), STRING, "x", "x"),
        (NAMED(["a", "b"], [INT, STRING]), NAMED(["b", "c", "a"], [STRING, LONG, DOUBLE]),
         Row(a=1, b="x"), Row(b="x", c=None, a=1.0)),
        (NAMED(["a"], [NAMED(["x"], [INT])]), NAMED(["a"], [NAMED(["x", "y"], [LONG, STRING])]),
         Row(a=Row(x=1)), Row(a=Row(x=1, y=None))),
        (Types.ROW([INT, STRING]), NAMED(["a", "b"], [LONG, STRING]), Row(1, "x"), Row(a=1, b="x")),
        (Types.TUPLE([INT, STRING]), Types.TUPLE([DOUBLE, STRING]), (1, "x"), (1.0, "x")),
        (Types.LIST(INT), Types.LIST(DOUBLE), [1, None], [1.0, None]),
        (Types.OBJECT_ARRAY(INT), Types.LIST(INT), [1], [1]),
        (Types.MAP(STRING, INT), Types.MAP(STRING, DOUBLE), {"a": 1, "b": None}, {"a": 1.0, "b": None}),
        (None, LONG, 5, 5),
        (LONG, None, 5, 5),
        (None, None, {1}, {1}),
    ],
)  # fmt: skip
def test_changes_that_convert(
    was: TypeInformation | None, now: TypeInformation | None, value: Any, expected: Any
) -> None:
    (found, nothing) = migrated(was, now, value, None)
    assert found == expected and type(found) is type(expected) and nothing is None


def test_the_kind_of_a_row_is_kept() -> None:
    row = Row.of_kind(RowKind.DELETE, a=1)
    (found,) = migrated(NAMED(["a"], [INT]), NAMED(["a", "b"], [LONG, LONG]), row)
    assert found.get_row_kind() is RowKind.DELETE


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        (LONG, INT, "'s': the snapshot holds Long, the program declares Integer"),
        (DOUBLE, LONG, "holds Double, the program declares Long"),
        (STRING, LONG, "holds String"),
        (NAMED(["a"], [INT]), NAMED(["a"], [STRING]), "field 'a': the snapshot holds Integer"),
        (NAMED(["a"], [NAMED(["x"], [LONG])]), NAMED(["a"], [NAMED(["x"], [INT])]), r"field 'a\.x'"),
        (Types.LIST(STRING), Types.LIST(INT), r"field '\[\]'"),
        (Types.MAP(STRING, STRING), Types.MAP(STRING, INT), "field 'values'"),
        (Types.TUPLE([INT]), Types.TUPLE([INT, INT]), "keep their number"),
        (Types.ROW([INT]), Types.ROW([INT, INT]), "keep their number"),
        (Types.TUPLE([INT]), Types.LIST(INT), "TupleTypeInfo"),
        (Types.SQL_DATE(), Types.SQL_TIMESTAMP(), "holds Date, the program declares Timestamp"),
    ],
)
def test_changes_that_nothing_converts_are_refused_before_any_value(
    was: TypeInformation, now: TypeInformation, message: str
) -> None:
    config = value_serializer(was, "s", "op").config()
    with pytest.raises(StateMigrationError, match=f"operator 'op'.*{message}"):
        restored_serializer(config, now, "op", "s")


def test_single_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(StateMigrationError, match="no 64-bit float"):
        migrated(LONG, DOUBLE, 2**53 + 1)
    with pytest.raises(StateMigrationError, match="a str of no declared type, the program declares Long"):
        migrated(None, LONG, "x")
    with pytest.raises(StateMigrationError, match="a datetime of no declared type"):
        migrated(None, STRING, dt.datetime(2020, 1, 1))


def test_later_releases_are_named() -> None:
    plain = SerializerConfig(format=ValueFormat.PLAIN, version=2)
    with pytest.raises(StateMigrationError, match=r"plain values of version 2.*version 1 at most"):
        restored_serializer(plain, None, "op", "s")
    unknown = SerializerConfig(format=ValueFormat.TYPED, type_spec=["CUBE", "LONG"])
    with pytest.raises(StateMigrationError, match="a type this release does not know"):
        restored_serializer(unknown, LONG, "op", "s")


def test_pickles_inside_declared_types_need_trust() -> None:
    declared = Types.TUPLE([STRING, Types.PICKLED_BYTE_ARRAY()])
    serializer = value_serializer(declared, "s", "op")
    data = serializer.dump_values([("a", {1})])
    assert holds_pickles(serializer.config())
    assert not holds_pickles(value_serializer(LONG, "s", "op").config())
    assert not holds_pickles(value_serializer(Types.PICKLED_BYTE_ARRAY(), "s", "op").config())
    with pytest.raises(UntrustedPickleError, match="operator 'op', state 's'"):
        restored_serializer(serializer.config(), declared, "op", "s").load_values(data)
    trusting = restored_serializer(serializer.config(), declared, "op", "s", trusted=True)
    assert trusting.load_values(data) == [("a", {1})]
