"""Row types of JSON Schemas, dicts with the fields of one, and schemas that cannot be used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.typeinfo import Types
from yarrow.datastream.formats.registry.json_schema.document import JsonDocument
from yarrow.datastream.formats.registry.json_schema.reading import ConfluentRegistryJsonDeserializationSchema
from yarrow.datastream.formats.registry.json_schema.row_schemas import row_type_of_shape
from yarrow.datastream.formats.registry.json_schema.shapes import JsonShape, shape_of_document
from yarrow.datastream.formats.registry.json_schema.values import dict_reader
from yarrow.datastream.formats.registry.json_schema.writing import ConfluentRegistryJsonSerializationSchema
from yarrow.runtime.common.errors import InvalidProgramError

_NOWHERE = "http://127.0.0.1:1"
_NAMES = st.sampled_from("abc")
_LEAVES: list[tuple[Any, Any]] = [
    ({"type": "string"}, st.text(max_size=3)),
    ({"type": "integer"}, st.integers()),
    ({"type": ["null", "number"]}, st.none() | st.floats(allow_nan=False, allow_infinity=False)),
    ({"type": "boolean"}, st.booleans()),
    ({"enum": ["one", 2]}, st.sampled_from(["one", 2])),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, st.text(max_size=3) | st.none()),
    (True, st.integers() | st.text(max_size=3)),
]


@st.composite
def schema_and_value(draw: Any, depth: int = 2) -> tuple[Any, Any]:
    """A schema and a value that is valid by it."""
    form = draw(st.sampled_from(["leaf", "array", "object", "map"] if depth else ["leaf"]))
    if form == "leaf":
        schema, values = draw(st.sampled_from(_LEAVES))
        return schema, draw(values)
    inner, value = draw(schema_and_value(depth - 1))
    if form == "array":
        return {"type": "array", "items": inner}, [value] * draw(st.integers(0, 2))
    names = draw(st.sets(_NAMES, max_size=3))
    if form == "map":
        return {"type": "object", "additionalProperties": inner}, dict.fromkeys(sorted(names), value)
    properties = dict.fromkeys(sorted(names | {"d"}), inner)
    return {"type": "object", "properties": properties, "required": ["d"]}, {"d": value}


def shape(schema: Any) -> JsonShape:
    return shape_of_document(JsonDocument.of(json.dumps(schema)))


@given(schema_and_value())
def test_a_shape_allows_what_its_schema_allows(given: tuple[Any, Any]) -> None:
    schema, value = given
    document = JsonDocument.of(json.dumps(schema))
    assert document.validator().is_valid(value)
    read = dict_reader(shape_of_document(document), keeps_others=False)
    assert read(json.loads(json.dumps(value))) == value


def test_further_fields_are_left_out_or_kept() -> None:
    known = shape({"properties": {"a": {"properties": {"b": {"type": "integer"}}}}})
    value = {"a": {"b": 1, "c": 2}, "d": 3}
    assert dict_reader(known, keeps_others=False)(value) == {"a": {"b": 1}}
    assert dict_reader(known, keeps_others=True)(value) == value


_A = {"type": "object", "properties": {"a": {"type": "integer"}}}
_B = {"properties": {"b": {"type": "integer"}}}
_NUMBERS = {"type": "object", "additionalProperties": {"type": "integer"}}


@pytest.mark.parametrize(
    "schema",
    [
        _A | {"patternProperties": {"^b": {"type": "integer"}}},
        _A | {"patternProperties": {"^b": {"type": "integer"}}, "additionalProperties": False},
        _A | {"if": {"required": ["a"]}, "then": _B, "else": {}},
        _A | {"if": {"required": ["a"]}, "then": _B, "unevaluatedProperties": {"type": "string"}},
        _A | {"dependentSchemas": {"a": _B}},
        {"$schema": "http://json-schema.org/draft-07/schema#", **_A, "dependencies": {"a": _B}},
        _A | {"allOf": [{"patternProperties": {"^b": {"type": "integer"}}}]},
        {"anyOf": [_A | {"required": ["c"]}, _NUMBERS]},
        {"anyOf": [_A | {"required": ["c"]}, {"type": "object"}]},
        {"oneOf": [{"type": "null"}, _A | {"patternProperties": {"^b": {"type": "integer"}}}]},
        _A | {"anyOf": [_NUMBERS, _A | {"required": ["c"]}]},
    ],
)
def test_fields_that_other_words_of_a_schema_tell_are_kept(schema: Any) -> None:
    value = {"a": 1, "b": 2}
    document = JsonDocument.of(json.dumps(schema))
    assert document.validator().is_valid(value)
    assert dict_reader(shape_of_document(document), keeps_others=False)(value) == value


@pytest.mark.parametrize(
    "schema",
    [
        _A | {"anyOf": [{"required": ["a"]}, {"required": ["c"]}]},
        {"anyOf": [_A, {"type": "object", "properties": {"c": {"type": "string"}}}]},
        _A | {"propertyNames": {"maxLength": 3}},
    ],
)
def test_fields_that_no_word_of_a_schema_tells_are_left_out(schema: Any) -> None:
    assert dict_reader(shape(schema), keeps_others=False)({"a": 1, "b": 2}) == {"a": 1}


def test_a_field_of_another_kind_is_named() -> None:
    schema = {"properties": {"a": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}}}
    read = dict_reader(shape(schema), keeps_others=False)
    with pytest.raises(ValueError, match="field 'a': field 'b': integer is expected, not 'x'"):
        read({"a": {"b": "x"}})
    with pytest.raises(ValueError, match="field 'a': field 'b' is missing"):
        read({"a": {}})


def test_a_schema_that_contains_itself_is_read() -> None:
    tree = {"properties": {"next": {"$ref": "#"}, "x": {"type": "integer"}}}
    read = dict_reader(shape(tree), keeps_others=False)
    assert read({"next": {"next": {"x": 1, "y": 2}}}) == {"next": {"next": {"x": 1}}}
    with pytest.raises(InvalidProgramError, match=r"field 'next.next' .* it contains itself"):
        row_type_of_shape(shape(tree))


def test_rows_have_the_fields_of_a_schema() -> None:
    schema = {
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": "number"},
            "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "by": {"$ref": "user.json"},
        }
    }
    user = json.dumps({"properties": {"is_new": {"type": "boolean"}, "age": {"type": "integer"}}})
    document = JsonDocument.of(json.dumps(schema), {"user.json": user})
    expected = Types.ROW_NAMED(
        ["id", "price", "name", "tags", "counts", "by"],
        [
            Types.LONG(),
            Types.DOUBLE(),
            Types.STRING(),
            Types.LIST(Types.STRING()),
            Types.MAP(Types.STRING(), Types.LONG()),
            Types.ROW_NAMED(["is_new", "age"], [Types.BOOLEAN(), Types.LONG()]),
        ],
    )
    assert row_type_of_shape(shape_of_document(document)) == expected


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "integer"}, "a JSON Schema of objects"),
        ({"type": "object"}, "its objects have no named properties"),
        ({"properties": {"x": {"type": ["integer", "string"]}}}, "field 'x' .* it allows integer or string"),
        ({"properties": {"x": {"type": "array"}}}, "field 'x' .* elements of any kind"),
    ],
)
def test_schemas_without_a_row_type_are_refused(schema: Any, problem: str) -> None:
    with pytest.raises(InvalidProgramError, match=problem):
        row_type_of_shape(shape(schema))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "a JSON Schema is expected"),
        ("[]", "an object, true or false"),
        ('{"type": "objct"}', "cannot be used"),
        ('{"$ref": "http://127.0.0.1:1/other.json"}', "cannot be used: .*other.json"),
        ('{"properties": {"x": {"$ref": "#/nowhere"}}}', "cannot be used"),
    ],
)
def test_texts_that_are_no_schema_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidProgramError, match=problem):
        shape_of_document(JsonDocument.of(text))
    with pytest.raises(InvalidProgramError, match=problem):
        JsonDocument.of(text).validator()


def test_a_schema_that_names_no_draft_is_one_of_draft_07() -> None:
    pair = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
    schema = {"type": "object", "properties": {"pair": pair}, "dependencies": {"a": ["b"]}}
    parts = {"part.json": json.dumps(schema)}
    document = JsonDocument.of(json.dumps({"allOf": [{"$ref": "part.json"}]}), parts)
    assert shape_of_document(document).properties["pair"].kinds == {"array"}
    is_valid = document.validator().is_valid
    assert is_valid({"pair": ["x", 1], "a": 1, "b": 2})
    assert not is_valid({"pair": [1, 1]}) and not is_valid({"a": 1})


def test_a_schema_of_a_draft_takes_the_words_of_that_draft() -> None:
    later = {"$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [{"$ref": "part.json"}]}
    part = json.dumps({"properties": {"pair": {"prefixItems": [{"type": "string"}]}}})
    is_valid = JsonDocument.of(json.dumps(later), {"part.json": part}).validator().is_valid
    assert is_valid({"pair": ["x"]}) and not is_valid({"pair": [1]})


@pytest.mark.parametrize(
    "schema",
    [{"$schema": "http://shop/own-draft", "type": "object"}, {"type": "object", "maxProperties": "many"}],
)
def test_only_a_program_that_validates_needs_a_validator(schema: Any) -> None:
    text = json.dumps(schema)
    assert shape(schema).kinds == {"object"}
    reading, writing = (
        ConfluentRegistryJsonDeserializationSchema.for_generic,
        ConfluentRegistryJsonSerializationSchema.for_generic,
    )
    reading(text, _NOWHERE)
    writing("s", text, _NOWHERE, validate=False)
    with pytest.raises(InvalidProgramError, match="the schema of the program: a JSON Schema cannot be used"):
        reading(text, _NOWHERE, validate=True)
    with pytest.raises(InvalidProgramError, match="a JSON Schema cannot be used"):
        writing("s", text, _NOWHERE)


def test_references_are_found_beside_the_schema_that_refers_to_them() -> None:
    user = {"$id": "http://shop/people/user.json", "properties": {"name": {"$ref": "name.json"}}}
    sale = {"$id": "http://shop/sale.json", "properties": {"by": {"$ref": "people/user.json"}}}
    parts = {"name.json": json.dumps({"type": "string"}), "people/user.json": json.dumps(user)}
    validator = JsonDocument.of(json.dumps(sale), parts).validator()
    assert validator.is_valid({"by": {"name": "ann"}})
    assert not validator.is_valid({"by": {"name": 1}})
