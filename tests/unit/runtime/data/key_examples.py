"""Key classes and hypothesis strategies that the tests of keys share."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import strategies as st

from yarrow.common.types import Row


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 7


class Word(enum.StrEnum):
    ONE = "one"


class Bits(enum.Flag):
    A = 1
    B = 2


class Ratio(float, enum.Enum):
    HALF = 0.5


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Place:
    name: Any
    number: Any = 0
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Slotted:
    value: Any


class Name(str):
    """A plain subclass of str."""

    __slots__ = ()


BERLIN = ZoneInfo("Europe/Berlin")

_numbers = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.integers(-(2**63) - 2, -(2**63) + 2),
    st.integers(2**63 - 2, 2**63 + 2),
    st.integers(-3, 3).map(float),
    st.floats(),
    st.floats(width=32).map(np.float32),
    st.sampled_from([0.5, -0.0, 1e300, float("nan"), float("inf")]),
    st.integers(-128, 127).map(np.int8),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.booleans().map(np.bool_),
    st.floats().map(np.float64),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-5, max_value=5),
    st.decimals(allow_nan=False),
    st.integers(-3, 3).map(Decimal),
)
_short_text = st.text(max_size=3)
_times = st.one_of(
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(
        min_value=dt.datetime(2, 1, 1), max_value=dt.datetime(9998, 1, 1), timezones=st.just(dt.UTC)
    ),
    st.datetimes(
        min_value=dt.datetime(2024, 10, 26),
        max_value=dt.datetime(2024, 10, 28),
        timezones=st.sampled_from([BERLIN, dt.UTC, dt.timezone(dt.timedelta(hours=2))]),
    ),
)
_classes: list[Any] = [*Colour, *Level, *Word, *Ratio]
atoms: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    _numbers.filter(lambda n: not (isinstance(n, Decimal) and n.is_finite() and abs(n.adjusted()) > 500)),
    _short_text,
    _short_text.map(Name),
    st.binary(max_size=3),
    st.sampled_from(["1", "a", b"a", "RED"]),
    _times,
    st.timedeltas(),
    st.integers(-3, 3).map(lambda n: dt.timedelta(seconds=n)),
    st.integers(-3, 3).map(lambda n: np.timedelta64(n * 1000, "ms")),
    st.builds(range, st.integers(-2, 2), st.integers(-2, 2), st.sampled_from([-2, -1, 1, 2])),
    st.builds(range, st.integers(), st.integers(), st.sampled_from([-(2**70), 3])),
    st.integers(0, 3).map(lambda n: uuid.UUID(int=n)),
    st.uuids(),
    st.sampled_from(_classes),
)


def _make_a_set(values: list[Any]) -> bool:
    """Whether Python makes a set of the values: it raises where it compares a Decimal with an integer of numpy."""
    try:
        frozenset(values)
    except TypeError:
        return False
    return True


def _composites(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pair: Callable[..., Any] = Point
    return st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.builds(pair, inner, inner),
        st.builds(Place, inner, inner),
        st.builds(Slotted, inner),
        st.lists(inner, max_size=2).map(lambda values: Row(*values)),
        st.lists(inner, max_size=3).filter(_make_a_set).map(frozenset),
        st.builds(lambda a, b: Row(a=a, b=b), inner, inner),
    )


keys: st.SearchStrategy[Any] = st.recursive(atoms, _composites, max_leaves=4)
