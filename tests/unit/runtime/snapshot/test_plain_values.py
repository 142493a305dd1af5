"""Undeclared values: they come back as they were, without pickle, also through changed classes."""

from __future__ import annotations

import datetime as dt
import math
import threading
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.snapshot import stored_classes as classes
from yarrow.common.types import Row, RowKind
from yarrow.runtime.data.key_classes import set_main_module
from yarrow.runtime.snapshot.errors import (
    StateMigrationError,
    StateSerializationError,
    UntrustedPickleError,
)
from yarrow.runtime.snapshot.plain_shapes import decoder_of, shape_of
from yarrow.runtime.snapshot.plain_values import (
    dump_plain,
    dump_plain_value,
    load_plain,
    load_plain_value,
)
from yarrow.runtime.snapshot.value_serializers import PlainValues, value_serializer

atoms = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters()), st.binary(max_size=9)
)
zones = st.one_of(
    st.none(),
    st.just(dt.UTC),
    st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)).map(dt.timezone),
    st.just(dt.timezone(dt.timedelta(hours=1), "NAMED")),
    st.sampled_from(["Europe/Berlin", "America/New_York"]).map(zoneinfo.ZoneInfo),
)
scalars = st.one_of(
    atoms,
    st.decimals(),
    st.dates(),
    st.times(timezones=st.one_of(st.none(), st.just(dt.UTC))),
    st.builds(lambda d, z, f: d.replace(tzinfo=z, fold=f), st.datetimes(), zones, st.integers(0, 1)),
    st.timedeltas(),
    st.uuids(),
    st.fractions(),
    st.complex_numbers(),
    st.sampled_from([*classes.Colour, *classes.Level, *classes.Access, classes.Access(3), classes.Access(0)]),
    st.builds(range, st.integers(), st.integers(), st.integers(1)),
    st.builds(classes.Point, st.integers(), st.integers()),
    st.builds(np.int32, st.integers(-9, 9)),
    st.builds(np.float64, st.floats()),
)
hashable = st.one_of(st.integers(), st.text(), st.tuples(st.integers(), st.text()), st.dates())


