"""Dicts with declared fields as state: what is accepted, and how they change."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

import pytest

from yarrow.common.typed_dict import TypedDictTypeInfo
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.runtime.snapshot.errors import StateMigrationError, StateSerializationError
from yarrow.runtime.snapshot.value_serializers import (
    holds_pickles,
    restored_serializer,
    stored_serializer,
    value_serializer,
)


class Point(TypedDict):
    x: int


class WidePoint(TypedDict):
    x: float


class Visit(TypedDict):
    page: str
    count: int
    tags: NotRequired[list[str]]
    at: Point
    extra: dict[str, Any]
    note: str | None


class LaterVisit(TypedDict):
    page: str
    at: WidePoint
    count: float
    seconds: float
    by: NotRequired[str]


class NarrowVisit(TypedDict):
    page: str
    count: str


VISIT: Visit = {"page": "a", "count": 1, "at": {"x": 2}, "extra": {"k": {1}}, "note": None}
VISITS = Types.TYPED_DICT(Visit)


def test_the_type_is_what_the_class_says() -> None:
    assert isinstance(VISITS, TypedDictTypeInfo)
    assert VISITS.fields == {
        "page": (Types.STRING(), True),
        "count": (Types.LONG(), True),
        "tags": (Types.LIST(Types.STRING()), False),
        "at": (Types.TYPED_DICT(Point), True),
        "extra": (Types.MAP(Types.STRING(), Types.PICKLED_BYTE_ARRAY()), True),
        "note": (Types.STRING(), True),
    }
    with_default = Types.TYPED_DICT(LaterVisit, {"seconds": 1.5})
    for declared in (VISITS, with_default):
        assert TypeInformation.from_spec(declared.to_spec()) == declared
    assert with_default != Types.TYPED_DICT(LaterVisit)
    assert VISITS.accepts(VISIT) and VISITS.accepts({**VISIT, "tags": ["x"]})
    assert not VISITS.accepts({**VISIT, "count": "1"})
    assert not VISITS.accepts({**VISIT, "more": 1})
    assert not VISITS.accepts({"page": "a"})


def test_what_is_no_typed_dict_or_default_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a TypedDict class"):
        Types.TYPED_DICT(dict)
    with pytest.raises(ValueError, match="no field"):
        Types.TYPED_DICT(Point, {"y": 1})
    with pytest.raises(TypeError, match="default of 'x'"):
        Types.TYPED_DICT(Point, {"x": "1"})


def test_annotations_that_are_texts_and_name_what_is_not_there_are_told() -> None:
    class Lost(TypedDict):
        size: Missing  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(
        TypeError, match=r"Lost\): .*'Missing' is not defined here. Make the type beside the class"
    ):
        Types.TYPED_DICT(Lost)


def test_values_come_back_and_others_are_refused() -> None:
    serializer = value_serializer(VISITS, "visits", "counting")
    again = restored_serializer(serializer.config(), VISITS, "counting", "visits")
    assert again.load_values(serializer.dump_values([VISIT, None])) == [VISIT, None]
    assert again.load_value(serializer.dump_value(VISIT)) == VISIT
    assert not holds_pickles(serializer.config())
    message = r"operator 'counting', state 'visits': .*'page': 1"
    with pytest.raises(StateSerializationError, match=message):
        serializer.dump_values([{**VISIT, "page": 1}])
    with pytest.raises(StateSerializationError, match=message):
        serializer.dump_value({**VISIT, "page": 1})


def migrated(now: TypeInformation | None) -> Any:
    old = value_serializer(VISITS, "visits", "counting")
    reader = restored_serializer(old.config(), now, "counting", "visits")
    (found,) = reader.load_values(old.dump_values([VISIT]))
    assert reader.load_value(old.dump_value(VISIT)) == found
    return found


def test_fields_come_and_go_and_become_wider() -> None:
    found = migrated(Types.TYPED_DICT(LaterVisit, {"seconds": 1.5}))
    assert found == {"page": "a", "at": {"x": 2.0}, "count": 1.0, "seconds": 1.5}
    assert type(found["count"]) is type(found["at"]["x"]) is float
    assert migrated(None) == VISIT


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (Types.TYPED_DICT(LaterVisit), "field 'seconds': the snapshot holds no such field.*a default"),
        (
            Types.TYPED_DICT(NarrowVisit),
            "field 'count': the snapshot holds Long, the program declares String",
        ),
        (Types.LONG(), "holds TypedDictTypeInfo<Visit>.*declares Long"),
    ],
)
def test_other_changes_are_refused_before_any_value(now: TypeInformation, message: str) -> None:
    with pytest.raises(StateMigrationError, match=f"operator 'counting', state 'visits'.*{message}"):
        migrated(now)


def test_undeclared_dicts_may_be_declared() -> None:
    old = value_serializer(None, "visits", "counting")
    reader = restored_serializer(old.config(), VISITS, "counting", "visits")
    assert reader.load_values(old.dump_values([VISIT])) == [VISIT]
    with pytest.raises(StateMigrationError, match="a dict of no declared type"):
        reader.load_values(old.dump_values([{"page": 1}]))


def test_tools_read_them_without_the_class() -> None:
    serializer = value_serializer(VISITS, "visits", "counting")
    tool = stored_serializer(serializer.config(), "counting", "visits")
    assert tool.load_value(serializer.dump_value(VISIT)) == VISIT
    assert tool.config() == serializer.config()
