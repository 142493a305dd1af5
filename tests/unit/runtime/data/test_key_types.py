"""Types of keys are compared by what their keys are encoded as: a table, and the encoder itself as its witness."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import combinations_with_replacement
from typing import Any

import pytest

from yarrow.common.time import Instant
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.runtime.data.key_types import borne_out, keys_may_meet
from yarrow.runtime.data.keys import canonicalize, encode_key

INT, LONG, STRING, PICKLED = Types.INT(), Types.LONG(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()
DAY, MOMENT = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12)


def named(*names: str) -> TypeInformation:
    return Types.ROW_NAMED(names, [STRING, LONG])


PAIR = Types.TUPLE([STRING, LONG])
ROW = Types.ROW([STRING, LONG])

#: Types with keys of theirs; those that can be equal are among them.
KEYS: list[tuple[TypeInformation, list[Any]]] = [
    (Types.BOOLEAN(), [True, False]),
    (Types.BYTE(), [1]),
    (Types.SHORT(), [1, 300]),
    (INT, [1, 70_000]),
    (LONG, [1, 2**40]),
    (Types.BIG_INT(), [1, 2**80]),
    (Types.FLOAT(), [1.0, 0.5]),
    (Types.DOUBLE(), [1.0, 0.1]),
    (Types.BIG_DEC(), [Decimal(1), Decimal("0.30")]),
    (STRING, ["1", "a", "ab"]),
    (Types.CHAR(), ["a"]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"1", b"a"]),
    (Types.INSTANT(), [Instant(1, 0)]),
    (Types.SQL_DATE(), [DAY]),
    (Types.SQL_TIME(), [dt.time(12)]),
    (Types.SQL_TIMESTAMP(), [MOMENT, dt.datetime(2024, 2, 29)]),
    (PAIR, [("a", 1)]),
    (Types.TUPLE([STRING, INT]), [("a", 1)]),
    (Types.TUPLE([LONG, STRING]), [(1, "a")]),
    (Types.TUPLE([STRING]), [("a",)]),
    (Types.TUPLE([STRING, LONG, LONG]), [("a", 1, 1)]),
    (ROW, [Row("a", 1), Row(name="a", number=1), Row(word="a", number=1)]),
    (named("name", "number"), [Row(name="a", number=1), Row("a", 1)]),
    (named("word", "number"), [Row(word="a", number=1), Row("a", 1)]),
    (Types.ROW([LONG, STRING]), [Row(1, "a")]),
    (Types.TUPLE([ROW]), [(Row("a", 1),)]),
    (Types.TUPLE([PAIR]), [(("a", 1),)]),
]


def label(case: Any) -> str:
    return str(case[0])


def encodings(keys: list[Any]) -> set[bytes]:
    return {encode_key(canonicalize(key)) for key in keys}


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), list(combinations_with_replacement(KEYS, 2)), ids=label)
def test_types_are_apart_where_no_key_of_theirs_has_one_encoding(
    one: tuple[TypeInformation, list[Any]], other: tuple[TypeInformation, list[Any]]
) -> None:
    (kind, keys), (other_kind, other_keys) = one, other
    # Without their names these Rows are one key; but a stored type has names only where its keys had them.
    told_apart_by_names = {kind, other_kind} == {named("name", "number"), named("word", "number")}
    expected = bool(encodings(keys) & encodings(other_keys)) and not told_apart_by_names
    assert keys_may_meet(kind, other_kind) is keys_may_meet(other_kind, kind) is expected


@pytest.mark.parametrize(
    "unknown",
    [
        None,
        PICKLED,
        Types.LIST(LONG),
        Types.MAP(STRING, LONG),
        Types.PRIMITIVE_ARRAY(LONG),
        Types.BASIC_ARRAY(LONG),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [each for each, _ in KEYS], ids=str)
def test_what_says_nothing_of_keys_is_not_compared(
    unknown: TypeInformation | None, kind: TypeInformation
) -> None:
    assert keys_may_meet(unknown, kind) and keys_may_meet(kind, unknown)
    within = PICKLED if unknown is None else unknown
    assert keys_may_meet(Types.TUPLE([within, LONG]), Types.TUPLE([kind, INT]))
    assert not keys_may_meet(Types.TUPLE([within, LONG]), Types.TUPLE([kind, STRING]))


@pytest.mark.parametrize("case", KEYS, ids=label)
def test_a_type_is_borne_out_by_its_own_keys(case: tuple[TypeInformation, list[Any]]) -> None:
    kind, keys = case
    assert borne_out(kind, canonicalize(keys[0])) == kind
    for other, others in KEYS:
        for key in others:
            seen = borne_out(kind, canonicalize(key))
            if seen is None:
                assert encode_key(canonicalize(key)) not in encodings(keys)
            else:
                assert keys_may_meet(seen, other)


@pytest.mark.parametrize(
    ("kind", "key", "seen"),
    [
        (named("name", "number"), Row("a", 1), ROW),
        (named("name", "number"), Row(word="a", number=1), None),
        (named("name", "number"), None, ROW),
        (ROW, Row(name="a", number=1), ROW),
        (Types.TUPLE([named("a", "b"), LONG]), (None, 1), Types.TUPLE([ROW, LONG])),
        (Types.TUPLE([named("a", "b"), LONG]), (Row("a", 1), 1), Types.TUPLE([ROW, LONG])),
        (Types.TUPLE([PICKLED, LONG]), (object, 1), Types.TUPLE([PICKLED, LONG])),
        (Types.TUPLE([Types.LIST(LONG), LONG]), ((1,), 1), Types.TUPLE([PICKLED, LONG])),
        (PAIR, ("a", "b"), None),
        (PAIR, Row("a", 1), None),
        (ROW, ("a", 1), None),
        (PAIR, None, PAIR),
        (INT, None, INT),
        (INT, "a", None),
        (Types.SQL_DATE(), MOMENT, None),
        (Types.SQL_TIMESTAMP(), MOMENT.replace(tzinfo=dt.UTC), None),
        (Types.LIST(LONG), (1, 2), PICKLED),
    ],
    ids=str,
)
def test_what_keys_do_not_bear_out_is_left_out(
    kind: TypeInformation, key: Any, seen: TypeInformation | None
) -> None:
    canonical = key if isinstance(key, tuple) and object in key else canonicalize(key)
    assert borne_out(kind, canonical) == seen
