"""The rules of Avro for schemas that fastavro does not hold, or breaks off at without naming a field.

Owner: any thread; no state. Works on the JSON of a schema. Source of the rules: the specification of Avro 1.12, its
sections on names, complex types and logical types. Must not know fastavro, nor the tree of types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import log10
from typing import Any, TypeGuard

from yarrow.runtime.common.errors import InvalidProgramError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = {"record", "error", "enum", "fixed"}
_COMPLEX = {"array", "enum", "fixed", "map", "record"}
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_NAME_RULE = "a name begins with a letter or _, and letters, digits and _ follow; rename it"
#: Types of numbers -> bits of their range.
_WHOLE = {"int": 31, "long": 63}


def require_rules(schema: object) -> None:
    """Raise InvalidProgramError for the first rule that a schema breaks, with the path of its field."""
    _SchemaRules().require(schema, "", "")


class _SchemaRules:
    """A walk through one schema, which gathers its named types."""

    def __init__(self) -> None:
        #: Full name -> a named type, and the namespace of the types in it.
        self._named: dict[str, tuple[dict[str, Any], str]] = {}

    def require(self, schema: Any, path: str, namespace: str) -> None:
        """Hold the rules of a type; `path` is that of its field, empty = the whole schema."""
        if isinstance(schema, list):
            self._union(schema, path, namespace)
        elif isinstance(schema, dict):
            self._object(schema, path, namespace)
        elif not isinstance(schema, str):
            raise _fault(path, f"a type is a name, an object or a list of these, not {schema!r}")
        elif schema in _COMPLEX:
            raise _fault(path, f'a type {schema} is an object: write {{"type": {{"type": "{schema}", ...}}}}')
        elif schema not in PRIMITIVES and self._full(schema, namespace) not in self._named:
            raise _fault(
                path,
                f"the type {schema!r} is not known; there are {', '.join(sorted(PRIMITIVES | _COMPLEX))} and the named"
                " types before this place",
            )

    def _object(self, schema: dict[str, Any], path: str, namespace: str) -> None:
        kind = schema.get("type")
        if isinstance(kind, str) and kind in _NAMED:
            self._name(schema, path, namespace)
            return
        if kind == "array" or kind == "map":
            part = "items" if kind == "array" else "values"
            self.require(_part(schema, part, path), f"{path}{'[]' if kind == 'array' else '{}'}", namespace)
            return
        self.require(_part(schema, "type", path), path, namespace)
        if kind == "bytes":
            _require_precision(schema, path)

    def _name(self, schema: dict[str, Any], path: str, namespace: str) -> None:
        """Hold the rules of a named type."""
        kind, given = schema["type"], schema.get("namespace", namespace)
        name = _part(schema, "name", path)
        if isinstance(name, str) and isinstance(given, str):
            name = self._full(name, given)
        if not isinstance(name, str) or not all(map(_NAME.fullmatch, name.split("."))):
            raise _fault(path, f"the {kind} cannot have the name {name!r}: {_NAME_RULE}")
        if name in self._named:
            raise _fault(path, f"the type {name} is defined a second time; use its name here, or rename it")
        inner = name.rpartition(".")[0]
        self._named[name] = schema, inner
        if kind == "enum":
            _require_symbols(name, schema, path)
        elif kind == "fixed":
            size = _part(schema, "size", path)
            if not _is_whole(size) or size < 0:
                raise _fault(path, f"the size of the fixed {name} is a whole number of bytes, not {size!r}")
            _require_precision(schema, path)
        else:
            self._fields(name, _part(schema, "fields", path), path, inner)

    def _fields(self, record: str, fields: Any, path: str, namespace: str) -> None:
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            raise _fault(path, f"the fields of the record {record} are a list of objects, not {fields!r}")
        names: set[str] = set()
        for field in fields:
            name = _part(field, "name", path)
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise _fault(path, f"the record {record} cannot have the field {name!r}: {_NAME_RULE}")
            if name in names:
                raise _fault(path, f"the record {record} has two fields {name!r}; rename one of them")
            names.add(name)
            inner = f"{path}.{name}" if path else name
            self.require(_part(field, "type", inner), inner, namespace)
            if "default" in field and not self._fits(field["default"], field["type"], namespace):
                raise _fault(
                    inner, f"the default {field['default']!r} is no value of the type {shown(field['type'])}"
                )

    def _union(self, branches: list[Any], path: str, namespace: str) -> None:
        if not branches:
            raise _fault(path, "a union without types has no values; give it a type")
        kinds: set[str] = set()
        for branch in branches:
            if isinstance(branch, list):
                raise _fault(path, "a union cannot contain a union; put all types into one list")
            self.require(branch, path, namespace)
            kind = self._kind(branch, namespace)
            if kind in kinds:
                raise _fault(
                    path,
                    f"a union cannot have the type {kind} twice; only records, enums and fixed may differ by name",
                )
            kinds.add(kind)

    def _kind(self, branch: Any, namespace: str) -> str:
        """What tells a branch of a union from the others: the full name, or the type."""
        while isinstance(branch, dict) and branch["type"] not in _NAMED:
            branch = branch["type"]
        if isinstance(branch, dict):
            return self._full(branch["name"], branch.get("namespace", namespace))
        return branch if branch in PRIMITIVES or branch in ("array", "map") else self._full(branch, namespace)

    def _full(self, name: str, namespace: str) -> str:
        """A name with its namespace."""
        return f"{namespace}.{name}" if namespace and "." not in name else name

    # ------------------------------------------------------------------ defaults

    def _fits(self, value: Any, schema: Any, namespace: str) -> bool:
        """Whether JSON is a value of a type whose rules hold. A default of a union fits one of its types."""
        if isinstance(schema, list):
            return any(self._fits(value, branch, namespace) for branch in schema)
        if isinstance(schema, str):
            if schema in _DEFAULTS:
                return _DEFAULTS[schema](value)
            schema, namespace = self._named[self._full(schema, namespace)]
        match schema["type"]:
            case "array":
                return isinstance(value, list) and all(
                    self._fits(part, schema["items"], namespace) for part in value
                )
            case "map":
                return isinstance(value, dict) and all(
                    self._fits(part, schema["values"], namespace) for part in value.values()
                )
            case "enum":
                return value in schema["symbols"]
            case "fixed":
                return _is_bytes(value) and len(value) == schema["size"]
            case "record" | "error":
                # A field may have a default of its own.
                inner = self._full(schema["name"], schema.get("namespace", namespace)).rpartition(".")[0]
                return isinstance(value, dict) and all(
                    self._fits(value[field["name"]], field["type"], inner)
                    if field["name"] in value
                    else "default" in field
                    for field in schema["fields"]
                )
        return self._fits(value, schema["type"], namespace)


def shown(schema: Any) -> str:
    """A type in a message."""
    if isinstance(schema, list):
        return f"union of {', '.join(map(shown, schema))}"
    if isinstance(schema, dict):
        return str(schema.get("name") or shown(schema["type"]))
    return str(schema)


def _part(schema: dict[str, Any], part: str, path: str) -> Any:
    if part not in schema:
        raise _fault(path, f"{schema!r} lacks {part!r}; add it")
    return schema[part]


def _require_symbols(name: str, schema: dict[str, Any], path: str) -> None:
    symbols = _part(schema, "symbols", path)
    if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
        raise _fault(path, f"the symbols of the enum {name} are a list of texts, not {symbols!r}")
    for symbol in symbols:
        if not _NAME.fullmatch(symbol):
            raise _fault(path, f"the enum {name} cannot have the symbol {symbol!r}: {_NAME_RULE}")
        if symbols.count(symbol) > 1:
            raise _fault(path, f"the enum {name} has the symbol {symbol!r} twice; leave one out")
    if "default" in schema and schema["default"] not in symbols:
        raise _fault(path, f"the default {schema['default']!r} of the enum {name} is not among {symbols}")


def _require_precision(schema: dict[str, Any], path: str) -> None:
    """Hold the rules of a decimal, if the type is one."""
    if schema.get("logicalType") != "decimal":
        return
    precision, scale, size = schema.get("precision"), schema.get("scale", 0), schema.get("size")
    if not _is_whole(precision) or precision < 1:
        raise _fault(
            path,
            f"the precision of a decimal is a whole number of digits from 1, not {precision!r}; declare it",
        )
    if not _is_whole(scale) or not 0 <= scale <= precision:
        raise _fault(
            path,
            f"the scale of a decimal of {precision} digits is a whole number from 0 to {precision}, not {scale!r}",
        )
    if size is not None:
        # Python refuses to count the digits of very large numbers.
        most = int((8 * size - 1) * log10(2)) if size else 0
        if precision > most:
            raise _fault(
                path,
                f"a fixed of {size} bytes holds {most} digits, not {precision}; declare more bytes or less digits",
            )


def _fault(path: str, problem: str) -> InvalidProgramError:
    place = f"field {path!r}: " if path else ""
    return InvalidProgramError(f"AvroSchema: this is no schema of Avro: {place}{problem}")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_bytes(value: object) -> bool:
    """Whether a text stands for bytes, one for each character."""
    return isinstance(value, str) and all(ord(character) < 256 for character in value)


def _is_whole_of(bits: int) -> Callable[[Any], bool]:
    return lambda value: _is_whole(value) and -(1 << bits) <= value < 1 << bits


#: Primitive type -> whether JSON is a value of it.
_DEFAULTS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    **{kind: _is_whole_of(bits) for kind, bits in _WHOLE.items()},
    **dict.fromkeys(
        ("float", "double"), lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    ),
    "string": lambda value: isinstance(value, str),
    "bytes": _is_bytes,
}
