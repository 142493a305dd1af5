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

_TREE = {"properties": {"x": {"type": "integer"}, "next": {"$ref": "#"}}}


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


def test_fields_of_the_writer_alone() -> None:
    inner = {"type": "array", "items": of("integer")}
    written = {"properties": {"x": inner, "y": {"type": "string"}}}
    assert new_fields(shape(written), row(Types.LIST(Types.ROW_NAMED(["z"], [Types.INT()])))) == ["x.x", "y"]
    assert new_fields(shape(written), shape(written)) == []
    assert new_fields(shape(of(of("integer"))), row(Types.MAP(Types.STRING(), Types.LONG()))) == []
    assert new_fields(shape(_TREE), shape(_TREE)) == []
