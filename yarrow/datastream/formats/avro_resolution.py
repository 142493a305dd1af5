"""The schema of a program as fastavro resolves files by it: defaults as values, and logical types that agree.

Owner: the task's thread. fastavro puts the default of a field that a file lacks into the record as it is, so one list
would be in all records. It gives a value the logical type of the file, whatever the program declares. Must not read
files.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from yarrow.datastream.formats.avro_schema import AvroSchema, AvroType
from yarrow.datastream.formats.avro_values import default_of


class _MadeAnew:
    """Stands in a record for a default that can change; a copy takes its place."""

    def __init__(self, value: Any) -> None:
        self.value = value


class ReaderSchema:
    """A schema whose defaults are values."""

    def __init__(self, schema: AvroSchema) -> None:
        #: Whether records need `finished`.
        self.has_mutable = False
        #: The schema as a tree.
        self.root = schema.root
        #: The schema in fastavro's form.
        self.parsed = copy.deepcopy(schema.parsed)
        records: dict[str, AvroType] = {}
        _collect(schema.root, records)
        self._set_defaults(self.parsed, records)

    def finished(self, rows: list[Any]) -> list[Any]:
        """Return decoded records, each with defaults of its own."""
        return [_finished(row) for row in rows] if self.has_mutable else rows

    def finished_record(self, record: Any) -> Any:
        """Return a decoded record with defaults of its own."""
        return _finished(record)

    def _set_defaults(self, schema: Any, records: dict[str, AvroType]) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._set_defaults(branch, records)
        if not isinstance(schema, dict):
            return
        # fastavro keeps each named type a second time here, for the places that use it by name.
        for named in schema.get("__named_schemas", {}).values():
            self._set_defaults(named, records)
        if schema["type"] in ("record", "error"):
            declared = records[schema["name"]]
            types = dict(declared.fields)
            for part in schema["fields"]:
                name = part["name"]
                self._set_defaults(part["type"], records)
                if name in declared.defaults:
                    # From the text, since a record may be met twice.
                    part["default"] = self._value(default_of(name, types[name], declared.defaults[name]))
        else:
            for inner in ("type", "items", "values"):
                self._set_defaults(schema.get(inner), records)

    def _value(self, default: Any) -> Any:
        if not isinstance(default, list | dict):
            return default
        self.has_mutable = True
        return _MadeAnew(default)


def _collect(declared: AvroType, records: dict[str, AvroType]) -> None:
    """Add the records of a type by name."""
    if declared.kind == "record":
        if declared.name in records:
            return
        records[declared.name] = declared
    for part in (*declared.parts, *(part for _, part in declared.fields)):
        _collect(part, records)


def _finished(value: Any) -> Any:
    if isinstance(value, _MadeAnew):
        return copy.deepcopy(value.value)
    if isinstance(value, dict):
        return {key: _finished(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finished(part) for part in value]
    return value


# ---------------------------------------------------------------------- logical types

#: Stored type of a file -> the types as which Avro reads it.
_READ_AS = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"string", "bytes"},
}


class Difference(NamedTuple):
    """A field whose values mean something else in what was written than in the program's schema."""

    path: str
    #: The types as texts.
    written: str
    declared: str


def differing_meaning(written: AvroType, declared: AvroType) -> Difference | None:
    """Return how a field's written logical type differs from the declared one; None where all agree.

    A field in milliseconds may be declared in microseconds. Types that Avro cannot read as each other are left to the
    reader of records.
    """
    return _differing(written, declared, "", set())


def _differing(
    written: AvroType, declared: AvroType, path: str, seen: set[tuple[int, int]]
) -> Difference | None:
    if (id(written), id(declared)) in seen:
        return None
    seen.add((id(written), id(declared)))
    if "union" in (written.kind, declared.kind):
        return _differing_union(written, declared, path, seen)
    if written.kind == declared.kind == "record":
        found = dict(written.fields)
        for name, part in declared.fields:
            known = next((other for other in (name, *declared.aliases[name]) if other in found), None)
            inner = f"{path}.{name}" if path else name
            if known is not None and (fault := _differing(found[known], part, inner, seen)) is not None:
                return fault
        return None
    if written.kind == declared.kind and written.kind in ("array", "map"):
        return _differing(written.parts[0], declared.parts[0], path, seen)
    return None if _same_meaning(written, declared) else Difference(path, _shown(written), _shown(declared))


def _differing_union(
    written: AvroType, declared: AvroType, path: str, seen: set[tuple[int, int]]
) -> Difference | None:
    branches = declared.parts if declared.kind == "union" else [declared]
    for part in written.parts if written.kind == "union" else [written]:
        readable = [branch for branch in branches if _is_readable(part, branch)]
        alike = [branch for branch in readable if (branch.kind, branch.name) == (part.kind, part.name)]
        # The reader of records takes the first branch, too.
        for branch in (alike or readable)[:1]:
            if (fault := _differing(part, branch, path, seen)) is not None:
                return fault
    return None


def _is_readable(written: AvroType, declared: AvroType) -> bool:
    """Whether Avro reads the stored type of a file as that of the program."""
    stored = written.stored or written.kind
    return (declared.stored or declared.kind) in _READ_AS.get(stored, {stored})


def _same_meaning(written: AvroType, declared: AvroType) -> bool:
    """Whether values of the two types mean the same, or cannot be read as each other at all."""
    if not _is_readable(written, declared):
        return True
    if written.kind == declared.kind:
        return (written.precision, written.scale) == (declared.precision, declared.scale)
    if not written.stored and not declared.stored:
        return True
    return written.kind.endswith("-millis") and declared.kind == written.kind[: -len("millis")] + "micros"


def _shown(declared: AvroType) -> str:
    is_decimal = declared.kind == "decimal"
    return f"decimal({declared.precision}, {declared.scale})" if is_decimal else declared.kind
