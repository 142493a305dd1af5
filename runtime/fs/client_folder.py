"""ClientFolder: the temporary folder of an embedded cluster, and what killed clients left of theirs.

Owner: any thread; blocking. A folder holds a lock file that its process keeps locked: a folder whose lock is
free belongs to a process that was killed. Its last TaskExecutor removes it then, else the next client that
starts here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "yarrow-embedded-"
_LOCK = "lock"
#: How the working directories of TaskExecutors begin.
WORKING_DIRECTORY_PREFIX = "yarrow-te-"


class ClientFolder:
    """A folder of mode 0700 that lasts until `remove`."""

    def __init__(self, parent: str | None = None) -> None:
        self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        self._lock = _lock(Path(self.path))

    def remove(self) -> None:
        """Removes it with all it holds; may be repeated."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(parent: str | None = None) -> list[Path]:
    """Removes folders of this user whose process is gone; returns them."""
    folders = Path(parent or tempfile.gettempdir()).glob(f"{_PREFIX}*")
    return [folder for folder in folders if _remove_if_abandoned(folder)]


def remove_orphaned(working_directory: Path) -> None:
    """Removes the working directory of a TaskExecutor whose client is gone.

    The last TaskExecutor of a killed client removes that client's folder too; other parents stay.
    """
    shutil.rmtree(working_directory, ignore_errors=True)
    folder = working_directory.parent
    if folder.name.startswith(_PREFIX) and not any(folder.glob(f"{WORKING_DIRECTORY_PREFIX}*")):
        _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not (folder / _LOCK).exists():
            return False
        lock = _lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
            return True
    return False


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; None when another process holds it."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
