"""Readers' schemas with the columns of writers, whose records fastavro reads by them."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from yarrow.datastream.formats.avro_schema import AvroSchema
from yarrow.datastream.formats.registry.avro_columns import with_columns
from yarrow.runtime.common.errors import InvalidProgramError

_PLACE = {"type": "record", "name": "Place", "fields": [{"name": "town", "type": "string"}]}
_COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
_PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


def schema(*fields: tuple[str, Any], **parts: Any) -> AvroSchema:
    kept = [{"name": name, "type": kind} for name, kind in fields]
    return AvroSchema.parse_string(json.dumps({"type": "record", "name": "R", "fields": kept, **parts}))


def read(reader: AvroSchema, written: AvroSchema, value: Any) -> Any:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, written.parsed, value)
    stream.seek(0)
    return fastavro.schemaless_reader(stream, written.parsed, with_columns(reader, written).parsed)


@pytest.mark.parametrize("namespaces", [{}, {"namespace": "shop"}])
def test_columns_of_types_that_a_schema_defines_elsewhere_are_added(namespaces: dict[str, str]) -> None:
    reader = schema(("home", _PLACE), ("id", "long"), **namespaces)
    paint = {"type": "record", "name": "Paint", "fields": [{"name": "color", "type": "Color"}]}
    written = schema(
        ("work", _PLACE),
        ("home", "Place"),
        ("colors", {"type": "map", "values": _COLOR}),
        ("id", "int"),
        ("price", _PRICE),
        ("paints", {"type": "array", "items": ["null", paint]}),
        ("best", "Paint"),
        **namespaces,
    )
    value = {
        "work": {"town": "a"}, "home": {"town": "b"}, "colors": {"x": "RED"}, "id": 1, "price": Decimal("12.50"),
        "paints": [None, {"color": "BLUE"}], "best": {"color": "RED"},
    }  # fmt: skip
    assert read(reader, written, value) == value


def test_a_column_whose_type_only_a_known_field_of_the_writer_defines_is_added() -> None:
    """The reader has the field by an alias of its type, so that it lacks the name."""
    known = {"type": "enum", "name": "Paint", "aliases": ["Color"], "symbols": ["RED", "BLUE"]}
    reader, written = schema(("a", known)), schema(("a", _COLOR), ("b", "Color"))
    assert read(reader, written, {"a": "RED", "b": "BLUE"}) == {"a": "RED", "b": "BLUE"}


@pytest.mark.parametrize("name", ["R", "Old"])
def test_a_column_of_the_record_itself_is_added(name: str) -> None:
    reader = schema(("v", "int"), namespace="shop", aliases=["Old"])
    written = schema(("v", "int"), ("next", ["null", name]), name=name)
    value = {"v": 1, "next": {"v": 2, "next": None}}
    assert read(reader, written, value) == value


def test_a_column_keeps_its_default_and_its_place_behind_the_reader_s() -> None:
    written = AvroSchema.parse_string(
        json.dumps(
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": "b", "type": ["null", "int"], "default": None},
                    {"name": "a", "type": "int"},
                ],
            }
        )
    )
    made = with_columns(schema(("a", "int")), written)
    assert [name for name, _ in made.root.fields] == ["a", "b"]
    assert made.root.defaults == {"b": None}


def test_a_type_that_means_another_one_in_the_reader_s_schema_is_refused() -> None:
    other = {**_PLACE, "fields": [{"name": "town", "type": "int"}]}
    reader = AvroSchema.parse_string(
        json.dumps(
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "kept", "type": ["null", other], "default": None}],
            }
        )
    )
    with pytest.raises(
        InvalidProgramError, match=r"columns 'home' cannot be added .* field 'home.town': .* as int"
    ):
        with_columns(reader, schema(("home", _PLACE)))


def test_a_union_gets_no_columns() -> None:
    reader, written = (AvroSchema.parse_string(json.dumps(["null", _PLACE])) for _ in range(2))
    assert with_columns(reader, written) is reader
