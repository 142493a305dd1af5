"""Files that others may not read: logs and what programs print hold data.

Owner: the calling thread. The group may read them: YARN's NodeManager serves and collects logs as a member of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any, Final

_MODE: Final = 0o640
_OTHERS: Final = 0o007


def private_opener(path: str, flags: int) -> int:
    """The `opener` of `open`: a new file is not readable by others, nor is an older one from now on."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, _MODE)
    mode = os.fstat(descriptor).st_mode
    if mode & _OTHERS:
        with contextlib.suppress(PermissionError):  # somebody else's, who lets us write
            os.fchmod(descriptor, mode & 0o777 & ~_OTHERS)
    return descriptor


class PrivateFileHandler(logging.FileHandler):
    """A log file that others may not read."""

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=private_opener)
