"""ClientFolder: a temporary folder of a client or standalone process, and the removal of abandoned ones.

Owner: any thread; blocking. A folder holds a lock file that its process keeps locked. A folder with a free
lock belongs to a killed process, even if another process has the process id by now. The next process of its
kind that starts here removes it. The last TaskExecutor or SparkDriver of an embedded cluster already removes the
cluster's folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path
from typing import Final

from yarrow.runtime.config.options import cluster, taskmanager
from yarrow.runtime.config.settings import ReadableConfig
from yarrow.runtime.config.values.errors import InvalidOptionValue

#: The beginning of the names of folders of embedded clusters.
EMBEDDED: Final = "yarrow-embedded-"
#: The beginning of the names of folders of standalone masters.
STANDALONE_MASTER: Final = "yarrow-jobmanager-"
_LOCK: Final = "lock"
#: How often a removal is repeated, and the seconds between: processes that are ending still write.
_ATTEMPTS, _PAUSE = 5, 0.05
#: The beginning of the names of working directories of TaskExecutors.
WORKING_DIRECTORY_PREFIX: Final = "yarrow-te-"


def parent_folder(config: ReadableConfig) -> str | None:
    """The parent of a process's folder: process.working-dir, else the first of io.tmp.dirs, else None.

    Makes the folder where it is missing, as Flink does. Raises InvalidOptionValue where nobody can make or write it.
    """
    working = config.get(cluster.WORKING_DIR)
    if working is not None:
        return _made(cluster.WORKING_DIR.key, working)
    directories = config.get(taskmanager.TMP_DIRS) or ()
    return _made(taskmanager.TMP_DIRS.key, directories[0]) if directories else None


def _made(key: str, folder: str) -> str:
    path = os.path.abspath(folder)
    try:
        os.makedirs(path, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError("this process may not write there")
    except OSError as error:
        raise InvalidOptionValue(
            key,
            repr(folder),
            str(error),
            "a folder that this process can create and write",
            "/data/yarrow",
        ) from None
    return path


class ClientFolder:
    """A folder of mode 0700 that lasts until `remove`; its name begins with `prefix`."""

    def __init__(self, parent: str | None = None, prefix: str = EMBEDDED) -> None:
        self._lock: int | None = None
        while self._lock is None:
            self.path = tempfile.mkdtemp(prefix=prefix, dir=parent)
            # None, or no file any more: another client took it for abandoned before it was locked.
            self._lock = _lock(Path(self.path), os.O_CREAT)
            if self._lock is not None and not os.path.exists(os.path.join(self.path, _LOCK)):
                os.close(self._lock)
                self._lock = None

    def hand_on(self) -> None:
        """Hand the lock to the program that replaces this process; that program calls `remove_inherited`."""
        if self._lock is not None:
            os.set_inheritable(self._lock, True)

    def remove(self) -> None:
        """Removes it with all it holds; may be repeated."""
        _remove(Path(self.path))
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_inherited(folder: Path) -> None:
    """Removes a folder that was handed on to this process."""
    _remove(folder)
    shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(parent: str | None = None, prefix: str = EMBEDDED) -> list[Path]:
    """Removes folders of this user whose process is gone; returns them."""
    folders = Path(parent or tempfile.gettempdir()).glob(f"{prefix}*")
    return [folder for folder in folders if _remove_if_abandoned(folder)]


def remove_orphaned(working_directory: Path) -> None:
    """Removes the working directory of a TaskExecutor or SparkDriver whose client is gone.

    The last process of a killed client removes that client's folder too; other parents stay.
    """
    _remove(working_directory)
    folder = embedded_folder(working_directory)
    if folder is not None and not any(folder.glob(f"{WORKING_DIRECTORY_PREFIX}*")):
        _remove_if_abandoned(folder)


def embedded_folder(working_directory: Path) -> Path | None:
    """The folder of the embedded cluster that has given a process its working directory; None = another one has."""
    folder = working_directory.parent
    return folder if folder.name.startswith(EMBEDDED) else None


def _remove_if_abandoned(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return False
        lock = _lock(folder)
        if lock is not None:
            _remove(folder)
            os.close(lock)
            return True
    return False


def _remove(folder: Path) -> None:
    """Remove the folder with its content.

    If somebody still writes into it, the removal of abandoned folders tries again.
    """
    for attempt in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        if attempt < _ATTEMPTS - 1:
            threading.Event().wait(_PAUSE)
    with contextlib.suppress(OSError):
        (folder / _LOCK).touch(mode=0o600)


def _lock(folder: Path, flags: int = 0) -> int | None:
    """A descriptor that holds the folder's lock; None when another process holds it, or has removed the folder."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
