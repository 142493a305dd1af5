"""The result of a doctor's check: one line with its level, its subject and a sentence.

Owner: none; values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """The severity of a finding."""

    OK = "OK"
    #: Works, with a drawback that the text names.
    WARN = "WARN"
    #: A submission would fail.
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    level: Level
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.level.value:<4}  {self.subject}: {' '.join(self.text.split())}"


def fine(subject: str, text: str) -> Finding:
    return Finding(Level.OK, subject, text)


def warned(subject: str, text: str) -> Finding:
    return Finding(Level.WARN, subject, text)


def failed(subject: str, text: str) -> Finding:
    return Finding(Level.FAIL, subject, text)
