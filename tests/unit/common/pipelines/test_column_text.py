"""Columns as text: each type has one text, and what is no schema is told with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.pipelines.column_text import Column, ColumnTextError, columns_of

_SIMPLE = st.sampled_from(
    [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
    ]
)
_DECIMAL = st.tuples(st.integers(1, 38), st.integers(0, 38)).map(
    lambda digits: f"decimal({max(digits)},{min(digits)})" if digits[1] else f"decimal({digits[0]},0)"
)
_NAMES = st.text("abcxyz_", min_size=1, max_size=5)
_TYPES = st.recursive(
    _SIMPLE | _DECIMAL,
    lambda inner: (
        inner.map(lambda each: f"array<{each}>")
        | st.tuples(inner, inner).map(lambda pair: f"map<{pair[0]},{pair[1]}>")
        | st.dictionaries(_NAMES, inner, min_size=1, max_size=3).map(
            lambda fields: f"struct<{','.join(f'{name}:{each}' for name, each in fields.items())}>"
        )
    ),
    max_leaves=5,
)


@given(st.dictionaries(_NAMES, _TYPES, min_size=1, max_size=4))
def test_the_text_of_columns_is_read_as_these_columns(types: dict[str, str]) -> None:
    columns = tuple(Column(name, each) for name, each in types.items())
    assert columns_of(", ".join(map(str, columns))) == columns


def test_names_of_types_that_mean_the_same_have_one_text() -> None:
    found = columns_of(
        "a LONG, b integer, c: Array< Struct<x int, y : decimal(5)> >, `d e``` real, f decimal"
    )
    assert [each.type for each in found] == [
        "bigint",
        "int",
        "array<struct<x:int,y:decimal(5,0)>>",
        "float",
        "decimal(10,0)",
    ]
    assert [each.name for each in found] == ["a", "b", "c", "d e`", "f"]
    assert str(found[3]) == "`d e``` float"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected the name of a column, found the end of the text"),
        ("größe int", "the name of a column, between backticks if it has more than letters from a to z"),
        ("a", "expected a type (boolean, "),
        ("a int,", "found the end of the text"),
        ("a int b int", "expected ',', found 'b int'"),
        ("a number", "found 'number'"),
        ("a array<int", "expected '>'"),
        ("a map<int>", "expected ','"),
        ("a decimal(x)", "expected a number"),
        ("a decimal(39)", "at most 38 digits"),
        ("a decimal(2,3)", "not more of them behind the point"),
        ("a int, A string", "'A' is there twice"),
        ("a int not null", "found 'not null'"),
    ],
)
def test_what_is_no_schema_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ColumnTextError) as raised:
        columns_of(text)
    assert told in str(raised.value)
