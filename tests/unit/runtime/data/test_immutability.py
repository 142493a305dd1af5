"""Copies: a later change of the original is never seen, and what cannot change is not copied."""

from __future__ import annotations

import collections
import copy
import datetime as dt
import enum
import re
import threading
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.typeinfo import Types
from yarrow.common.types import Row, RowKind
from yarrow.runtime.data.errors import UncopyableValueError
from yarrow.runtime.data.immutability import copier_for, freeze_or_copy, whole_copier_of


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Plain:
    a: Any
    b: Any = None


@dataclass(slots=True)
class Slotted:
    a: Any
    b: Any = None


@dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any = None


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    a: Any
    b: Any = None


class Base:
    __slots__ = ("a",)

    def __init__(self, a: Any) -> None:
        self.a = a


class Derived(Base):
    __slots__ = ("b",)

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__(a)
        self.b = b


class Guarded:
    def __init__(self, a: Any) -> None:
        self.a = a

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise AttributeError("set twice")
        super().__setattr__(name, value)


class Custom:
    def __init__(self, a: Any) -> None:
        self.a = a
        self.copied = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Custom:
        made = Custom(copy.deepcopy(self.a, memo))
        made.copied = True
        return made


class Closing:
    def __init__(self) -> None:
        self.a = [1]

    def __del__(self) -> None:
        assert self.a  # never on an instance that nobody filled


class Names(list[str]):
    """A list with an attribute."""

    owner: str = ""


class Tagged(str):
    """A str that can be given attributes."""


IMMUTABLE: list[Any] = [
    None, True, 1, 1.5, 1j, "a", b"a", range(3), Decimal(1), uuid.UUID(int=1), dt.date(2020, 1, 1),
    dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.time(1), dt.timedelta(1), Colour.RED, RowKind.INSERT,
    np.int64(1), np.float32(1), np.datetime64("2020-01-01"), int, len, freeze_or_copy, re, re.compile("a"),
    ..., Tagged("x"), (), (1, "a", (2, None)), Pair(1, (2,)), frozenset([1, (2,)]), Frozen(1, "a"),
    Frozen((1, Frozen(2))),
    FrozenSlotted(1, "a"), FrozenSlotted((1, 2)), pa.array([1]), pa.table({"a": [1]}), pa.scalar(1),
    (Pair(1, 2), 1),
]  # fmt: skip


@pytest.mark.parametrize("value", IMMUTABLE, ids=lambda value: repr(value)[:30])
def test_what_cannot_change_is_passed_itself(value: Any) -> None:
    assert freeze_or_copy(value) is value


def _tagged() -> Tagged:
    value = Tagged("x")
    value.owner = [1]  # type: ignore[attr-defined]
    return value


def _names() -> Names:
    value = Names(["a"])
    value.owner = "me"
    return value


def _extended() -> Plain:
    value = Plain(1)
    value.extra = [1]  # type: ignore[attr-defined]
    return value


MUTABLE: list[Any] = [
    lambda: [1, [2]],
    lambda: {"a": [1], "b": {1: 2}},
    lambda: {1, 2},
    lambda: {(1, Frozen(2))},
    lambda: bytearray(b"x"),
    lambda: collections.deque([[1]], maxlen=3),
    lambda: collections.defaultdict(list, {"a": [1]}),
    lambda: collections.OrderedDict(a=[1]),
    lambda: collections.Counter("aab"),
    lambda: np.arange(3),
    lambda: np.array([[1], None], dtype=object),
    lambda: Row(1, [2]),
    lambda: Row.of_kind(RowKind.DELETE, a=1, b=2),
    lambda: Plain(1, "a"),
    lambda: Plain([1], Plain(2)),
    lambda: Slotted(1, "a"),
    lambda: Slotted([1], Slotted(2)),
    lambda: Frozen([1]),
    lambda: FrozenSlotted([1]),
    lambda: Derived([1], 2),
    lambda: Guarded([1]),
    lambda: Custom([1]),
    Closing,
    lambda: (1, [2]),
    lambda: Pair([1], 2),
    lambda: pd.Series([1, 2]),
    lambda: pl.DataFrame({"a": [1, 2]}),
    lambda: pl.Series([1, 2]),
    _tagged,
    _names,
    _extended,
]


def _state(value: Any) -> Any:
    """Everything that can be seen of a value, as plain data."""
    if isinstance(value, (pd.Series, np.ndarray)):
        return type(value), value.tolist()
    if isinstance(value, (pl.DataFrame, pl.Series)):
        return type(value), str(value)
    if isinstance(value, Row):
        return Row, value.get_field_names(), value.get_row_kind(), [_state(item) for item in value]
    if isinstance(value, dict):
        return type(value), [(_state(k), _state(v)) for k, v in value.items()]
    seen: list[Any] = [type(value)]
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        seen.append([_state(item) for item in value])
    elif isinstance(value, (str, int, float, bytes, bytearray, type(None))):
        seen.append(repr(value))
    names = [name for cls in type(value).__mro__ for name in cls.__dict__.get("__slots__", ())]
    names += list(getattr(value, "__dict__", {}))
    seen.append([(name, _state(getattr(value, name))) for name in names if name != "copied"])
    return seen


