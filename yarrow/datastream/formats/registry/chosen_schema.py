"""ReaderChoice: the schema by which a program reads, where it comes from, and its form in a checkpoint.

Owner: any thread; plain values. A schema that the program names as a text or by version is the program's choice. The
latest version of a subject is fixed when the program is built, and a checkpoint's one stands above it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

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
    #: The program asked for the latest version, whichever it is.
    is_latest: bool = False

    def __str__(self) -> str:
        if self.subject is None:
            return "the schema of the program"
        return f"version {self.version} of the subject {self.subject!r}"

    def snapshot(self) -> str:
        """Return the form of a checkpoint."""
        return json.dumps({"text": self.text, "subject": self.subject, "version": self.version})

    def restored(self, snapshot: str) -> ReaderChoice:
        """Return the choice that holds in a job that goes on from a checkpoint."""
        if not self.is_latest:
            return self
        stored: dict[str, Any] = json.loads(snapshot)
        if stored["subject"] != self.subject:
            return self
        return ReaderChoice(stored["text"], stored["subject"], stored["version"], is_latest=True)


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
