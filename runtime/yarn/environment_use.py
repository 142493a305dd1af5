"""Notes that a stored environment is used, so that nobody removes it: by deploying clients and running masters.

Owner: any thread; blocking. Only files of the store are touched, and only their access time. With another
modification time YARN would take them for other files, and refuse them to running applications.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable
from typing import Final

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.fs.file_system import FileStatus
from yarrow.runtime.fs.registry import file_system_for

#: A use is noted at most once in this time.
USE_NOTED_MS: Final = 24 * 3600 * 1000
#: Files of the store: the hash of their content, and what they are.
_STORED: Final = re.compile(r"[0-9a-f]{64}\.(tar\.gz|sh)")
_log = logging.getLogger(__name__)


def is_stored(name: str) -> bool:
    """Whether a file of this name is the store's."""
    return _STORED.fullmatch(name) is not None


def last_use(status: FileStatus) -> int:
    """Epoch milliseconds; a file that was never used counts from its making."""
    return max(status.accessed_ms, status.modified_ms)


def note_uses(paths: Iterable[str], clock: Clock) -> None:
    """Note the use of several files; missing files are skipped."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            note_use(path, clock)


def note_use(path: str, clock: Clock, status: FileStatus | None = None) -> None:
    """Notes on HDFS that a stored file is used, where that was not noted lately; other files stay as they are.

    Raises FileNotFoundError when it is gone. Where HDFS keeps no times of use, or it is another user's, only a line in
    the log tells.
    """
    if not is_stored(path.rpartition("/")[2]):
        return
    file_system = file_system_for(path)
    try:
        status = status or file_system.status(path)
        if clock.epoch_ms() - last_use(status) > USE_NOTED_MS:
            file_system.touch(path, clock.epoch_ms())
    except FileNotFoundError:
        raise
    except (OSError, FileSystemError) as error:
        _log.debug("the time of use of %s was not recorded: %s", path, error)
