"""The errors of schema registries. Each names the registry by its URL, which has no secrets, and says what to do.

Owner: none. Must not import the client library.
"""

from __future__ import annotations

from yarrow.common.serialization import SchemaUnavailableError
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.runtime.common.errors import YarrowError


class SchemaRegistryError(YarrowError, SchemaUnavailableError):
    """A registry refused a request, or did not answer it in time. No message is at fault."""


class SchemaNotFoundError(SchemaRegistryError):
    """A registry does not have a subject, a version or a schema."""

    needs_user = True


class IncompatibleSchemaError(SchemaRegistryError):
    """A registry does not take a schema as the next version of its subject."""

    needs_user = True


class CompilerUnavailableError(YarrowError, SchemaUnavailableError):
    """The compiler of schemas does not run on this machine. No message is at fault."""


class RegistryMessageError(FileFormatError):
    """A message cannot be read or written; `schema_id` is that of its schema, None = the message has none."""

    def __init__(self, message: str, schema_id: int | None = None) -> None:
        super().__init__(message)
        self.schema_id = schema_id
