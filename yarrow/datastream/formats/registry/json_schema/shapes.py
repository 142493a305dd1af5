"""JsonShape: which kinds of values a JSON Schema or a declared type allows, and the fields of its objects.

Owner: any thread; pure. A shape leaves out what depends on a value, such as a minimum or a pattern: it allows at least
what the schema allows. Where branches of a schema differ in a field, the shape allows any value there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from yarrow.common.typeinfo import (
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from yarrow.datastream.formats.registry.json_schema.document import JsonDocument, json_schema_library
from yarrow.runtime.common.errors import InvalidProgramError

KINDS: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_NULL: Final = frozenset({"null"})
#: Words of a schema that tell of kinds or parts of values.
_SHAPING: Final = frozenset(
    {
        "type",
        "const",
        "enum",
        "properties",
        "required",
        "additionalProperties",
        "unevaluatedProperties",
        "items",
    }
)
#: Words that may tell fields of objects, and that a shape does not follow.
_UNFOLLOWED: Final = frozenset(
    {"patternProperties", "if", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"}
)


@dataclass(slots=True, eq=False)
class JsonShape:
    """What values are allowed at one place. The shape of an object may contain itself."""

    kinds: frozenset[str] = KINDS
    #: The fields of objects that are named.
    properties: dict[str, JsonShape] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    #: The elements of arrays; None = any.
    items: JsonShape | None = None
    #: Fields of objects that are not named; None = any.
    rest: JsonShape | None = None
    #: Whether the schema may tell more fields than these, so that a reader keeps fields that are not named.
    is_open: bool = False

    def shown(self) -> str:
        """The kinds, for errors."""
        return " or ".join(sorted(self.kinds - _NULL)) or "null"


ANY: Final = JsonShape()


def shape_of_document(document: JsonDocument) -> JsonShape:
    """Return the shape of a schema. Raises InvalidProgramError for one that is no JSON Schema."""
    try:
        return _Shapes(document).of(document.root, document.resolver)
    except (ValueError, TypeError, AttributeError, KeyError, json_schema_library().ReferencingError) as error:
        raise InvalidProgramError(f"a JSON Schema cannot be used: {error}") from None


class _Shapes:
    """One walk through a schema, which may refer to itself."""

    def __init__(self, document: JsonDocument) -> None:
        self._document = document
        self._referred: dict[tuple[str, str], JsonShape] = {}

    def of(self, schema: Any, resolver: Any) -> JsonShape:
        if not isinstance(schema, dict):
            return ANY
        shapes = [self._own(schema, resolver)] if _SHAPING & schema.keys() else []
        if isinstance(reference := schema.get("$ref"), str):
            shapes.append(self._reference(reference, resolver))
        shapes += [self.of(part, resolver) for part in schema.get("allOf", ())]
        for word in ("anyOf", "oneOf"):
            if branches := schema.get(word):
                shapes.append(_any_of([self.of(branch, resolver) for branch in branches]))
        if _UNFOLLOWED & schema.keys():
            shapes.append(JsonShape(is_open=True))
        # A schema that is a reference alone is the shape referred to, which may be the one that is being made.
        made = shapes[0] if len(shapes) == 1 else _all_of(shapes)
        if made.is_open and "unevaluatedProperties" in schema:
            # The word is not about fields that another word tells, and some of those are not known here.
            made.rest = None
        return made

    def _reference(self, reference: str, resolver: Any) -> JsonShape:
        place = resolver.base_uri, reference
        known = self._referred.get(place)
        if known is None:
            known = self._referred[place] = JsonShape()
            found = resolver.lookup(reference)
            made = self.of(self._document.in_order(found.contents), found.resolver)
            for name in JsonShape.__slots__:
                setattr(known, name, getattr(made, name))
        return known

    def _own(self, schema: Mapping[str, Any], resolver: Any) -> JsonShape:
        parts = {name: self.of(part, resolver) for name, part in schema.get("properties", {}).items()}
        rest = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        items = schema.get("items")
        return JsonShape(
            _kinds(schema),
            parts,
            frozenset(schema.get("required", ())),
            self.of(items, resolver) if isinstance(items, dict) else None,
            self.of(rest, resolver) if isinstance(rest, dict) and "patternProperties" not in schema else None,
        )


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    told = schema.get("type")
    if told is not None:
        kinds = frozenset([told] if isinstance(told, str) else told)
        if not kinds <= KINDS:
            raise ValueError(f"a type is one of {', '.join(sorted(KINDS))}, not {told!r}")
        return kinds
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values:
        return frozenset(map(kind_of, values))
    # A schema that names properties means objects, though JSON Schema would let other kinds pass.
    return frozenset({"object"}) if "properties" in schema else KINDS


def kind_of(value: Any) -> str:
    """Return the kind of a value as the decoder of JSON gives it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def readable_kinds(kinds: frozenset[str], by: frozenset[str]) -> frozenset[str]:
    """Return those of some kinds that a reader of others can read: a whole number is a number, too."""
    return kinds & by | ({"integer"} & kinds if "number" in by else frozenset())


