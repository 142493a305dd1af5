"""Environments that were packed before: on HDFS under the hash of their content, and what the client remembers.

Owner: the client's thread; blocking. An archive on HDFS never changes. It is written under a hidden name,
checked for its length, and renamed in one step, so that concurrent clients do no harm. Clients and running
masters note that they use one. A client that stores another removes those that were unused for long. The
client's memory is a file that only saves work: without it everything is packed anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from yarrow.client.yarn.environment.environment_archive import PackedArchive
from yarrow.client.yarn.environment.environment_files import EnvironmentFile
from yarrow.client.yarn.environment.environment_start import ARCHIVE_SUFFIX
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.fs.file_system import FileStatus
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.whole_files import replace_whole
from yarrow.runtime.yarn.environment_use import is_stored, last_use, note_use

_HIDDEN = "_upload-"
#: Environments that were used within this time stay.
UNUSED_MS = 30 * 24 * 3600 * 1000
_log = logging.getLogger(__name__)
#: Time after which another client removes what a killed client left on HDFS.
_ABANDONED_MS = 24 * 3600 * 1000
_REMEMBERED = 16
#: Changes when the same files make another archive.
_FORMAT = "1"


class KnownEnvironment(msgspec.Struct, frozen=True):
    """An archive that was packed from known files."""

    digest: str
    size: int
    #: (path, size, mtime) of the system's libraries in it.
    libraries: tuple[tuple[str, int, int], ...] = ()

    def is_current(self) -> bool:
        """Whether the system's libraries are unchanged since packing."""
        with contextlib.suppress(OSError):
            return all(
                (found := os.stat(path)).st_size == size and found.st_mtime_ns == mtime
                for path, size, mtime in self.libraries
            )
        return False


def fingerprint(files: Iterable[EnvironmentFile]) -> str:
    """Identifies the state of the client's files without reading them: paths, sizes and times of change."""
    digest = hashlib.sha256(f"{_FORMAT} {sys.version}\n".encode())
    for file in files:
        digest.update(f"{file.target}\0{file.source}\0{file.size}\0{file.mtime_ns}\n".encode())
    return digest.hexdigest()


class EnvironmentMemory:
    """The archives that this client knows, by fingerprint."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @staticmethod
    def of_user() -> EnvironmentMemory:
        """In the user's cache folder."""
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return EnvironmentMemory(Path(base, "yarrow", "environments.json"))

    def find(self, key: str) -> KnownEnvironment | None:
        """The archive of these files, if its libraries are still the same."""
        known = self._read().get(key)
        return known if known is not None and known.is_current() else None

    def remember(self, key: str, packed: PackedArchive, libraries: Sequence[EnvironmentFile]) -> None:
        """Keeps the latest few; a folder that is not writable only costs time."""
        entries = {name: entry for name, entry in self._read().items() if name != key}
        state = tuple((file.source, file.size, file.mtime_ns) for file in libraries)
        entries[key] = KnownEnvironment(packed.digest, packed.size, state)
        latest = dict(list(entries.items())[-_REMEMBERED:])
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_whole(self._path, msgspec.json.encode(latest))

    def _read(self) -> dict[str, KnownEnvironment]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, KnownEnvironment])
        except (OSError, msgspec.MsgspecError):
            return {}


class EnvironmentStore:
    """Files in one folder, local or on HDFS, under the hash of their content and a suffix for their kind."""

    def __init__(self, folder: str, ids: IdFactory, clock: Clock, replication: int = 0) -> None:
        """`replication`: of newly stored files; 0 = as HDFS is configured."""
        self._folder = folder
        self._ids = ids
        self._clock = clock
        self._replication = replication

    def path_of(self, digest: str, suffix: str = ARCHIVE_SUFFIX) -> str:
        """Where a file is, if it is there."""
        return join(self._folder, digest + suffix)

    def holds(self, digest: str, size: int, suffix: str = ARCHIVE_SUFFIX) -> bool:
        """Whether the file exists with its full size; marks it as used."""
        path = self.path_of(digest, suffix)
        try:
            found = file_system_for(path).status(path)
            if found.size == size:
                note_use(path, self._clock, found)
            return found.size == size
        except FileNotFoundError:
            return False

    def add(self, write: Callable[[BinaryIO], PackedArchive], suffix: str = ARCHIVE_SUFFIX) -> PackedArchive:
        """Stores the file that `write` writes, under the returned hash; leaves nothing after a failure."""
        file_system = file_system_for(self._folder)
        self._remove_old()
        hidden = join(self._folder, _HIDDEN + self._ids.hex_id())
        try:
            with file_system.create(hidden, self._replication) as output:
                packed = write(output)
            self._name(hidden, packed, suffix)
        finally:
            with contextlib.suppress(OSError, FileSystemError):
                file_system.delete(hidden)
        return packed

    def _name(self, hidden: str, packed: PackedArchive, suffix: str) -> None:
        file_system = file_system_for(self._folder)
        path = self.path_of(packed.digest, suffix)
        if self.holds(packed.digest, packed.size, suffix):
            return
        try:
            file_system.rename(hidden, path)
        except (FileExistsError, FileSystemError):
            # Another client was faster: the same name is the same content.
            if not self.holds(packed.digest, packed.size, suffix):
                raise

    def _remove_old(self) -> None:
        """Removes files that were unused for long, and leftovers of killed clients."""
        file_system = file_system_for(self._folder)
        with contextlib.suppress(OSError, FileSystemError):
            for entry in file_system.list(self._folder):
                if entry.name.startswith(_HIDDEN):
                    old = self._clock.epoch_ms() - entry.modified_ms > _ABANDONED_MS
                else:
                    # Checked again: somebody may have begun to use it a moment ago.
                    old = self._is_unused(entry) and self._is_unused(file_system.status(entry.path))
                if old:
                    # Refused if HDFS keeps no access times: the use of files is then unknown.
                    file_system.touch(entry.path, max(1, entry.accessed_ms))
                    file_system.delete(entry.path)
                    _log.debug("%s was not used any more", entry.path)

    def _is_unused(self, entry: FileStatus) -> bool:
        return is_stored(entry.name) and self._clock.epoch_ms() - last_use(entry) > UNUSED_MS
