"""ReaderChoice: the schema by which a program reads, and where it comes from.

Owner: any thread; plain values. The latest version of a subject is fixed when the program is built.
"""

from __future__ import annotations

from dataclasses import dataclass

from yarrow.datastream.formats.registry.registered_schema import RegisteredSchema
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
