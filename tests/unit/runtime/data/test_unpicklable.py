"""What keeps a record from being pickled is found and named, in whatever the record nests it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from yarrow.common import Row
from yarrow.common.types import positional_row
from yarrow.runtime.data.errors import UnpicklableRowError
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.data.unpicklable import unpicklable_member

LOCK = threading.Lock()


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Holder:
    name: str
    held: Any


@dataclass(slots=True)
class Slotted:
    held: Any


class Refusing:
    def __init__(self) -> None:
        self.lock = LOCK

    def __reduce__(self) -> Any:
        raise ValueError("not this one")

    def __repr__(self) -> str:
        raise LookupError


PLACES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda part: part, ""),
    (lambda part: (1, part), "[1]"),
    (lambda part: [1, {"a": [part]}], "[1]['a'][0]"),
    (lambda part: Pair(1, part), "[1]"),
    (lambda part: {1: 2, 3: (part,)}, "[3][0]"),
    (lambda part: Row(a=1, b=part), ".b"),
    (lambda part: Row(1, part), "[1]"),
    (lambda part: positional_row([1, part]), ".f1"),
    (lambda part: Holder("x", [part]), ".held[0]"),
    (lambda part: Slotted(part), ".held"),
    (lambda part: deque([part]), "[0]"),
]


@pytest.mark.parametrize(("build", "place"), PLACES)
@pytest.mark.parametrize("part", [LOCK, Refusing()], ids=["lock", "refusing"])
def test_the_member_to_blame_is_found(build: Callable[[Any], Any], place: str, part: Any) -> None:
    assert unpicklable_member(build(part)) == (place, part)


def test_keys_and_elements_without_a_place_of_their_own() -> None:
    assert unpicklable_member({LOCK: 1}) == (f" key {LOCK!r}", LOCK)
    assert unpicklable_member({1, LOCK}) == (f" element {LOCK!r}", LOCK)


def test_the_error_names_row_record_and_member() -> None:
    rows = [(1, "a"), (2, {"lock": LOCK})]
    with pytest.raises(
        UnpicklableRowError, match=r"row 1, \(2, .*because of its member \[1\]\['lock'\], .*lock"
    ) as caught:
        serializer_for(None).dump_rows(rows)
    assert (caught.value.row, caught.value.field) == (1, "[1]['lock']")
    assert str(caught.value.for_operator("Map")).startswith("operator 'Map': row 1, ")
    with pytest.raises(
        UnpicklableRowError, match=r"row 0, <Refusing whose repr raised LookupError>, .*not this one"
    ):
        serializer_for(None).dump_rows([Refusing()])
