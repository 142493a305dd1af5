"""Row: fields by position, name and attribute; equality, hash, pickle."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common import Row, RowKind, Types
from yarrow.common.types import own_names, positional_row, row_of, rows_of


def test_fields_are_read_and_written_by_position_name_and_attribute() -> None:
    row = Row(id=1, name="a")
    row[0] = 2
    row["name"] = "b"
    assert (row[0], row["id"], row.id) == (2, 2, 2)
    row.name = "c"
    assert list(row) == [2, "c"]
    assert row.get_fields_by_names(["name", "id"]) == ["c", 2]


def test_a_field_that_does_not_exist_is_named_in_the_error() -> None:
    row = Row(id=1)
    with pytest.raises(KeyError, match="nmae"):
        row["nmae"]
    with pytest.raises(AttributeError, match="nmae"):
        _ = row.nmae
    with pytest.raises(AttributeError, match="nmae"):
        row.nmae = 1
    with pytest.raises(KeyError, match="no field names"):
        Row(1)["id"]


def test_positional_and_named_values_do_not_mix() -> None:
    with pytest.raises(ValueError, match="not both"):
        Row(1, b=2)


def test_a_row_of_names_makes_rows() -> None:
    person = Row("id", "name")
    assert person(1, "a") == Row(id=1, name="a")
    with pytest.raises(TypeError, match="1 values given for the 2 fields"):
        person(1)


@pytest.mark.parametrize("names", [["a"], ["a", "a"]])
def test_field_names_must_fit(names: list[str]) -> None:
    with pytest.raises(ValueError, match="field names"):
        Row(1, 2).set_field_names(names)


def test_rows_are_equal_when_kind_names_and_values_are() -> None:
    assert Row(a=1, b=2) == Row(a=1, b=2)
    assert Row(a=1, b=2) != Row(b=1, a=2)
    assert Row(a=1) != Row(1)
    assert Row(1) != Row.of_kind(RowKind.DELETE, 1)
    assert Row(1) != (1,)


def test_equal_rows_hash_alike_and_a_mutable_value_does_not_hash() -> None:
    assert hash(Row(a=1, b="x")) == hash(Row(a=1, b="x"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Row(a=[1]))


def test_as_dict_goes_into_rows_only_when_asked_to() -> None:
    inner = Row(x=1)
    row = Row(a=inner, b=[inner], c={"k": inner}, d=(inner, 2))
    assert row.as_dict()["a"] is inner
    assert row.as_dict(recursive=True) == {
        "a": {"x": 1},
        "b": [{"x": 1}],
        "c": {"k": {"x": 1}},
        "d": ({"x": 1}, 2),
    }
    with pytest.raises(TypeError, match="without field names"):
        Row(1).as_dict()


@given(
    st.dictionaries(st.sampled_from(["a", "b", "count", "f0"]), st.integers() | st.text() | st.none()),
    st.sampled_from(RowKind),
)
def test_pickle_and_copy_keep_everything(fields: dict[str, object], row_kind: RowKind) -> None:
    row = Row.of_kind(row_kind, **fields)
    assert pickle.loads(pickle.dumps(row)) == row
    assert copy.deepcopy(row) == row
    assert pickle.loads(pickle.dumps(row)).get_row_kind() is row_kind


def test_a_copy_is_apart() -> None:
    row = Row(a=[1])
    other = copy.deepcopy(row)
    other.a.append(2)
    assert row.a == [1]


def test_text_shows_names_and_kind() -> None:
    assert repr(Row(a=1, b="x")) == "Row(a=1, b='x')"
    assert str(Row("a", 2)) == repr(Row("a", 2)) == "<Row('a', 2)>"
    assert str(positional_row(["a", 2])) == "Row(f0='a', f1=2)"
    assert str(RowKind.UPDATE_BEFORE) == "-U"


def test_positional_names_are_for_access() -> None:
    row = positional_row(["a", 2])
    assert (row.f0, row["f1"], row[1]) == ("a", 2, 2)
    assert row.as_dict() == {"f0": "a", "f1": 2}
    assert row.get_field_names() == ["f0", "f1"]
    assert row.get_fields_by_names(["f1", "f0"]) == [2, "a"]
    row.f1 = 3
    row["f0"] = "b"
    assert list(row) == ["b", 3]
    with pytest.raises(KeyError, match=r"'f2': this Row has the fields \['f0', 'f1'\]"):
        row["f2"]


def test_positional_names_are_no_part_of_a_row() -> None:
    row, nameless, named = positional_row(["a", 2]), Row("a", 2), Row(f0="a", f1=2)
    assert row == nameless and nameless == row and row == positional_row(["a", 2])
    assert row != named and named != row and nameless != named
    assert hash(row) == hash(nameless)
    assert {row: 1}[nameless] == 1 and {nameless: 1}[row] == 1
    assert named not in {row: 1, nameless: 2}
    assert row != positional_row(["a"]) and row != Row.of_kind(RowKind.DELETE, "a", 2)
    assert own_names(row) is None and own_names(named) == ("f0", "f1")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda row: pickle.loads(pickle.dumps(row))])
def test_positional_names_stay_what_they_are(again: Any) -> None:
    row = positional_row(["a", positional_row([2])])
    row.set_row_kind(RowKind.DELETE)
    made = again(row)
    assert made == row and made.get_row_kind() is RowKind.DELETE
    assert made.f1.f0 == 2
    assert own_names(made) is None


def test_a_declared_type_gives_positional_names_and_takes_them_for_none() -> None:
    unnamed = Types.ROW([Types.STRING()])
    named = Types.ROW_NAMED(["a"], [Types.STRING()])
    row = unnamed.from_internal_type(unnamed.to_internal_type(Row("x")))
    assert row.f0 == "x" and row == Row("x")
    assert named.accepts(row) and unnamed.accepts(row) and not named.accepts(Row(f0="x"))
    assert named.from_internal_type(named.to_internal_type(row)) == Row(a="x")


def made_at_once(names: tuple[str, ...] | None, values: list[Any]) -> list[Row]:
    """The Row of these values as `row_of` makes it, and as `rows_of` does."""
    return [row_of(names, [*values]), *rows_of(names, [[*values]], 1)]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda row: pickle.loads(pickle.dumps(row))])
def test_rows_made_without_checks_are_rows_like_others(again: Any) -> None:
    for made in made_at_once(("id", "name"), [1, "a"]):
        assert type(made) is Row and type(again(made)) is Row
        assert made == Row(id=1, name="a") == again(made)
        assert hash(made) == hash(Row(id=1, name="a"))
        assert repr(made) == "Row(id=1, name='a')"
        made.name = "b"
        made.set_row_kind(RowKind.DELETE)
        assert (list(made), made.get_row_kind()) == ([1, "b"], RowKind.DELETE)
        with pytest.raises(AttributeError, match="nmae"):
            made.nmae = 1
        with pytest.raises(AttributeError, match="no field"):
            made._values = []
    for made in made_at_once(None, [1]):
        assert made == Row(1) and made.get_field_names() is None


def test_many_rows_at_once_have_lists_of_their_own_and_are_as_many_as_told() -> None:
    rows = rows_of(("id",), ([number] for number in range(3)), 3)
    rows[0].id = 7
    assert [row.id for row in rows] == [7, 1, 2]
    for number in (2, 4):
        with pytest.raises(ValueError, match=r"zip\(\)"):
            rows_of(("id",), ([number] for number in range(3)), number)
    assert rows_of(("id",), [], 0) == []
    assert row_of(("id",), [1], RowKind.DELETE).get_row_kind() is RowKind.DELETE
