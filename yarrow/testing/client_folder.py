"""ClientFolder: the temporary folder of an embedded cluster, and what killed clients left of theirs.

Owner: any thread; blocking. A folder holds a lock file that its process keeps locked: a folder whose lock is
free belongs to a process that was killed, and is removed by the next one that starts here.
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
    removed = []
    for folder in Path(parent or tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not (folder / _LOCK).exists():
                continue
            lock = _lock(folder)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
                removed.append(folder)
    return removed


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; None when another process holds it."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
