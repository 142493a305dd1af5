"""Subjects: the names under which a registry keeps versions of a schema, and how a writer's subject is made.

Owner: any thread; pure. Source of the strategies: "Subject name strategy" of Confluent's documentation of its schema
registry.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from yarrow.runtime.common.errors import InvalidProgramError


class RegistrySubject(NamedTuple):
    """A schema of a registry by its subject and version; None = the latest version when the program is built."""

    subject: str
    version: int | None = None


class SubjectNameStrategy(Enum):
    """What the subject of a written schema is made of. The values are the names of Confluent's classes."""

    #: The topic, and whether the schema is that of keys or of values: `orders-value`.
    TOPIC_NAME = "TopicNameStrategy"
    #: The full name of the record: `shop.Order`.
    RECORD_NAME = "RecordNameStrategy"
    #: Both: `orders-shop.Order`.
    TOPIC_RECORD_NAME = "TopicRecordNameStrategy"

    @property
    def needs_topic(self) -> bool:
        """Whether a schema has a subject of its own in each topic."""
        return self is not SubjectNameStrategy.RECORD_NAME

    def subject(self, record: str, topic: str, is_key: bool) -> str:
        """Return the subject of a schema whose record has this full name."""
        match self:
            case SubjectNameStrategy.TOPIC_NAME:
                return f"{topic}-{'key' if is_key else 'value'}"
            case SubjectNameStrategy.RECORD_NAME:
                return record
            case SubjectNameStrategy.TOPIC_RECORD_NAME:
                return f"{topic}-{record}"


def writers_subject(owner: str, given: object) -> str | SubjectNameStrategy:
    """Return the subject that a program names, or how it is made. Raises InvalidProgramError for anything else."""
    if isinstance(given, SubjectNameStrategy):
        return given
    if isinstance(given, str) and given:
        return given
    names = ", ".join(f"SubjectNameStrategy.{each.name}" for each in SubjectNameStrategy)
    raise InvalidProgramError(
        f"{owner}: the name of a subject, such as 'orders-value', or one of {names} is expected, not {given!r}"
    )
