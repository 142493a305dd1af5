"""Which writers' schemas a reader's schema can read, by Avro's rules, and that fastavro reads those records."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from yarrow.datastream.formats.avro_schema import AvroSchema
from yarrow.datastream.formats.registry.avro_evolution import fault_of, new_fields

_NULLABLE = ["null", "int"]
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}


def _stamp(unit: str) -> dict[str, str]:
    return {"type": "long", "logicalType": f"timestamp-{unit}"}


def record(kind: Any, **parts: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind, **parts}]}


def schema(text: Any) -> AvroSchema:
    return AvroSchema.parse_string(json.dumps(text))


@pytest.mark.parametrize(
    ("written", "declared", "value"),
    [
        ("int", "long", 1),
        ("int", "double", 1),
        ("long", "float", 1),
        ("float", "double", 0.5),
        ("string", "string", "a"),
        ("int", _NULLABLE, 1),
        (_NULLABLE, _NULLABLE, None),
        (_NULLABLE, "long", 1),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [1]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "double"}, {"a": 1}),
    ],
)
def test_what_the_rules_allow_is_read(written: Any, declared: Any, value: Any) -> None:
    writer, reader = schema(record(written)), schema(record(declared))
    assert fault_of(writer.root, reader.root) is None
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, writer.parsed, {"x": value})
    stream.seek(0)
    assert fastavro.schemaless_reader(stream, writer.parsed, reader.parsed) == {"x": value}


@pytest.mark.parametrize(
    ("written", "declared", "fault"),
    [
        ("long", "int", "field 'x': the writer's long cannot be read as int"),
        ("double", "float", "field 'x': the writer's double cannot be read as float"),
        ("string", _NULLABLE, "field 'x': the writer's string is none of the reader's types null, int"),
        (["null", "string"], "int", "field 'x': the writer's null cannot be read as int"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "field 'x': the writer's fixed has 2 bytes, the reader's 3",
        ),
        (record("long") | {"name": "S"}, record("int") | {"name": "S"}, "field 'x.x'"),
        (record("int") | {"name": "S"}, record("int") | {"name": "T"}, "named S, and the reader's T"),
        (_DECIMAL, _DECIMAL | {"scale": 3}, r"decimal\(6, 2\) in the writer's schema and of decimal\(6, 3\)"),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            {"type": "long", "logicalType": "timestamp-micros"},
            "'x'",
        ),
    ],
)
def test_what_the_rules_refuse_names_the_field(written: Any, declared: Any, fault: str) -> None:
    found = fault_of(schema(record(written)).root, schema(record(declared)).root)
    assert found is not None
    with pytest.raises(ValueError, match=fault):
        raise ValueError(found)


def test_a_field_without_a_default_must_be_written() -> None:
    empty = {"type": "record", "name": "R", "fields": []}
    found = fault_of(schema(empty).root, schema(record("int")).root)
    assert found == "field 'x': the writer's schema lacks it, and the reader's has no default for it"
    assert fault_of(schema(empty).root, schema(record("int", default=1)).root) is None


def test_fields_of_the_writer_alone_are_found() -> None:
    assert new_fields(schema(record("int")).root, schema(record("int") | {"fields": []}).root) == ["x"]
    renamed = {"type": "record", "name": "R", "fields": [{"name": "y", "type": "int", "aliases": ["x"]}]}
    assert new_fields(schema(record("int")).root, schema(renamed).root) == []


def node(*fields: Any, own: Any = "int", **parts: Any) -> dict[str, Any]:
    """A record that contains itself."""
    kept = [{"name": "next", "type": ["null", "Node"]}, {"name": "v", "type": own}, *fields]
    return {"type": "record", "name": "Node", "fields": kept, **parts}


@pytest.mark.parametrize(
    "declared",
    [node(doc="a list"), node(own="long"), node({"name": "more", "type": "int", "default": 7})],
)
def test_a_record_that_contains_itself_is_read(declared: Any) -> None:
    writer, reader = schema(node()), schema(declared)
    assert fault_of(writer.root, reader.root) is None
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, writer.parsed, {"next": {"next": None, "v": 2}, "v": 1})
    stream.seek(0)
    found: Any = fastavro.schemaless_reader(stream, writer.parsed, reader.parsed)
    assert (found["v"], found["next"]["v"]) == (1, 2)


def test_a_fault_within_a_record_that_contains_itself_names_the_field() -> None:
    found = fault_of(schema(node(own="string")).root, schema(node()).root)
    assert found == "field 'v': the writer's string cannot be read as int"


def test_a_record_that_cannot_be_read_is_refused_wherever_a_schema_names_it() -> None:
    """Null of the union fits, so only the second place of S tells the fault."""

    def holder(kind: str) -> AvroSchema:
        inner = record(kind) | {"name": "S"}
        fields = [{"name": "a", "type": ["null", inner]}, {"name": "b", "type": "S"}]
        return schema({"type": "record", "name": "R", "fields": fields})

    found = fault_of(holder("string").root, holder("int").root)
    assert found is not None and "the writer's string cannot be read as int" in found
    assert fault_of(holder("int").root, holder("long").root) is None


def test_what_fits_only_beside_a_record_that_does_not_fit_is_a_fault() -> None:
    """B fits as long as A does, and A does not."""

    def holder(kind: str) -> AvroSchema:
        back = {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]}
        fields = [{"name": "b", "type": back}, {"name": "x", "type": kind}]
        first = {"type": "record", "name": "A", "fields": fields}
        parts = [{"name": "either", "type": ["null", first]}, {"name": "b", "type": "B"}]
        return schema({"type": "record", "name": "R", "fields": parts})

    assert fault_of(holder("string").root, holder("int").root) is not None
    assert fault_of(holder("int").root, holder("int").root) is None
