"""ReaderChoice: the schema by which a program reads, and where it comes from. Schemas that a program asks for.

Owner: any thread; plain values. The latest version of a subject is fixed when the program is built.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from yarrow.common.values.kept_schema import KeptSchema
from yarrow.datastream.formats.registry.registered_schema import RegisteredSchema, SchemaReference
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.subjects import RegistrySubject
from yarrow.runtime.common.errors import InvalidProgramError


@dataclass(frozen=True)
class ReaderChoice:
    """A schema as text."""

    text: str
    subject: str | None = None
    version: int | None = None
    #: Name of a reference -> the text that the schema refers to, where the text does not contain it.
    referred: tuple[tuple[str, str], ...] = ()
    #: The program has asked for the latest version.
    is_latest: bool = False

    def kept(self) -> KeptSchema:
        """Return what snapshots keep."""
        content = json.dumps([self.text, self.subject, self.version, self.referred])
        return KeptSchema((self.subject or "") if self.is_latest else "", str(self), content)

    @staticmethod
    def of_kept(kept: KeptSchema) -> ReaderChoice:
        """Return the choice that a snapshot has kept."""
        text, subject, version, referred = json.loads(kept.content)
        return ReaderChoice(text, subject, version, tuple(map(tuple, referred)), bool(kept.subject))

    @staticmethod
    def of_subject(
        found: RegisteredSchema, named: RegistrySubject, own_text: str | None = None
    ) -> ReaderChoice:
        """Return the choice of a schema that the registry gave for a subject.

        `own_text`: the schema as one text that contains what it refers to; None = `found` with its references.
        """
        text, referred = (found.text, found.referred) if own_text is None else (own_text, ())
        return ReaderChoice(text, found.subject, found.version, referred, named.version is None)

    def __str__(self) -> str:
        if self.subject is None:
            return "the schema of the program"
        return f"version {self.version} of the subject {self.subject!r}"


def registered(settings: RegistrySettings, named: RegistrySubject, kind: str) -> RegisteredSchema:
    """Return the schema of a subject, asked for now.

    Raises SchemaRegistryError, and InvalidProgramError for a schema of another kind.
    """
    from yarrow.datastream.formats.registry.client import RegistryClient

    found = RegistryClient(settings).version(named.subject, named.version)
    if found.kind != kind:
        raise InvalidProgramError(
            f"version {found.version} of the subject {named.subject!r} is of the kind {found.kind}, and {kind} is"
            " expected here; take the schema of that kind"
        )
    return found


def registered_with_its_references(
    settings: RegistrySettings,
    named: RegistrySubject,
    kind: str,
    owner: str,
    references: Sequence[SchemaReference],
) -> RegisteredSchema:
    """Return the schema of a subject for a writer, asked for now.

    Raises as `registered`, and InvalidProgramError for `references`: the registry has those of the schema.
    """
    if references:
        raise InvalidProgramError(
            f"{owner}: the schema of a RegistrySubject has its references in the registry; leave them out"
        )
    return registered(settings, named, kind)


def referring(
    settings: RegistrySettings, schema: RegisteredSchema, owner: str, references: Sequence[SchemaReference]
) -> RegisteredSchema:
    """Return a program's schema with the schemas that it refers to, asked for now.

    Raises SchemaRegistryError, and InvalidProgramError for what is no reference.
    """
    if not references:
        return schema
    for reference in references:
        if not isinstance(reference, SchemaReference):
            raise InvalidProgramError(
                f"{owner}: references are SchemaReference(name, subject, version), not {reference!r}"
            )
    from yarrow.datastream.formats.registry.client import RegistryClient

    referred = RegistryClient(settings).referred(references)
    return replace(schema, references=tuple(references), referred=referred)