def composite(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(children, max_size=4)
    return st.one_of(
        lists,
        lists.map(tuple),
        st.dictionaries(hashable, children, max_size=3),
        st.sets(hashable, max_size=3),
        st.frozensets(hashable, max_size=3),
        lists.map(deque),
        lists.map(lambda items: Row(*items)),
        st.builds(lambda a, b: Row(a=a, b=b), children, children),
        st.builds(classes.Visit, st.text(), st.integers(), st.lists(st.text(), max_size=2)),
        st.builds(
            classes.Place, st.text(), st.none() | st.builds(classes.Point, st.integers(), st.integers())
        ),
        st.builds(lambda value: classes.Plain(inner=value), children),
    )


values = st.recursive(scalars, composite, max_leaves=8)


def same(a: Any, b: Any) -> bool:
    """Equal and of equal types at every level, NaN and the sign of zero included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (float, complex, Decimal, np.floating)):
        return repr(a) == repr(b)
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, a.items(), b.items()))
    if isinstance(a, (set, frozenset)):
        return bool(a == b)
    if isinstance(a, Row):
        names = (a.get_field_names(), a.get_row_kind()) == (b.get_field_names(), b.get_row_kind())
        return names and all(map(same, a, b))
    if isinstance(a, (classes.Visit, classes.Plain)):
        return same(vars(a), vars(b))
    if isinstance(a, (dt.datetime, dt.time)):
        return (a, a.fold, str(a.tzinfo)) == (b, b.fold, str(b.tzinfo))
    return bool(a == b)


@pytest.mark.slow
@given(st.lists(values, max_size=5))
def test_any_values_come_back(found: list[Any]) -> None:
    assert same(load_plain(dump_plain(found)), found)
    for value in found:
        assert same(load_plain_value(dump_plain_value(value)), value)


shaped = st.one_of(
    *(
        st.lists(st.one_of(st.none(), kind) if optional else kind, max_size=6)
        for optional in (False, True)
        for kind in (
            atoms,
            st.tuples(atoms, atoms),
            st.tuples(st.text(), st.lists(atoms, max_size=3)),
            st.lists(st.tuples(st.integers()), max_size=3),
            st.dictionaries(st.text(), st.lists(st.integers(), max_size=2), max_size=2),
            st.lists(atoms, max_size=4).map(tuple),
            st.fixed_dictionaries(
                {"at": st.integers(), "": st.lists(st.integers()), "sum(v)": st.tuples(atoms)}
            ),
        )
    )
)


@given(shaped)
def test_values_of_one_shape_come_back(found: list[Any]) -> None:
    assert same(load_plain(dump_plain(found)), found)


@pytest.mark.parametrize(
    ("found", "shape"),
    [
        ([1, "a", None], "a"),
        ([("k", 1), ("l", 2)], "<a>"),
        ([("k", [1]), ("l", [])], "(a[a])"),
        ([[(1,)], None, []], "?[<a>]"),
        ([{"a": [1]}, {}], "{[a]}"),
        ([{"a": 1, "b": [(2,)]}, {"a": "x", "b": []}], "|a:ab:[<a>]|"),
        ([{"sum(v)": {1: {"n": [1]}}, "": ""}] * 2, "|sum(v):{{[a]}}:a|"),
        ([[{"a": 1, "b": [2]}], None, [{"a": 1, "b": []}]], "?[|a:ab:[a]|]"),
        ([{"a": 1, "b": [2]}, {"b": [2], "a": 1}], None),
        ([{"a": 1, "b": [2]}], None),
        ([{"a": 1, "b:": [2]}] * 2, None),
        ([{"a": 1, "b|": [2]}] * 2, None),
        ([{"a": 1, 2: [2]}] * 2, None),
        ([(1, (2,)), (1,)], None),
        ([{1}], None),
        ([[1], (1,)], None),
    ],
)
def test_plain_runs_have_a_shape(found: list[Any], shape: str | None) -> None:
    assert shape_of(found) == shape


def test_what_is_no_shape_is_no_shape() -> None:
    for text in ("", "b", "<a", "(a", "[a>", "aa", "?", "|a", "|a:", "|a:a", "|a:a||"):
        with pytest.raises(ValueError, match="no shape"):
            decoder_of(text)


def test_containers_of_the_standard_library_and_arrow() -> None:
    found = [
        OrderedDict(b=1, a=[2]), Counter("aab"), defaultdict(list, {1: [2]}), defaultdict(None, {1: 2}),
        deque([1, 2], maxlen=2), bytearray(b"x"), Fraction(1, 3), 1 - 2j, uuid.UUID(int=7), -(2**200),
        Row.of_kind(RowKind.DELETE, 1), np.datetime64("2020-01-01"), "\ud800", ["\udfff"], math.inf,
    ]  # fmt: skip
    again = load_plain(dump_plain(found))
    assert again == found and list(map(type, again)) == list(map(type, found))
    assert again[4].maxlen == 2 and again[2]["new"] == []
    arrays = [np.arange(6).reshape(2, 3), np.array([[1, None], ["a", {2}]], object), np.array(["a"])]
    for array, back in zip(arrays, load_plain(dump_plain(arrays)), strict=True):
        assert array.dtype == back.dtype and array.tolist() == back.tolist()
    batch = pa.record_batch({"a": [1, None]})
    assert load_plain(dump_plain([batch, pa.Table.from_batches([batch] * 2)])) == [
        batch, pa.Table.from_batches([batch] * 2)
    ]  # fmt: skip


@given(st.binary(max_size=60), st.sampled_from([b"", b"\x10", b"\x11\x01a", b"\x12", b"\x12\x92\x90\x91"]))
def test_damaged_bytes_are_a_typed_error_or_values(data: bytes, head: bytes) -> None:
    serializer = PlainValues("s", "op", allow_pickle=True, trusted=False)
    for load in (serializer.load_values, serializer.load_value):
        try:
            load(head + data)
        except (StateSerializationError, StateMigrationError):
            continue


def test_values_that_have_no_safe_form_are_refused_by_name_or_pickled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusing = value_serializer(None, "visits", "counting")
    for value in (classes.Opaque(1), [classes.Opaque(1)], len, threading.Lock()):
        with pytest.raises(StateSerializationError, match=r"operator 'counting', state 'visits': .*Types\."):
            refusing.dump_values([value])
    pickling = value_serializer(None, "pickled", "counting", allow_pickle=True)
    assert pickling.config().pickled == ()
    for _ in range(2):
        data = pickling.dump_values([{"a": classes.Opaque(1)}, 2])
    assert pickling.load_values(data) == [{"a": classes.Opaque(1)}, 2]
    assert pickling.config().pickled == (f"{classes.__name__}.Opaque",)
    assert [record.args for record in caplog.records] == [
        ("counting", "pickled", f"{classes.__name__}.Opaque")
    ]
    untrusting = value_serializer(None, "pickled", "counting", trusted=False)
    with pytest.raises(UntrustedPickleError, match="state 'pickled'"):
        untrusting.load_values(data)
    with pytest.raises(StateSerializationError, match="does not pickle either"):
        pickling.dump_value(threading.Lock())


def test_what_contains_itself_and_local_classes_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    class Local:
        pass

    refusing = value_serializer(None, "s", "op")
    with pytest.raises(StateSerializationError, match="contains itself"):
        refusing.dump_values([loop])
    with pytest.raises(StateSerializationError, match="move the class to module level"):
        refusing.dump_value(Local())


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Gives the name of a class to what it became in a later program."""

    changed: list[tuple[type, str]] = []

    def rename(old: type, new: type) -> None:
        monkeypatch.setattr(classes, old.__name__, new)
        changed.append((new, new.__qualname__))
        new.__qualname__ = old.__qualname__

    yield rename
    for cls, name in changed:
        cls.__qualname__ = name


PLAIN = PlainValues("visits", "counting", allow_pickle=False, trusted=False)


def test_a_changed_dataclass_reads_old_values(renamed: Any) -> None:
    data = PLAIN.dump_values([classes.Visit("a", 3, ["x"])])
    renamed(classes.Visit, classes.VisitWithMore)
    (found,) = PLAIN.load_values(data)
    assert found == classes.VisitWithMore("a", 3.0, 1.5, ["nobody"])
    assert type(found.count) is float and not hasattr(found, "tags")


def test_a_changed_named_tuple_reads_old_values(renamed: Any) -> None:
    data = PLAIN.dump_values([classes.Point(1, 2)])
    renamed(classes.Point, classes.PointWithMore)
    (found,) = PLAIN.load_values(data)
    assert found == (1.0, "z")
    assert type(found) is classes.PointWithMore and type(found.x) is float


@pytest.mark.parametrize(
    ("old", "value", "new", "message"),
    [
        (
            classes.Visit, classes.Visit("a", 1), classes.VisitWithoutDefault,
            r"Visit\.seconds': the snapshot holds no such field, the program declares float.*a default",
        ),
        (
            classes.Visit, classes.Visit("a", 1), classes.VisitOfText,
            r"Visit\.count': the snapshot holds int, the program declares str",
        ),
        (
            classes.Point, classes.Point(1), classes.PointWithoutDefault,
            r"Point\.z': the snapshot holds no such field",
        ),
        (classes.Colour, classes.Colour.GREEN, classes.FewerColours, r"Colour\.GREEN': .* no such member"),
        (classes.Visit, classes.Visit("a", 1), classes.FewerColours, "a class of another kind"),
    ],
)  # fmt: skip
def test_changes_that_nothing_converts_name_operator_state_and_field(
    renamed: Any, old: type, value: Any, new: type, message: str
) -> None:
    data = PLAIN.dump_values([value])
    renamed(old, new)
    with pytest.raises(StateMigrationError, match=f"operator 'counting', state 'visits'.*{message}"):
        PLAIN.load_values(data)


def test_a_class_that_is_gone_is_named_and_does_not_keep_other_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = PLAIN.dump_values([classes.Visit("a", 1)])
    monkeypatch.delattr(classes, "Visit")
    with pytest.raises(StateMigrationError, match=r"stored_classes:Visit.*no such class.*Ship the module"):
        PLAIN.load_values(data)


def test_classes_of_the_main_program_are_stored_under_its_name() -> None:
    import __main__

    made: Any = type("Job", (), {"__module__": "__main__"})
    vars(__main__)["Job"] = made
    set_main_module("delays")
    try:
        value = made()
        value.n = 1
        data = dump_plain([value])
        assert b"delays:Job" in data and b"__main__" not in data
        (found,) = load_plain(data)
        assert type(found) is made and found.n == 1
    finally:
        set_main_module(None)
        del vars(__main__)["Job"]
