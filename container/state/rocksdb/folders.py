"""DatabaseFolder: the folder of a database, below the worker's folder or one of the configured directories.

Owner: the task thread makes folders; the last user of a folder removes it, on any thread. A folder name is
used once, so that leftovers of a dead attempt are never read. Folders in configured directories are removed
when their process is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from yarrow.container.state.rocksdb.errors import RocksDBFolderError

_PREFIX: Final = "rocksdb-"
_IN_USE: Final = "in-use"
_SWEEP_LOCK: Final = ".rocksdb-folders"


class DatabaseFolder:
    """One folder; the database uses it, and so does each snapshot that still reads files from it."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock_file = lock
        self._guard = threading.Lock()
        self._users = 1

    @property
    def database(self) -> str:
        """The live database."""
        return str(self.path / "db")

    def checkpoint(self, name: str) -> str:
        """The path of a hard-linked copy with that name."""
        return str(self.path / f"checkpoint-{name}")

    def restored(self, number: int) -> str:
        """The path of a downloaded database while it is read."""
        return str(self.path / f"restored-{number}")

    def acquire(self) -> None:
        """Counts one more user."""
        with self._guard:
            self._users += 1

    def release(self) -> None:
        """Counts one user less; the last removes everything."""
        with self._guard:
            self._users -= 1
            if self._users:
                return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_file)


def new_folder(directories: tuple[str, ...], local_directory: str, owner: str, unique: str) -> DatabaseFolder:
    """A new folder; `owner` chooses among several directories, and `unique` makes the name unique.

    Raises RocksDBFolderError with the directory.
    """
    base = Path(_spread(directories, owner) if directories else local_directory)
    path = base / f"{_PREFIX}{unique}"
    try:
        base.mkdir(parents=True, exist_ok=True)
        with _locked(base / _SWEEP_LOCK):
            _sweep(base)
            path.mkdir()
            lock = os.open(path / _IN_USE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise RocksDBFolderError(
            f"{path}: the folder of a RocksDB database cannot be made ({error}). Name directories that the worker may "
            "write in state.backend.rocksdb.localdir or io.tmp.dirs."
        ) from error
    return DatabaseFolder(path, lock)


def make_directories(directories: tuple[str, ...]) -> None:
    """Makes all missing configured directories before a task takes a record.

    Raises RocksDBFolderError with the first one that cannot be made or written.
    """
    for directory in directories:
        try:
            if not os.path.isabs(directory):
                raise OSError("the path is not absolute")
            Path(directory).mkdir(parents=True, exist_ok=True)
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError("this process may not write there")
        except OSError as error:
            raise RocksDBFolderError(
                f"{directory}: this directory of state.backend.rocksdb.localdir cannot be used on"
                f" {os.uname().nodename} ({error}). Name directories that the workers may write."
            ) from error


def _spread(directories: tuple[str, ...], owner: str) -> str:
    return directories[sum(owner.encode()) % len(directories)]


def _sweep(base: Path) -> None:
    """Removes folders whose process is gone, which shows in a free lock."""
    for path in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(path / _IN_USE, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
