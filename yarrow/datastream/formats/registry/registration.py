"""SchemaRegistration: how a writer gets the id of its schema, and what a registry that refuses the schema is told by.

Owner: the task's thread. Knows no form of messages: who reads schemas of a form says why one cannot read another. Must
not import the client library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final

from yarrow.datastream.formats.registry.errors import (
    IncompatibleSchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from yarrow.datastream.formats.registry.registered_schema import RegisteredSchema
from yarrow.runtime.common.errors import InvalidProgramError

if TYPE_CHECKING:
    from yarrow.datastream.formats.registry.client import RegistryClient

#: Why no message of one schema can be read by another, with the path of the field; None = it can.
Fault = Callable[[RegisteredSchema, RegisteredSchema], str | None]
#: Versions of a subject that are compared with a refused schema, the latest first.
_MOST_COMPARED: Final = 20


class SchemaRegistration(Enum):
    """How a writer gets the id that its messages carry."""

    #: The schema of the program becomes a version of its subject, if it is none yet.
    REGISTER = "register"
    #: The schema of the program must be a version of its subject already.
    LOOKUP = "lookup"
    #: Rows are written by the latest version of the subject, as it is when the writer opens.
    LATEST = "latest"

    @staticmethod
    def of(owner: str, given: object) -> SchemaRegistration:
        """Return the way that a program names. Raises InvalidProgramError."""
        try:
            return SchemaRegistration(given)
        except ValueError:
            names = ", ".join(f'"{each.value}"' for each in SchemaRegistration)
            raise InvalidProgramError(f"{owner}: registration is {names}, not {given!r}") from None


def schema_to_write(
    registry: RegistryClient,
    subject: str,
    schema: RegisteredSchema,
    registration: SchemaRegistration,
    fault: Fault,
) -> RegisteredSchema:
    """Return the schema by which rows are written under a subject, with its id.

    Raises IncompatibleSchemaError naming subject, version and field; SchemaNotFoundError for a schema that is looked up
    and not there; SchemaRegistryError.
    """
    match registration:
        case SchemaRegistration.REGISTER:
            try:
                return registry.register(subject, schema)
            except IncompatibleSchemaError as error:
                raise _explained(registry, subject, schema, fault, error) from None
        case SchemaRegistration.LOOKUP:
            try:
                return registry.lookup(subject, schema)
            except SchemaNotFoundError as error:
                raise SchemaNotFoundError(f'{error}. registration="register" does it') from None
        case SchemaRegistration.LATEST:
            return _latest(registry, subject, schema)


def _latest(registry: RegistryClient, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
    found = registry.version(subject)
    if found.kind != schema.kind:
        raise SchemaRegistryError(
            f"version {found.version} of the subject {subject!r} is of the kind {found.kind}, and {schema.kind} is"
            " expected here; take another subject"
        )
    return found


def _explained(
    registry: RegistryClient,
    subject: str,
    schema: RegisteredSchema,
    fault: Fault,
    error: IncompatibleSchemaError,
) -> IncompatibleSchemaError:
    """The error in terms of subject, version and field, as far as the registry tells its versions."""
    try:
        rule = registry.compatibility(subject)
        versions = registry.versions(subject)[: -_MOST_COMPARED - 1 : -1]
        for version in versions:
            for problem in _problems(registry.version(subject, version), schema, rule, fault):
                return IncompatibleSchemaError(
                    f"the program's schema cannot be a version of the subject {subject!r}, whose rule is {rule}:"
                    f" {problem}. Change the field, or write under another subject"
                )
    except (SchemaRegistryError, InvalidProgramError):
        # An older version may be no schema that can be read here.
        return error
    known = f"the latest version is {versions[0]}, " if versions else ""
    return IncompatibleSchemaError(f"{error} ({known}the rule is {rule})")


def _problems(old: RegisteredSchema, new: RegisteredSchema, rule: str, fault: Fault) -> Iterator[str]:
    if old.kind != new.kind:
        yield f"version {old.version} is of the kind {old.kind}, and the schema of the kind {new.kind}"
        return
    if not rule.startswith("FORWARD") and (found := fault(old, new)) is not None:
        yield f"it cannot read messages of version {old.version}: {found}"
    if not rule.startswith("BACKWARD") and (found := fault(new, old)) is not None:
        yield f"version {old.version} cannot read its messages: {found}"
