"""Errors of Java, in their own words.

Owner: any thread. Java may have ended when somebody asks.
"""

from __future__ import annotations

import contextlib

_LONGEST = 500
#: An error may be its own cause.
_MOST_CAUSES = 10


def first_line(error: BaseException) -> str:
    """The first line of what Java says of its own error, else of the error's text."""
    return message_of(error).partition("\n")[0][:_LONGEST]


def message_of(error: BaseException) -> str:
    """All that Java says of its own error, without its frames, else the error's text."""
    java = getattr(error, "java_exception", None)
    text = str(error)
    if java is not None:
        with contextlib.suppress(Exception):  # Java may have ended
            text = str(java.getMessage() or java.toString())
    return text.strip()


def causes_of(error: BaseException) -> list[tuple[str, str]]:
    """Class, without its package, and message of Java's error, then those of its causes; [] = it is not Java's."""
    found: list[tuple[str, str]] = []
    # PySpark keeps Java's error in an error of its own where it knows the class.
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with contextlib.suppress(Exception):  # Java may have ended
        while java is not None and len(found) < _MOST_CAUSES:
            name = str(java.getClass().getName()).rpartition(".")[2]
            found.append((name, str(java.getMessage() or "").strip()))
            java = java.getCause()
    return found
