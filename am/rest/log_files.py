"""LogFolder: the control plane's log files, by the names in its folder.

Owner: the event loop of the REST server; files are read in threads. A name from a request is compared with
the listing and never becomes part of a path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from yarrow.am.rest.errors import NotFoundError
from yarrow.am.rest.services import RestServices
from yarrow.runtime.rpc.messages import FileInfo

_CHUNK = 256 * 1024
#: Prefix of TaskExecutors' log files.
_TASK_EXECUTORS = "taskexecutor-"


@dataclass(frozen=True, slots=True)
class LogFolder:
    """One folder of logs; None = there is none."""

    directory: Path | None
    main_name: str | None = None

    @classmethod
    def of(cls, services: RestServices) -> LogFolder:
        """The log folder of the control plane."""
        return cls(services.log_directory, services.log_file_name)

    def list(self) -> list[FileInfo]:
        """Regular files, by name."""
        if self.directory is None or not self.directory.is_dir():
            return []
        found = []
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    changed = status.st_mtime_ns // 1_000_000
                    found.append(FileInfo(name=entry.name, size=status.st_size, mtime=changed))
        return sorted(found, key=lambda file: file.name)

    def read_main_log(self) -> Iterator[bytes]:
        """The control plane's own log; nothing while it has written none."""
        return self._read_main(self.main_name, ".log")

    def read_main_output(self) -> Iterator[bytes]:
        """The control plane's printed output; nothing while it has printed nothing."""
        name = None if self.main_name is None else os.path.splitext(self.main_name)[0] + ".out"
        return self._read_main(name, ".out")

    def _read_main(self, name: str | None, suffix: str) -> Iterator[bytes]:
        for file in self.list():
            # Embedded, the TaskExecutors write into the same folder.
            first = file.name.endswith(suffix) and not file.name.startswith(_TASK_EXECUTORS)
            if file.name == name or (name is None and first):
                return self.read(file.name)
        return iter(())

    def read(self, name: str) -> Iterator[bytes]:
        """The file's present bytes. Raises NotFoundError if the folder has no file of that name."""
        listed = next((file for file in self.list() if file.name == name), None)
        if listed is None or self.directory is None:
            raise NotFoundError(
                f"the control plane has no log file {name!r}: GET /jobmanager/logs lists its log files"
            )
        return _pieces(self.directory / listed.name, listed.size)


def _pieces(path: Path, size: int) -> Iterator[bytes]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        while size > 0 and (piece := file.read(min(_CHUNK, size))):
            size -= len(piece)
            yield piece
