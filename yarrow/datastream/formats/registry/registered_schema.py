"""RegisteredSchema: a schema as a registry has it, with the schemas that it refers to.

Owner: none; plain values. Must not import the client library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"


class SchemaReference(NamedTuple):
    """A schema that another one refers to: by the full name of a type, a URL, or the name of a file."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry."""

    #: AVRO, JSON or PROTOBUF.
    kind: str
    text: str
    references: tuple[SchemaReference, ...] = ()
    #: The id that messages carry.
    schema_id: int | None = None
    subject: str | None = None
    version: int | None = None
    #: Name of a reference -> the schema; those before others refer to none behind them.
    referred: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        place = "" if self.subject is None else f" (subject {self.subject}, version {self.version})"
        return f"schema {self.schema_id}{place}"
