"""The columns of a schema as text for messages. Pure.

Owner: any thread. Must not know who reads the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def shown_columns(schema: pa.Schema) -> str:
    """Names and types of the columns, in their order."""
    return ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema)


def why_not_there(column: str, schema: pa.Schema) -> str:
    """Why `schema` has no such column; "" = it has it once."""
    number = len(schema.get_all_field_indices(column))
    if number == 1:
        return ""
    there = "there is no column" if number == 0 else f"there are {number} columns named"
    return f"{there} {column!r}; the stream has {schema.names}"
