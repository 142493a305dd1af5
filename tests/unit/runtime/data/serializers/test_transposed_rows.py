"""Pickled rows of plain classes: which are transposed, and that all arrive as plain pickle would bring them."""

from __future__ import annotations

import copyreg
import dataclasses
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.runtime.data.errors import RowFormatError, SerializationError
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.data.serializers.transposed_rows import TRANSPOSED, dump_transposed

SERIALIZER = serializer_for(None)
COUNT = 20


@dataclasses.dataclass
class Order:
    id: int
    product: Any
    price: float = 1.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    id: int
    product: Any


class Ordinary:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Guarded(Ordinary):
    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError("a row was filled through __setattr__")


class Constructed(Order):
    """Only its constructor may make it."""

    def __new__(cls, *_: Any) -> Constructed:
        return object.__new__(cls)


class WithState(Ordinary):
    def __getstate__(self) -> dict[str, Any]:
        return {"a": "from its state"}


class Restored(Ordinary):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, restored=True)


class Reduced(Ordinary):
    def __reduce__(self) -> Any:
        return Ordinary, (), {"a": "from its reduction"}


class Registered(Ordinary):
    pass


@dataclasses.dataclass(slots=True)
class Slotted:
    a: int


class Text(str):
    a: int


def as_ordinary() -> Any:
    return Ordinary()


class Node(Ordinary):
    pass


def rows_of(make: Callable[[int], Any]) -> list[Any]:
    return [make(i) for i in range(COUNT)]


def described(rows: list[Any]) -> list[Any]:
    return [(type(row), row.__dict__) for row in rows]


@pytest.mark.parametrize(
    "make",
    [
        lambda i: Order(i, f"product {i}"),
        lambda i: Order(i, None if i % 2 else [i]),
        lambda i: Frozen(i, "tea"),
        lambda i: Ordinary(a=i),
        lambda i: Ordinary(**{"a b": i, "class": 2}),
        lambda i: Guarded(a=i, b=2),
    ],
)
def test_rows_of_one_plain_class_are_transposed_and_arrive(make: Callable[[int], Any]) -> None:
    data = SERIALIZER.dump_rows(rows_of(make))
    assert data[:1] == TRANSPOSED
    assert len(data) < len(pickle.dumps(rows_of(make), 5))
    for form in (data, memoryview(data)):
        assert described(SERIALIZER.load_rows(form)) == described(rows_of(make))


@pytest.mark.parametrize(
    "make",
    [
        lambda i: Order(i, 1) if i != 7 else Frozen(i, 1),
        lambda i: Ordinary(a=i) if i != 7 else Ordinary(a=i, b=1),
        lambda i: Ordinary(a=i) if i != 7 else Ordinary(b=i),
        lambda i: Ordinary(a=i, b=1) if i != 7 else Ordinary(b=1, a=i),
        lambda i: Ordinary(),
        lambda i: Constructed(i, 1),
        lambda i: WithState(a=i),
        lambda i: Restored(a=i),
        lambda i: Reduced(a=i),
    ],
)
def test_other_rows_are_pickled_as_they_are(make: Callable[[int], Any]) -> None:
    rows = rows_of(make)
    assert SERIALIZER.dump_rows(rows) == pickle.dumps(rows, 5)
    loaded = SERIALIZER.load_rows(SERIALIZER.dump_rows(rows))
    assert described(loaded) == described(pickle.loads(pickle.dumps(rows, 5)))


@pytest.mark.parametrize(
    "make", [lambda i: Slotted(i), lambda i: Text(i), lambda i: (i, "a"), lambda i: {i: 1}]
)
def test_values_that_are_no_plain_objects_are_pickled_as_they_are(make: Callable[[int], Any]) -> None:
    rows = rows_of(make)
    assert SERIALIZER.dump_rows(rows) == pickle.dumps(rows, 5)


def test_a_class_with_a_registered_reduction_keeps_it() -> None:
    assert dump_transposed(rows_of(lambda i: Registered(a=i))) is not None
    copyreg.pickle(Registered, lambda row: (as_ordinary, ()))
    try:
        loaded = SERIALIZER.load_rows(SERIALIZER.dump_rows(rows_of(lambda i: Registered(a=i))))
    finally:
        del copyreg.dispatch_table[Registered]
    assert all(type(row) is Ordinary for row in loaded)


def test_few_rows_are_pickled_as_they_are() -> None:
    assert dump_transposed([]) is None
    assert dump_transposed([Order(1, 2)]) is None


def test_rows_that_hold_rows_keep_who_is_who() -> None:
    nodes = rows_of(lambda i: Node(me=None, others=[]))
    for i, node in enumerate(nodes):
        node.me = node
        node.others.append(nodes[i - 1])
    for _ in range(2):
        loaded = SERIALIZER.load_rows(SERIALIZER.dump_rows(nodes))
        assert all(node.me is node for node in loaded)
        assert all(node.others == [loaded[i - 1]] for i, node in enumerate(loaded))


def test_what_rows_share_they_share_when_they_arrive() -> None:
    shared = [1, 2]
    data = SERIALIZER.dump_rows(rows_of(lambda i: Order(i, shared)))
    assert data[:1] == TRANSPOSED
    loaded = SERIALIZER.load_rows(data)
    assert all(row.product is loaded[0].product for row in loaded)


def test_a_row_that_does_not_pickle_is_named() -> None:
    rows = rows_of(lambda i: Order(i, threading.Lock() if i == 7 else 1))
    with pytest.raises(SerializationError, match=r"row 7, .* cannot be pickled because of its member"):
        SERIALIZER.dump_rows(rows)


def test_columns_that_disagree_are_refused() -> None:
    for columns in ([(1, 2), (3,)], [(1, 2)]):
        damaged = TRANSPOSED + pickle.dumps((Ordinary, ["a", "b"], columns), 5)
        with pytest.raises(RowFormatError, match="different lengths"):
            SERIALIZER.load_rows(damaged)
    with pytest.raises(RowFormatError, match="truncated"):
        SERIALIZER.load_rows(SERIALIZER.dump_rows(rows_of(lambda i: Order(i, 1)))[:-5])


@settings(max_examples=100)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "c"]),
            st.one_of(
                st.none(), st.integers(), st.floats(allow_nan=False), st.text(), st.lists(st.integers())
            ),
            min_size=2,
        ),
        max_size=16,
    )
)
def test_any_rows_arrive_as_they_were(attributes: list[dict[str, Any]]) -> None:
    rows = [Ordinary(**fields) for fields in attributes]
    loaded = SERIALIZER.load_rows(SERIALIZER.dump_rows(rows))
    assert [list(row.__dict__.items()) for row in loaded] == [list(fields.items()) for fields in attributes]
