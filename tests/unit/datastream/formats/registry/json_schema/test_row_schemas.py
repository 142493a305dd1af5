"""Schemas of Row types, and rows as JSON that is valid by them: read again as the same rows."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.datastream.formats.json_rows import row_decoder
from yarrow.datastream.formats.registry.json_schema.document import JsonDocument
from yarrow.datastream.formats.registry.json_schema.evolution import fault_of, new_fields
from yarrow.datastream.formats.registry.json_schema.row_schemas import row_type_of_shape, schema_of_row_type
from yarrow.datastream.formats.registry.json_schema.shapes import (
    JsonShape,
    shape_of_document,
    shape_of_type,
)
from yarrow.datastream.formats.registry.json_schema.values import value_writer
from yarrow.datastream.formats.registry.registry_serializer import part_of_key
from yarrow.runtime.common.errors import InvalidProgramError

_LEAVES: list[tuple[TypeInformation, Any]] = [
    (Types.STRING(), st.text(max_size=3)),
    (Types.BOOLEAN(), st.booleans()),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    (Types.BIG_INT(), st.integers(-(2**80), 2**80)),
    (Types.DOUBLE(), st.floats(allow_nan=False, allow_infinity=False)),
    (Types.BIG_DEC(), st.decimals(allow_nan=False, allow_infinity=False)),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), st.datetimes()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=4)),
]


@st.composite
def type_and_value(draw: Any, depth: int = 2) -> tuple[TypeInformation, Any]:
    """A type and a value of it, or None."""
    form = draw(st.sampled_from(["leaf", "list", "map", "row"] if depth else ["leaf"]))
    if form == "leaf":
        kind, values = draw(st.sampled_from(_LEAVES))
        return kind, draw(values | st.none())
    inner, value = draw(type_and_value(depth - 1))
    if form == "list":
        return Types.LIST(inner), [value] * draw(st.integers(0, 2))
    if form == "map":
        return Types.MAP(Types.STRING(), inner), {"a": value}
    return Types.ROW_NAMED(["x"], [inner]), draw(st.sampled_from([Row(x=value), None]))


def document(schema: Any) -> JsonDocument:
    return JsonDocument.of(json.dumps(schema))


def shape(schema: Any) -> JsonShape:
    return shape_of_document(document(schema))


@given(type_and_value())
def test_rows_are_valid_by_the_schema_of_their_type_and_are_read_again(given: tuple[Any, Any]) -> None:
    kind, value = given
    row_type, row = Types.ROW_NAMED(["f"], [kind]), Row(f=value)
    made = document(schema_of_row_type(row_type, "Made"))
    written = value_writer(shape_of_document(made))(row)
    made.validator().validate(written)
    assert row_decoder(row_type, missing_is_error=True)(msgspec.json.encode(written)) == row
    ours, theirs = shape_of_document(made), shape_of_type(row_type)
    assert fault_of(ours, theirs) is None and new_fields(ours, theirs) == []


def test_a_type_is_told_by_its_schema() -> None:
    declared = Types.ROW_NAMED(
        ["a", "b", "c"],
        [
            Types.LONG(),
            Types.LIST(Types.STRING()),
            Types.ROW_NAMED(["d"], [Types.MAP(Types.STRING(), Types.DOUBLE())]),
        ],
    )
    assert row_type_of_shape(shape(schema_of_row_type(declared, None))) == declared


def test_a_type_without_a_form_is_refused() -> None:
    with pytest.raises(InvalidProgramError, match="no form in JSON"):
        schema_of_row_type(Types.ROW_NAMED(["x"], [Types.INSTANT()]), None)


def test_none_is_left_out_where_no_null_is_allowed() -> None:
    write = value_writer(shape({"properties": {"a": {"type": "string"}, "b": {"type": ["null", "string"]}}}))
    assert write(Row(a=None, b=None)) == write({"a": None, "b": None}) == {"b": None}


def test_values_have_their_form_at_every_depth() -> None:
    inner = {"type": "object", "properties": {"at": {"type": "string"}, "next": {"$ref": "#"}}}
    write = value_writer(shape(inner))
    row = Row(at=datetime(2026, 1, 2, 3), next=Row(at=date(2026, 1, 2), next={"at": Decimal("1.50")}))
    assert write(row) == {
        "at": "2026-01-02T03:00:00",
        "next": {"at": "2026-01-02", "next": {"at": "1.50"}},
    }


def test_rows_without_names_are_taken_by_position() -> None:
    write = value_writer(shape({"properties": {"a": {}, "b": {"properties": {"c": {}}}}}))
    assert write(Row(1, Row(2))) == {"a": 1, "b": {"c": 2}}
    with pytest.raises(ValueError, match=r"field 'b': .* has 2 fields without names"):
        write({"b": Row(2, 3)})


def test_keys_take_their_fields_alone() -> None:
    key = ["id"]
    assert part_of_key(Row(id=1, user="ann"), key) == part_of_key({"id": 1, "user": "ann"}, key) == {"id": 1}
    assert part_of_key(Row(1), key) == Row(1)
