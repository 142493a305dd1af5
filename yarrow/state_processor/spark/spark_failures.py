"""What a failed run of Spark says in short: the last line of Python's own traceback, else Spark's first.

Owner: the calling thread; pure.
"""

from __future__ import annotations

import re
from typing import Final

#: The last line of a traceback: a class of an error, and its message.
_RAISED: Final = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)): (.+)$", re.MULTILINE)
_MOST: Final = 1000


def told_in_short(error: BaseException) -> str:
    """One line of an error of PySpark, without traces and classes of Java."""
    text = str(error)
    python = text.partition("Traceback (most recent call last)")[2]
    found = [
        match[2] for match in _RAISED.finditer(python) if not match[1].startswith(("org.", "java.", "py4j."))
    ]
    line = found[-1] if found else text.strip().partition("\n")[0]
    return line.strip()[:_MOST] or type(error).__name__
