"""Bytes of the format, written down: a change here is a change of what savepoints are."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tests.unit.runtime.snapshot import stored_classes as classes
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.runtime.snapshot import plain_trees
from yarrow.runtime.snapshot.handles import StateKind
from yarrow.runtime.snapshot.key_group_form import Run, StateForm, write_key_groups
from yarrow.runtime.snapshot.plain_values import dump_plain, dump_plain_value, load_plain
from yarrow.runtime.snapshot.value_serializers import value_serializer

NAME = f"{classes.__name__}:"


def test_keyed_state() -> None:
    states = [
        StateForm("v", StateKind.VALUE, value_serializer(None, "v", "op")),
        StateForm("l", StateKind.LIST, value_serializer(None, "l", "op"), ttl=True),
    ]
    runs = [Run(0, 5, [1, -1], ["a", "b"]), Run(1, 258, ["k"], [[(7, 8)]])]
    assert b"".join(write_key_groups(states, runs)).hex(" ") == (
        "59 4b 47 53 01 00 00 00 "
        "52 01 00 00 05 00 02 00 00 00 10 00 00 00 14 00 00 00 00 00 00 00 "
        "01 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff "
        "01 00 00 00 08 00 00 00 00 00 00 00 11 01 61 92 a1 61 a1 62 "
        "52 02 01 00 02 01 01 00 00 00 03 00 00 00 2d 00 00 00 00 00 00 00 "
        "91 a1 6b "
        "04 00 00 00 00 00 00 00 01 00 00 00 "
        "08 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00 "
        "01 00 00 00 05 00 00 00 00 00 00 00 11 01 61 91 08 "
        "45 02 00 00 00 00 00 00 00"
    )


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, "10 c0"),
        (5, "10 05"),
        ("a", "10 a1 61"),
        (("a", 1), "13 92 a1 61 01"),
        (("a", (1,)), "11 06 28 61 3c 61 3e 29 91 92 a1 61 91 01"),
        ({"a": [1]}, "11 05 7b 5b 61 5d 7d 91 81 a1 61 91 01"),
        ({1}, "12 92 90 91 92 03 01"),
        (2**64, "12 92 90 91 92 05 c4 09 01 00 00 00 00 00 00 00 00"),
        (dt.date(1, 1, 2), "12 92 90 91 92 08 02"),
        (Row(a=1), "12 92 90 91 94 16 00 91 a1 61 01"),
    ],
)
def test_plain_values(value: Any, encoded: str) -> None:
    assert dump_plain_value(value).hex(" ") == encoded


def test_classes_by_name_fields_and_annotations() -> None:
    data = dump_plain([classes.Point(1, 2), classes.Colour.RED])
    assert data == b"".join(
        (
            b"\x12\x92\x92\x94\xa5tuple\xd9" + bytes([len(NAME) + 5]) + NAME.encode() + b"Point",
            b"\x92\xa1x\xa1y\x92\xa3int\xa3int",
            b"\x94\xa4enum\xd9" + bytes([len(NAME) + 6]) + NAME.encode() + b"Colour\x90\x90",
            b"\x92\x94\x17\x00\x01\x02\x94\x17\x01\xa3RED\xc0",
        )
    )
    assert load_plain(data) == [classes.Point(1, 2), classes.Colour.RED]


def test_single_values_of_declared_types() -> None:
    assert value_serializer(Types.LONG(), "s", "op").dump_value(5) == b"\x03\x05"
    assert value_serializer(Types.STRING(), "s", "op").dump_value("a") == b"\x03\xa1a"


def test_tags_are_never_renumbered() -> None:
    tags = {
        name: value
        for name, value in vars(plain_trees).items()
        if name.isupper() and type(value) is int and not name.startswith("_")
    }
    assert [name for name, _ in sorted(tags.items(), key=lambda item: item[1])] == [
        "LIST", "TUPLE", "DICT", "SET", "FROZENSET", "BIG_INT", "SURROGATES", "DECIMAL", "DATE", "TIME", "DATETIME",
        "TIMEDELTA", "ZONE", "UUID", "RANGE", "COMPLEX", "FRACTION", "BYTEARRAY", "DEQUE", "ORDERED_DICT", "COUNTER",
        "DEFAULT_DICT", "ROW", "INSTANCE", "NUMPY_SCALAR", "NUMPY_ARRAY", "NUMPY_OBJECTS", "ARROW_BATCH",
        "ARROW_TABLE", "PICKLE",
    ]  # fmt: skip
    assert sorted(tags.values()) == list(range(30))
