"""AvroSchema: a parsed schema of Avro as a tree of types, and the declared type of its records.

Owner: any thread; schemas do not change. fastavro is imported where a schema is parsed, so that a program can name
the classes without it. Must not read or write records.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from yarrow.common.typeinfo import PickledBytesTypeInfo
from yarrow.datastream.formats.avro_rules import PRIMITIVES, require_rules
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.fs.registry import file_system_for

#: Logical type -> the types that it is stored as. Another logical type says nothing, as the specification has it.
_LOGICAL = {
    "date": {"int"},
    "decimal": {"bytes", "fixed"},
    "local-timestamp-micros": {"long"},
    "local-timestamp-millis": {"long"},
    "time-micros": {"long"},
    "time-millis": {"int"},
    "timestamp-micros": {"long"},
    "timestamp-millis": {"long"},
    "uuid": {"string"},
}


def avro_library() -> Any:
    """Return the module fastavro. Raises UnsupportedFeatureError with the command that installs it."""
    try:
        return importlib.import_module("fastavro")
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            f"Avro needs fastavro, which cannot be imported here ({error}). Run `pip install 'yarrow[fastavro]'`"
            " in the environment of the program and in that of the workers"
        ) from error


@dataclass(slots=True)
class AvroType:
    """A type of a schema. A record may contain itself."""

    #: record, enum, array, map, fixed, union, a primitive type, or a logical type such as date.
    kind: str
    #: Full name of a record, enum or fixed.
    name: str = ""
    #: Names and types of a record's fields, in order.
    fields: list[tuple[str, AvroType]] = field(default_factory=list)
    #: The defaults of fields that a record may leave out, as the schema's JSON has them.
    defaults: dict[str, Any] = field(default_factory=dict)
    #: Elements of an array, values of a map, branches of a union.
    parts: list[AvroType] = field(default_factory=list)
    symbols: frozenset[str] = frozenset()
    #: Bytes of a fixed.
    size: int | None = None
    precision: int = 0
    scale: int = 0
    #: The type in which a logical type is stored; empty for another type.
    stored: str = ""
    #: Field -> the names that it has in files besides its own.
    aliases: dict[str, list[str]] = field(default_factory=dict)
    #: Names that a named type has in files besides its own, without namespaces.
    name_aliases: frozenset[str] = frozenset()

    @property
    def without_null(self) -> AvroType | None:
        """The other branch of a union of null and one type; None for every other type."""
        others = [part for part in self.parts if part.kind != "null"]
        is_nullable = self.kind == "union" and len(others) == 1 and len(self.parts) == 2
        return others[0] if is_nullable else None


class AvroSchema:
    """A schema of Avro; made by `parse_string` or `parse_file`."""

    def __init__(self, text: str) -> None:
        #: The schema as JSON.
        self.text = text

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """The schema in a text. Raises InvalidProgramError for what is no schema, naming the fault."""
        schema = AvroSchema(json_schema)
        schema.root  # noqa: B018 - a fault is told here, not in the task
        return schema

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """The schema in a file of any file system, read now. Raises as `parse_string`, and FileNotFoundError."""
        with file_system_for(file_path).open(file_path) as stream:
            content = stream.read()
        try:
            return AvroSchema.parse_string(content.decode())
        except UnicodeDecodeError as error:
            raise InvalidProgramError(f"AvroSchema: {file_path} is no text in UTF-8: {error}") from error

    @cached_property
    def parsed(self) -> Any:
        """The schema in fastavro's form."""
        library = avro_library()
        try:
            schema = json.loads(self.text)
            require_rules(schema)
            return library.parse_schema(schema)
        except InvalidProgramError:
            raise
        except Exception as error:  # fastavro raises several classes, among them KeyError for a missing part
            raise InvalidProgramError(
                f"AvroSchema: this is no schema of Avro: {type(error).__name__}: {error}: {self.text[:200]!r}"
            ) from error

    @cached_property
    def root(self) -> AvroType:
        """The schema as a tree of types."""
        return type_of(self.parsed)

    def __getstate__(self) -> str:
        return self.text

    def __setstate__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"AvroSchema({self.text!r})"


class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """The type of records of a schema, which are dicts. They travel pickled; what writes them checks their fields."""

    __slots__ = ()

    def __init__(self, schema: AvroSchema) -> None:
        super().__init__()
        object.__setattr__(self, "_identity", (schema,))

    @property
    def schema(self) -> AvroSchema:
        """The schema of the records."""
        schema: AvroSchema = self._identity[0]
        return schema

    def __repr__(self) -> str:
        return f"GenericRecord({self.schema.text})"


def type_of(parsed: Any) -> AvroType:
    """Return the tree of a schema in fastavro's form."""
    return _tree(parsed, {})


def _tree(schema: Any, named: dict[str, AvroType]) -> AvroType:
    if isinstance(schema, str):
        return AvroType(schema) if schema in PRIMITIVES else named[schema]
    if isinstance(schema, list):
        return AvroType("union", parts=[_tree(part, named) for part in schema])
    kind = schema["type"]
    if not isinstance(kind, str):
        return _tree(kind, named)
    if kind == "record" or kind == "error":
        record = named[schema["name"]] = AvroType("record", schema["name"])
        record.name_aliases = _aliases(schema)
        # A field may be of this record: it is named before its fields are looked at.
        record.fields = [(part["name"], _tree(part["type"], named)) for part in schema["fields"]]
        record.defaults = {part["name"]: part["default"] for part in schema["fields"] if "default" in part}
        record.aliases = {part["name"]: part.get("aliases", []) for part in schema["fields"]}
        return record
    if kind == "array":
        return AvroType(kind, parts=[_tree(schema["items"], named)])
    if kind == "map":
        return AvroType(kind, parts=[_tree(schema["values"], named)])
    found = AvroType(_logical_or(kind, schema.get("logicalType")), schema.get("name", ""))
    found.stored = kind if found.kind != kind else ""
    found.name_aliases = _aliases(schema)
    found.symbols = frozenset(schema.get("symbols", ()))
    found.size = schema.get("size")
    found.precision = schema.get("precision", 0)
    found.scale = schema.get("scale", 0)
    if found.name:
        named[found.name] = found
    return named[kind] if kind in named and not found.name else found


def _aliases(schema: Any) -> frozenset[str]:
    return frozenset(alias.rpartition(".")[2] for alias in schema.get("aliases", ()))


def _logical_or(kind: str, logical: object) -> str:
    return logical if isinstance(logical, str) and kind in _LOGICAL.get(logical, ()) else kind
