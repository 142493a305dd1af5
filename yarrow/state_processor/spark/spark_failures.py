"""What a failed run of Spark says in short: the message at the end of Python's own traceback, else Spark's first line.

Owner: the calling thread; pure.
"""

from __future__ import annotations

import re
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last):\n"
#: What follows Python's traceback in the text of an error of PySpark.
_OF_JAVA: Final = re.compile(
    r"\s+at [\w.$/]+\(|\s*(Driver stacktrace|JVM stacktrace|Caused by):|\s+\.\.\. \d+ more"
)
_MOST: Final = 1000


def told_in_short(error: BaseException) -> str:
    """One line of an error of PySpark, without traces and classes of Java."""
    text = str(error)
    _, found, python = text.rpartition(_TRACEBACK)
    line = _raised(python) if found else ""
    return (line or text.strip().partition("\n")[0].strip())[:_MOST] or type(error).__name__


def _raised(trace: str) -> str:
    """The message of the exception behind the frames of a traceback; its class, if it has none."""
    told: list[str] = []
    for line in trace.splitlines():
        if _OF_JAVA.match(line):
            break
        if told or (line and not line[0].isspace()):
            told.append(line.strip())
    kind, colon, _ = told[0].partition(": ") if told else ("", "", "")
    if colon and " " not in kind:
        told[0] = told[0][len(kind) + len(colon) :]
    return " ".join(filter(None, told))
