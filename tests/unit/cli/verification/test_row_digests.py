"""Digests of rows: equal for equal content, in any process; different for another type or content."""

from __future__ import annotations

import datetime as dt
import enum
import subprocess
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from yarrow.cli.verification.row_digests import LONGEST_TEXT, UncomparableRowError, digest, text
from yarrow.common.types import Row, RowKind

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


@dataclass
class Order:
    name: str
    parts: list[Any] = field(default_factory=list)


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Closed:
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("nothing to see")

    def __repr__(self) -> str:
        raise ValueError("nor here")


ALL: list[Any] = [
    None, True, 1, 1.0, -1, 2**70, 0.1, "1", b"1", "ä", (), (1,), ((1,),), (1, 2), [1, 2], [[1], 2], [[1, 2]],
    {}, {"a": 1}, {"a": 2}, OrderedDict(a=1), set(), {1}, frozenset({1}), Row(1), Row(a=1),
    Row.of_kind(RowKind.DELETE, 1), Point(1, 2), Colour.RED, Order("a"), Order("a", [1]), Plain(1), Plain(2),
    dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.timedelta(1), Decimal("1"), Decimal("1.0"), range(3),
    np.int32(1), np.int64(1), np.array([1]), np.array([[1]]), np.array([1.0]), int, len,
]  # fmt: skip


def test_values_of_other_types_or_contents_have_other_digests() -> None:
    found = [digest(value) for value in ALL]
    assert len(set(found)) == len(ALL)


def test_equal_values_have_one_digest_however_they_were_made() -> None:
    word = "".join(["sha", "red"])
    assert digest([word, word]) == digest(["shared", "".join(["shar", "ed"])])
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({3, 2, 1}) == digest({1, 2, 3})
    assert digest(float("nan")) == digest(-float("nan"))
    assert digest(Plain([1])) == digest(Plain([1]))
    assert digest(Order("x", [Plain(1)])) == digest(Order("x", [Plain(1)]))


def test_another_process_gives_the_same_digest() -> None:
    script = (
        "from yarrow.cli.verification.row_digests import digest;"
        "print(digest(({'a', 'b', 'c', 'd'}, {'x': 1.5, 'y': None}, 'text')).hex())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {digest(({"a", "b", "c", "d"}, {"x": 1.5, "y": None}, "text")).hex() + "\n"}


def test_values_without_content_are_refused_by_type() -> None:
    with pytest.raises(UncomparableRowError, match="Closed"):
        digest((1, Closed()))
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UncomparableRowError, match="holds itself"):
        digest(endless)


def test_arrays_without_dimensions_have_digests() -> None:
    assert digest(np.array(5)) == digest(np.array(5))
    assert len({digest(np.array(5)), digest(np.array(6)), digest(np.array([5])), digest(np.array(5.0))}) == 4
    assert digest(np.array([[1, 2], [3, 4]])) != digest(np.array([1, 2, 3, 4]))


def test_texts_are_short_and_never_raise() -> None:
    assert text("a") == "'a'"
    assert len(text("x" * 10_000)) < LONGEST_TEXT + 100
    assert text(Closed()) == "<Closed whose repr raises ValueError>"
