"""The schema of a reader with the columns that only a writer's schema has.

Owner: any thread; pure. Avro defines a named type once, at its first place, and later places name it. So a column
brings the definitions that the reader's schema lacks, and no others. Must not read messages.
"""

from __future__ import annotations

import json
from typing import Any, Final

from yarrow.datastream.formats.avro_schema import AvroSchema
from yarrow.datastream.formats.registry.avro_evolution import fault_of
from yarrow.runtime.common.errors import InvalidProgramError

_COLUMNS: Final = "fields"
#: Where fastavro keeps the named types of a schema by their full names.
_NAMED: Final = "__named_schemas"
_DEFINED: Final = frozenset({"record", "error", "enum", "fixed"})


def with_columns(reader: AvroSchema, written: AvroSchema) -> AvroSchema:
    """Return the reader's schema with the columns that only the writer's record has, which come last.

    Raises InvalidProgramError, which names the columns, where a type of theirs is another one in the reader's schema.
    """
    known = {other for name, _ in reader.root.fields for other in (name, *reader.root.aliases[name])}
    added = [name for name, _ in written.root.fields if name not in known]
    if reader.root.kind != "record" or not added:
        return reader
    types = _Types(reader, written)
    parts = [types.column(part) for part in written.parsed[_COLUMNS] if part["name"] in added]
    merged = json.loads(reader.text)
    merged[_COLUMNS] = [*merged[_COLUMNS], *parts]
    shown = ", ".join(map(repr, added))
    try:
        made = AvroSchema.parse_string(json.dumps(merged))
    except InvalidProgramError as error:
        raise InvalidProgramError(f"the columns {shown} cannot be added: {error}") from None
    if (fault := fault_of(written.root, made.root)) is not None:
        raise InvalidProgramError(
            f"the columns {shown} cannot be added to the types of the reader's schema: {fault}; take"
            ' evolution="keep", or a later schema for the reader'
        )
    return made


class _Types:
    """The types of one writer as parts of a reader's schema."""

    def __init__(self, reader: AvroSchema, written: AvroSchema) -> None:
        self._definitions = written.parsed.get(_NAMED, {})
        self._namespace = reader.root.name.rpartition(".")[0]
        #: Full names that are defined.
        self._defined = set(reader.parsed.get(_NAMED, {}))
        #: The two records are read as each other, whatever their names.
        self._same = {written.root.name: reader.root.name}

    def column(self, part: dict[str, Any]) -> dict[str, Any]:
        """A field of a record."""
        return {**part, "type": self._type(part["type"])}

    def _type(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return [self._type(part) for part in schema]
        if isinstance(schema, str):
            found = self._definitions.get(schema)
            return schema if found is None else self._named(found)
        kind = schema["type"]
        if kind in _DEFINED:
            return self._named(schema)
        inner = next((word for word in ("items", "values") if word in schema), "type")
        return {**schema, inner: self._type(schema[inner])}

    def _named(self, schema: dict[str, Any]) -> Any:
        """The name of a named type, or its definition at its first place."""
        name = self._same.get(schema["name"]) or self._full(schema["name"])
        if name in self._defined:
            return name
        self._defined.add(name)
        made = {word: part for word, part in schema.items() if not word.startswith("__")} | {"name": name}
        if _COLUMNS in made:
            made[_COLUMNS] = [self.column(part) for part in made[_COLUMNS]]
        return made

    def _full(self, name: str) -> str:
        return f"{self._namespace}.{name}" if self._namespace and "." not in name else name
