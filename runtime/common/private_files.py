"""Files that other users may not read: logs and programs' output contain data.

Owner: the calling thread. The group may read them: YARN's NodeManager, a member of it, serves and collects
logs.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any, Final

_MODE: Final = 0o640
_OTHERS: Final = 0o007


def private_opener(path: str, flags: int) -> int:
    """An `opener` for `open`: others can read neither a new file nor, from now on, an older one."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, _MODE)
    mode = os.fstat(descriptor).st_mode
    if mode & _OTHERS:
        with contextlib.suppress(PermissionError):  # another user's file, to which we may write
            os.fchmod(descriptor, mode & 0o777 & ~_OTHERS)
    return descriptor


class PrivateFileHandler(logging.FileHandler):
    """A log file that other users may not read."""

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=private_opener)
