"""OwnedFolder: a temporary folder of a client, which the user's next client removes when its owner was killed.

Owner: who made it. The owner holds a lock on a file in the folder; the kernel lets go of it with the process, however
that ends, so that neither a recycled process id nor a restart of the machine can keep a folder, or lose a living one's.
Only folders of this user that have such a file are looked at: nobody else's, and none that something else has made.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_LOCK_FILE: Final = ".owner.lock"
#: For what a deployment uploads, secrets among it; and for Skein's driver.
SUBMISSION: Final = "yarrow-submission-"
DRIVER: Final = "yarrow-skein-driver-"


class OwnedFolder:
    """Made by `OwnedFolder(prefix)` in the folder for temporary files, with mode 0700; gone after `remove`."""

    def __init__(self, prefix: str) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            self._lock = os.open(self.path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if (self.path / _LOCK_FILE).exists():
                return
            # Another client took the folder for abandoned before it was locked.
            os.close(self._lock)

    def remove(self) -> None:
        """Removes the folder with its content; no effect when it is gone."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep() -> None:
    """Removes the folders whose owners are gone; never raises."""
    base = Path(tempfile.gettempdir())
    for prefix in (SUBMISSION, DRIVER):
        for path in base.glob(f"{prefix}*"):
            with suppress(OSError):
                _remove_abandoned(path)


def _remove_abandoned(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        return
    lock = os.open(path / _LOCK_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        # BlockingIOError: its owner lives.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
        log.debug("removed %s, which a client that is gone had left", path)
    finally:
        os.close(lock)