@pytest.mark.parametrize("make", MUTABLE)
def test_mutable_values_are_copied_whole(make: Any) -> None:
    value = make()
    for _ in range(2):  # the second time by the copier that is already known
        made = freeze_or_copy(value)
        assert made is not value
        assert _state(made) == _state(value)


def _mutate(value: Any) -> bool:
    """Changes everything changeable inside a value; whether there was anything."""
    if isinstance(value, list):
        for item in value:
            _mutate(item)
        value.append("changed")
        return True
    if isinstance(value, dict):
        for item in value.values():
            _mutate(item)
        value["changed"] = 1
        return True
    if isinstance(value, set):
        value.add("changed")
        return True
    if isinstance(value, Row):
        for item in value:
            _mutate(item)
        if len(value):
            value[0] = "changed"
        return True
    if isinstance(value, (Plain, Slotted)):
        _mutate(value.a)
        value.b = "changed"
        return True
    if isinstance(value, (Frozen, FrozenSlotted)):
        return _mutate(value.a)
    return isinstance(value, tuple) and any([_mutate(item) for item in value])


_leaves = st.integers() | st.text(max_size=2) | st.none()
_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=1), inner, max_size=2),
        st.builds(Plain, inner),
        st.builds(Slotted, inner),
        st.builds(Frozen, inner),
        st.builds(FrozenSlotted, inner),
        st.lists(inner, max_size=2).map(lambda values: Row(*values)),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=6,
)


@given(_values)
def test_a_later_change_is_not_seen(value: Any) -> None:
    made = freeze_or_copy(value)
    before = _state(made)
    assert before == _state(value)
    changed = _mutate(value)
    assert _state(made) == before
    if made is value:
        assert not changed


def test_sharing_and_cycles_stay() -> None:
    shared = [1]
    a, b = freeze_or_copy((shared, shared))
    assert a is b
    assert a is not shared
    loop: list[Any] = []
    pair = (loop,)
    loop.append(pair)
    made = freeze_or_copy(pair)
    assert made is not pair
    assert made[0][0] is made
    node = Plain(None)
    node.a = node
    made_node = freeze_or_copy(node)
    assert made_node.a is made_node is not node
    slotted = Slotted(None)
    slotted.a = [slotted]
    made_slotted = freeze_or_copy(slotted)
    assert made_slotted.a[0] is made_slotted is not slotted


class Empty:
    """Has no attributes, and cannot get one."""

    __slots__ = ()


@pytest.mark.parametrize("kind", [object, Empty])
def test_instances_without_attributes_are_copied(kind: type) -> None:
    assert type(freeze_or_copy((1, kind()))[1]) is kind


def test_an_unset_slot_stays_unset() -> None:
    value = Slotted.__new__(Slotted)
    value.a = [1]
    made = freeze_or_copy(value)
    assert made.a == [1]
    assert not hasattr(made, "b")


def test_polars_is_protected_from_changes_in_place() -> None:
    frame = pl.DataFrame({"a": [1, 2]})
    made = freeze_or_copy(frame)
    frame[0, "a"] = 9
    assert made["a"].to_list() == [1, 2]


def test_what_cannot_be_copied_is_named() -> None:
    for value in (threading.Lock(), [threading.Lock()], Plain(threading.Lock())):
        with pytest.raises(UncopyableValueError, match=r"lock"):
            freeze_or_copy(value)


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("good", "bad", "place"),
    [
        (None, Plain([1, {"deep": LOCK}]), ".a[1]['deep']"),
        # The generated copier of the class meets the lock.
        (Plain([1]), Plain([LOCK]), ".a[0]"),
        (None, (1, {"k": LOCK}), "[1]['k']"),
        (None, [Plain((LOCK,))], "[0].a[0]"),
        (None, Row(n=1, lock=LOCK), ".lock"),
    ],
)
def test_the_member_that_cannot_be_copied_is_named(good: Any, bad: Any, place: str) -> None:
    def fixed(value: Any) -> Any:
        return (whole_copier_of(type(value)) or freeze_or_copy)(value)

    if good is not None:
        assert fixed(fixed(good)) is not good
    for _ in range(2):
        with pytest.raises(UncopyableValueError) as found:
            fixed(bad)
        assert found.value.place == place and found.value.value_type is type(LOCK)
        assert f"the member {place} of " in str(found.value)
        assert "a value of type _thread.lock, cannot be copied" in str(found.value)


@dataclass
class Wide:
    a: list[int] = field(default_factory=list)


def test_declared_types_prove_immutability() -> None:
    assert copier_for(Types.LONG()) is None
    assert copier_for(Types.TUPLE([Types.STRING(), Types.SQL_DATE()])) is None
    for info in (None, Types.LIST(Types.LONG()), Types.PICKLED_BYTE_ARRAY(), Types.ROW([Types.LONG()])):
        copier = copier_for(info)
        assert copier is not None
        value = Wide([1])
        assert copier(value) is not value
