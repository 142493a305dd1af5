"""The schema of a program as fastavro resolves files by it: defaults as values, and new ones for each record.

Owner: the task's thread. fastavro puts the default of a field that a file lacks into the record as it is, so one list
would be in all records. Must not read files.
"""

from __future__ import annotations

import copy
from typing import Any

from yarrow.datastream.formats.avro_schema import AvroSchema, AvroType
from yarrow.datastream.formats.avro_values import default_of


class _MadeAnew:
    """Stands in a record for a default that can change; a copy takes its place."""

    def __init__(self, value: Any) -> None:
        self.value = value


class ReaderSchema:
    """A schema whose defaults are values."""

    def __init__(self, schema: AvroSchema) -> None:
        self._has_mutable = False
        #: The schema in fastavro's form.
        self.parsed = copy.deepcopy(schema.parsed)
        records: dict[str, AvroType] = {}
        _collect(schema.root, records)
        self._set_defaults(self.parsed, records)

    def finished(self, rows: list[Any]) -> list[Any]:
        """Return decoded records, each with defaults of its own."""
        return [_finished(row) for row in rows] if self._has_mutable else rows

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
        self._has_mutable = True
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
