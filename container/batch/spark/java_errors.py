"""Errors of Java, in their own words.

Owner: any thread. Java may have ended when somebody asks.
"""

from __future__ import annotations

import contextlib

_LONGEST = 500


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
