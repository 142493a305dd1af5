"""Row types and JSON Schemas of objects: the type that tells a schema, and the schema that tells a type.

Owner: the calling thread; pure. A Row type leaves out what depends on a value, such as a minimum. Must not read or
write messages.
"""

from __future__ import annotations

from typing import Any, Final

from yarrow.common.typeinfo import (
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from yarrow.datastream.formats.registry.json_schema.shapes import JsonShape, shape_of_type
from yarrow.datastream.formats.values import row_reader
from yarrow.runtime.common.errors import InvalidProgramError

_NULL: Final = frozenset({"null"})
_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
#: Tags of times -> formats of texts. A time without a zone has none.
_FORMATS: Final = {"SQL_DATE": "date"}


def row_type_of_shape(shape: JsonShape) -> RowTypeInfo:
    """Return the Row type of a schema of objects.

    Raises InvalidProgramError, which names the field, for a schema that no Row type tells.
    """
    declared = _type_of(shape, "", ())
    if not isinstance(declared, RowTypeInfo):
        raise InvalidProgramError(f"a JSON Schema of objects with properties is expected, not of {declared}")
    return declared


def _type_of(shape: JsonShape, path: str, above: tuple[JsonShape, ...]) -> TypeInformation:
    kinds = shape.kinds - _NULL
    if shape in above:
        raise _no_type(path, "it contains itself")
    if kinds == {"object"}:
        if shape.properties:
            inner = (*above, shape)
            return Types.ROW_NAMED(
                list(shape.properties),
                [
                    _type_of(part, f"{path}.{name}" if path else name, inner)
                    for name, part in shape.properties.items()
                ],
            )
        if shape.rest is None:
            raise _no_type(path, "its objects have no named properties")
        return Types.MAP(Types.STRING(), _type_of(shape.rest, path, (*above, shape)))
    if kinds == {"array"}:
        if shape.items is None:
            raise _no_type(path, "its arrays have elements of any kind")
        return Types.LIST(_type_of(shape.items, path, (*above, shape)))
    single = {"boolean": Types.BOOLEAN, "integer": Types.LONG, "number": Types.DOUBLE, "string": Types.STRING}
    if kinds in ({"integer", "number"}, {"number"}):
        return Types.DOUBLE()
    if len(kinds) != 1:
        raise _no_type(path, f"it allows {shape.shown()}")
    (kind,) = kinds
    return single[kind]()


def _no_type(path: str, why: str) -> InvalidProgramError:
    place = f"field {path!r} of a JSON Schema" if path else "a JSON Schema"
    return InvalidProgramError(
        f"{place} has no type of rows: {why}; give a Row type instead of the schema, or take for_generic"
    )


# ---------------------------------------------------------------------- the schema of a type


def schema_of_row_type(declared: RowTypeInfo, title: str | None) -> dict[str, Any]:
    """Return the JSON Schema of a Row type. Raises InvalidProgramError for a type that has no form in JSON."""
    row_reader(declared, missing_is_error=False)  # refuses a type without a form in JSON
    named = {} if title is None else {"title": title}
    return {"$schema": _DRAFT, **named, **_schema_of(declared), "type": "object"}


def _schema_of(declared: TypeInformation) -> dict[str, Any]:
    if isinstance(declared, PickledBytesTypeInfo):
        return {}
    # Decimals are written as texts, which keep their digits.
    is_decimal = shape_of_type(declared).kinds >= {"string", "number"}
    kinds = shape_of_type(declared).kinds - _NULL
    kind = "string" if is_decimal else "number" if "number" in kinds else next(iter(kinds))
    return {"type": [kind, "null"], **_parts(declared)}


def _parts(declared: TypeInformation) -> dict[str, Any]:
    if isinstance(declared, RowTypeInfo):
        fields = zip(declared.get_field_names(), declared.get_field_types(), strict=True)
        return {"properties": {name: _schema_of(part) for name, part in fields}}
    if isinstance(declared, MapTypeInfo):
        return {"additionalProperties": _schema_of(declared.value_type_info)}
    element = getattr(declared, "element_type", None)
    if element is not None and declared.python_type is list and not isinstance(declared, TupleTypeInfo):
        return {"items": _schema_of(element)}
    if isinstance(declared, SqlTimeTypeInfo) and declared.tag in _FORMATS:
        return {"format": _FORMATS[declared.tag]}
    return {"contentEncoding": "base64"} if declared.python_type is bytes else {}
