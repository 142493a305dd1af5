"""Subjects: the names under which a registry keeps versions of a schema.

Owner: any thread; pure.
"""

from __future__ import annotations

from typing import NamedTuple


class RegistrySubject(NamedTuple):
    """A schema of a registry by its subject and version; None = the latest version when the program is built."""

    subject: str
    version: int | None = None
