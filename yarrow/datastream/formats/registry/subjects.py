"""Subjects: the names under which a registry keeps versions of a schema, and how they follow from topic and record.

Owner: any thread; pure. Source of the names: "Subject name strategy" of Confluent's documentation.
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
    """How the subject follows from the topic and from the full name of the record."""

    #: `<topic>-value`, or `<topic>-key`.
    TOPIC_NAME = "topic"
    #: The full name of the record.
    RECORD_NAME = "record"
    #: `<topic>-<full name of the record>`.
    TOPIC_RECORD_NAME = "topic-record"

    def subject(self, topic: str | None, record: str, *, is_key: bool) -> str:
        """Return the subject. Raises InvalidProgramError if it needs a topic or a name and there is none."""
        if self is not SubjectNameStrategy.RECORD_NAME and not topic:
            raise InvalidProgramError(
                f"the subject follows from the topic by {self}, and no topic is known here; give subject=..., or"
                " write by a KafkaRecordSerializationSchema"
            )
        if self is SubjectNameStrategy.TOPIC_NAME:
            return f"{topic}-{'key' if is_key else 'value'}"
        if not record:
            raise InvalidProgramError(
                f"the subject follows from the name of the record by {self}, and the schema has none; give subject=..."
            )
        return record if self is SubjectNameStrategy.RECORD_NAME else f"{topic}-{record}"