def _all_of(shapes: list[JsonShape]) -> JsonShape:
    merged = JsonShape()
    for shape in shapes:
        merged.kinds = readable_kinds(merged.kinds, shape.kinds) | readable_kinds(shape.kinds, merged.kinds)
        for name, part in shape.properties.items():
            merged.properties[name] = part if name not in merged.properties else ANY
        merged.required |= shape.required
        merged.items = shape.items if merged.items is None else ANY if shape.items else merged.items
        merged.rest = shape.rest if merged.rest is None else ANY if shape.rest else merged.rest
        merged.is_open |= shape.is_open
    return merged


def _any_of(shapes: list[JsonShape]) -> JsonShape:
    kinds = frozenset[str]().union(*(shape.kinds for shape in shapes))
    structured = [shape for shape in shapes if shape.kinds & {"object", "array"}]
    if len(structured) == 1:
        (one,) = structured
        return JsonShape(kinds, one.properties, one.required, one.items, one.rest, one.is_open)
    merged = JsonShape(kinds, is_open=any(map(_takes_unnamed, structured)))
    for shape in structured:
        for name in shape.properties:
            merged.properties[name] = ANY
    if structured:
        merged.required = frozenset.intersection(*(shape.required for shape in structured))
    return merged


def _takes_unnamed(branch: JsonShape) -> bool:
    """Whether a branch tells fields of objects without their names. One that only requires fields tells none."""
    takes_any = not branch.properties and not branch.required
    return "object" in branch.kinds and (branch.is_open or branch.rest is not None or takes_any)


# ---------------------------------------------------------------------- declared types


def shape_of_type(declared: TypeInformation) -> JsonShape:
    """Return the shape of the JSON values that become values of a declared type. None is allowed everywhere."""
    if isinstance(declared, RowTypeInfo):
        names = declared.get_field_names()
        parts = map(shape_of_type, declared.get_field_types())
        return JsonShape(frozenset({"object", "null"}), dict(zip(names, parts, strict=True)))
    if isinstance(declared, MapTypeInfo):
        return JsonShape(frozenset({"object", "null"}), rest=shape_of_type(declared.value_type_info))
    if isinstance(declared, TupleTypeInfo):
        return JsonShape(frozenset({"array", "null"}))
    if isinstance(declared, PickledBytesTypeInfo):
        return ANY
    element = getattr(declared, "element_type", None)
    if element is not None and declared.python_type is list:
        return JsonShape(frozenset({"array", "null"}), items=shape_of_type(element))
    return JsonShape(_kinds_of_type(declared) | _NULL)


def _kinds_of_type(declared: TypeInformation) -> frozenset[str]:
    if isinstance(declared, BasicTypeInfo):
        if declared.python_type is bool:
            return frozenset({"boolean"})
        if declared.python_type is int:
            return frozenset({"integer"})
        if declared.python_type is float:
            return frozenset({"integer", "number"})
        if declared.python_type is not str:
            return frozenset({"integer", "number", "string"})
    return frozenset({"string"})
