"""Generated copiers of plain classes: what instances have beyond, instead of or besides the usual attributes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.data.plain_classes import MOST_CLASSES, ClassTable, shape_of


@dataclasses.dataclass
class Order:
    id: int
    product: str
    price: float | None


@dataclasses.dataclass
class WithDefaults:
    id: int
    amount: int = 0
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Frozen:
    id: int
    tags: Any = None


class Ordinary:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Guarded:
    """Its __setattr__ must not see a copy being filled."""

    def __init__(self, a: int, b: int) -> None:
        self.__dict__.update(a=a, b=b)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError("a copy was filled through __setattr__")


class Answering:
    """Answers for attributes it lacks."""

    def __init__(self, a: int, b: int) -> None:
        self.a = a
        self.b = b

    def __getattr__(self, name: str) -> int:
        if name.startswith("__"):
            raise AttributeError(name)
        return 7


class WithProperty:
    """Keeps its own value under the name of a property."""

    def __init__(self, a: int, b: int) -> None:
        self.__dict__["a"] = a
        self.b = b

    @property
    def a(self) -> int:
        return -1

    @a.setter
    def a(self, value: int) -> None:
        raise AssertionError("a copy was filled through a property")


def without(value: Any, name: str) -> Any:
    delattr(value, name)
    return value


def also(value: Any, **attributes: Any) -> Any:
    for name, attribute in attributes.items():
        object.__setattr__(value, name, attribute)
    return value


def with_dict(value: Any) -> Any:
    assert value.__dict__  # its making changes how an interpreter stores the attributes
    return value


def reordered() -> Order:
    made = Order.__new__(Order)
    made.price, made.product, made.id = 9.5, "tea", 1
    return made


USUAL: list[Callable[[], Any]] = [
    lambda: Order(1, "tea", 9.5),
    lambda: WithDefaults(1),
    lambda: Ordinary(a=1, b=2),
    lambda: Guarded(1, 2),
    lambda: Answering(1, 2),
    lambda: WithProperty(1, 2),
    lambda: Ordinary(only=1),
    lambda: Frozen(1),
]
UNUSUAL: list[Callable[[], Any]] = [
    *USUAL,
    lambda: with_dict(Order(1, "tea", 9.5)),
    lambda: Order(1, "tea", None),
    lambda: Order(True, "tea", [9.5]),  # type: ignore[arg-type]
    lambda: also(Order(1, "tea", 9.5), more=3),
    lambda: with_dict(also(Order(1, "tea", 9.5), more=[3])),
    lambda: without(Order(1, "tea", 9.5), "price"),
    lambda: also(without(Order(1, "tea", 9.5), "price"), more=3),
    lambda: reordered(),
    lambda: without(WithDefaults(1), "amount"),
    lambda: also(without(WithDefaults(1), "amount"), more=0),
    lambda: with_dict(also(without(WithDefaults(1), "amount"), more=0)),
    lambda: also(without(Answering(1, 2), "b"), c=7),
    lambda: Ordinary(),
    lambda: Ordinary(a=1),
    lambda: Ordinary(only=[1]),
    lambda: Ordinary(a=1, b=[1, {2: [3]}]),
    lambda: Ordinary(**{"a b": 1, "class": 2, "__debug__": 3, "\N{LATIN SMALL LIGATURE FI}": 4}),
    lambda: Frozen(1, [2]),
    lambda: also(Frozen(1), more=[2]),
    lambda: Frozen(1, Frozen(2)),
]


def kinds(value: Any) -> dict[str, type]:
    """The types of the attributes of a value."""
    return {name: type(content) for name, content in value.__dict__.items()}


@pytest.mark.parametrize("first", USUAL)
@pytest.mark.parametrize("second", UNUSUAL)
def test_whatever_came_first_the_attributes_are_copied_whole(
    first: Callable[[], Any], second: Callable[[], Any]
) -> None:
    for make in (first, first, first, second, first, second, second):
        original = make()
        made = freeze_or_copy(original)
        assert type(made) is type(original)
        assert made.__dict__ == copy.deepcopy(original).__dict__ == make().__dict__
        # By name: which order of attributes the class has shown first depends on the tests before this one.
        assert kinds(made) == kinds(original)
        if made is not original:
            original.__dict__.clear()
            assert made.__dict__ == make().__dict__


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "c", "d"]),
            st.one_of(st.none(), st.integers(), st.text(max_size=2), st.lists(st.integers(), max_size=2)),
        ),
        max_size=12,
    )
)
def test_any_sequence_of_instances_is_copied_whole(rows: list[dict[str, Any]]) -> None:
    class Local:
        pass

    for attributes in rows:
        value = also(Local(), **attributes)
        made = freeze_or_copy(value)
        assert made is not value and made.__dict__ == attributes
        assert not any(
            item is value.__dict__[name] for name, item in made.__dict__.items() if isinstance(item, list)
        )


def test_a_value_that_holds_itself_is_copied_with_its_cycle() -> None:
    for _ in range(3):
        value = Ordinary(a=1, me=None)
        value.me = value  # type: ignore[attr-defined]
        made = freeze_or_copy(value)
        assert made is not value and made.me is made


def test_frozen_values_pass_while_nothing_in_them_can_change() -> None:
    for tags in ("x", "y", None, 3, "x"):
        value = Frozen(1, tags)
        assert freeze_or_copy(value) is value
    changeable = Frozen(1, [2])
    assert freeze_or_copy(changeable).tags is not changeable.tags
    extended = also(Frozen(1), more=[2])
    assert freeze_or_copy(extended).more is not extended.more


@pytest.mark.parametrize(
    ("cls", "names", "countable", "storable"),
    [
        (Order, ["id", "product", "price"], True, True),
        (Order, ["id"], False, True),
        (WithDefaults, ["id", "amount", "note"], False, True),
        (Answering, ["a", "b"], False, True),
        (Guarded, ["a", "b"], True, False),
        (WithProperty, ["a", "b"], False, False),
    ],
)
def test_what_generated_code_may_do(cls: type, names: list[str], countable: bool, storable: bool) -> None:
    shape = shape_of(cls, names)
    assert shape is not None
    assert (shape.is_countable, shape.is_storable) == (countable, storable)


@pytest.mark.parametrize("name", ["class", "__debug__", "a b", "", "\N{LATIN SMALL LIGATURE FI}", "x); f("])
def test_names_that_are_no_plain_identifiers_never_become_source(name: str) -> None:
    assert shape_of(Ordinary, ["a", name]) is None


def test_a_full_table_of_classes_begins_anew_with_those_that_follow_it() -> None:
    follower = ClassTable[str]({})
    table = ClassTable({int: "built in"}, follower)
    classes = [type(f"Made{number}", (), {}) for number in range(MOST_CLASSES)]
    for each in classes[:-1]:
        table.put(each, "made")
        follower.put(each, "made")
    # The table is full, and what it has may be replaced.
    table.put(classes[0], "again")
    assert (table.get(classes[0]), table.get(classes[1]), follower.get(classes[1])) == (
        "again",
        "made",
        "made",
    )
    table.put(classes[-1], "last")
    assert [table.get(each) for each in (int, classes[0], classes[-1])] == ["built in", None, "last"]
    assert follower.get(classes[1]) is None


def test_entries_of_built_in_classes_are_there_while_a_table_begins_anew() -> None:
    table = ClassTable[object]({int: "built in"})
    seen: list[object] = []

    class Entry:
        """Looks when the table drops it, as another thread could."""

        def __del__(self) -> None:
            seen.append(table.get(int))

    classes = [type(f"Made{number}", (), {}) for number in range(MOST_CLASSES)]
    for each in classes:
        table.put(each, Entry())
    assert len(seen) == MOST_CLASSES - 1 and set(seen) == {"built in"}
