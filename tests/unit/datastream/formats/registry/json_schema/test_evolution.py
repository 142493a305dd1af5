"""Which writers' JSON Schemas a reader can read, and which fields only the writer's schema names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.formats.registry.json_schema.document import JsonDocument
from yarrow.datastream.formats.registry.json_schema.evolution import fault_of, new_fields
from yarrow.datastream.formats.registry.json_schema.shapes import (
    JsonShape,
    shape_of_document,
    shape_of_type,
)
from yarrow.datastream.formats.registry.json_schema.writing import ConfluentRegistryJsonSerializationSchema
from yarrow.datastream.formats.registry.registered_schema import JSON, RegisteredSchema

_TREE = {"properties": {"x": {"type": "integer"}, "next": {"$ref": "#"}}}
_OPEN = {"type": "object", "patternProperties": {"^y": {"type": "integer"}}, "properties": {"x": {}}}


def shape(schema: Any) -> JsonShape:
    return shape_of_document(JsonDocument.of(json.dumps(schema)))


def of(kind: Any, **parts: Any) -> dict[str, Any]:
    schema = kind if isinstance(kind, dict | bool) else {"type": kind}
    return {"type": "object", "properties": {"x": schema}, **parts}


def row(kind: TypeInformation) -> JsonShape:
    return shape_of_type(Types.ROW_NAMED(["x"], [kind]))


@pytest.mark.parametrize(
    ("written", "declared"),
    [
        (of("integer"), row(Types.INT())),
        (of("integer"), row(Types.DOUBLE())),
        (of("number"), row(Types.BIG_DEC())),
        (of("string"), row(Types.BIG_DEC())),
        (of("string"), row(Types.SQL_TIMESTAMP())),
        (of(["null", "string"]), row(Types.STRING())),
        (of(["integer", "string"]), row(Types.STRING())),
        (of("null"), row(Types.STRING())),
        (of({"enum": ["a", "b"]}), row(Types.STRING())),
        (of({"oneOf": [{"type": "null"}, {"type": "integer"}]}), row(Types.LONG())),
        (of({"allOf": [{"type": "number"}, {"type": "integer"}]}), row(Types.LONG())),
        (of({}), row(Types.LONG())),
        (of(True), row(Types.LONG())),
        ({"properties": {}}, row(Types.LONG())),
        (of({"type": "array", "items": {"type": "integer"}}), row(Types.LIST(Types.DOUBLE()))),
        (of({"type": "array"}), row(Types.LIST(Types.DOUBLE()))),
        (of({"additionalProperties": {"type": "integer"}, "type": "object"}),
         row(Types.MAP(Types.STRING(), Types.LONG()))),
        (of(of("integer")), row(Types.MAP(Types.STRING(), Types.LONG()))),
        (of("integer"), shape(of("number", required=["x"]))),
        (_TREE, shape(_TREE)),
        (of("integer", required=["x", "y"]), shape(of("integer", required=["x", "y"]))),
        ({"allOf": [of("integer")], "required": ["y"]}, shape({"type": "object", "required": ["y"]})),
        (_OPEN, shape(of("integer", required=["y"]))),
    ],
)  # fmt: skip
def test_what_can_be_read(written: Any, declared: JsonShape) -> None:
    assert fault_of(shape(written), declared) is None


@pytest.mark.parametrize(
    ("written", "declared", "fault"),
    [
        (of("string"), row(Types.LONG()), "field 'x': the writer's string cannot be read as integer"),
        (of("number"), row(Types.LONG()), "field 'x': the writer's number cannot be read as integer"),
        (of(["null", "number"]), row(Types.LONG()), "field 'x': the writer's number cannot be read as integer"),
        (of({"const": True}), row(Types.STRING()), "field 'x': the writer's boolean cannot be read as string"),
        (of({"type": "array", "items": {"type": "string"}}), row(Types.LIST(Types.LONG())), "field 'x'"),
        (of(of("string")), row(Types.MAP(Types.STRING(), Types.LONG())), "field 'x.x'"),
        (of({"type": "object", "additionalProperties": {"type": "string"}}),
         row(Types.ROW_NAMED(["y"], [Types.INT()])), "field 'x.y'"),
        (of(of("string")), row(Types.ROW_NAMED(["x"], [Types.INT()])), "field 'x.x'"),
        ({"type": "array"}, row(Types.LONG()), "the writer's array cannot be read as object"),
        ({"properties": {}}, shape(of("integer", required=["x"])),
         "field 'x': the writer's schema lacks it, and the reader's requires it"),
        ({"properties": {"x": {"type": "string"}, "next": {"$ref": "#"}}}, shape(_TREE), "field 'x'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_names_the_field(written: Any, declared: JsonShape, fault: str) -> None:
    found = fault_of(shape(written), declared)
    assert found is not None and found.startswith(fault)


def test_a_shape_that_cannot_be_read_is_a_fault_wherever_a_schema_names_it() -> None:
    """A text fits the field a, so only the field b tells the fault of the objects."""

    def twice(kind: str) -> dict[str, Any]:
        either = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/one"}]}
        parts = {"a": either, "b": {"$ref": "#/$defs/one"}}
        return {"$defs": {"one": of(kind)}, "type": "object", "properties": parts}

    found = fault_of(shape(twice("string")), shape(twice("integer")))
    assert found is not None and "the writer's string cannot be read as integer" in found
    assert fault_of(shape(twice("integer")), shape(twice("number"))) is None


def test_an_equal_text_can_be_read() -> None:
    """No value is a text and a whole number, so no message has the field."""
    text = json.dumps(of({"allOf": [{"type": "string"}, {"type": "integer"}]}))
    writer = ConfluentRegistryJsonSerializationSchema.for_generic("s", text, "http://127.0.0.1:1")
    ours = RegisteredSchema(JSON, text)
    assert writer.fault(ours, ours) is None
    assert writer.fault(ours, RegisteredSchema(JSON, json.dumps(of("string")))) is not None


def test_fields_of_the_writer_alone() -> None:
    inner = {"type": "array", "items": of("integer")}
    written = {"properties": {"x": inner, "y": {"type": "string"}}}
    assert new_fields(shape(written), row(Types.LIST(Types.ROW_NAMED(["z"], [Types.INT()])))) == ["x.x", "y"]
    assert new_fields(shape(written), shape(written)) == []
    assert new_fields(shape(of(of("integer"))), row(Types.MAP(Types.STRING(), Types.LONG()))) == []
    assert new_fields(shape(_TREE), shape(_TREE)) == []
    assert new_fields(shape(written), shape(_OPEN)) == []
