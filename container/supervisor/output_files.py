"""OutputFiles: the logs that a TaskExecutor writes and serves: .log, .out, .err, and one raw file for each slot.

Owner: the TaskExecutor's event loop. Lines are written whole and flushed at once. Must not build a path from
a request: only names in the folder's listing are served.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Protocol

from yarrow.container.protocol.errors import UnknownLogFileError
from yarrow.container.protocol.worker_protocol import LogLines, OutputLines, UserLogRecord
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.messages import FileInfo
from yarrow.runtime.rpc.output_stream import LoggedRecord

#: Bytes above which a raw file is emptied before the next worker of its slot starts.
MAX_RAW_BYTES = 16 * 1024 * 1024
#: Most bytes of one answer: it has to fit a message.
MAX_READ_BYTES = 4 * 1024 * 1024
_log = logging.getLogger(__name__)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class OutputSink(Protocol):
    """Also receives what is written to the files: the client's end."""

    def write(self, stream: str, text: str) -> None:
        """Whole lines of "stdout" or "stderr"."""
        ...

    def write_record(self, record: LoggedRecord) -> None:
        """Takes a log record of user code."""
        ...


def safe_name(resource_id: ResourceID) -> str:
    """A resource id in a form that is safe in a file name."""
    return _UNSAFE.sub("_", resource_id)


class OutputFiles:
    """The files of one TaskExecutor in its log folder."""

    def __init__(
        self, directory: Path, resource_id: ResourceID, sink: OutputSink | None = None, stem: str = ""
    ) -> None:
        """`stem`: prefix of the file names; "" = the resource id, for a folder that several TaskExecutors share."""
        self._directory = directory
        self._stem = stem or f"taskexecutor-{safe_name(resource_id)}"
        self._sink = sink
        self._files: dict[str, int] = {}
        #: Files that did not take the last write, or only a part of it, with the reasons.
        self._refused: dict[str, str] = {}

    @property
    def log_path(self) -> Path:
        """Log of the supervisor and its workers."""
        return self._directory / f"{self._stem}.log"

    def raw_path(self, slot: int) -> Path:
        """The file for output past Python of a slot's workers: C code, crash dumps."""
        return self._directory / f"{self._stem}-slot{slot}.raw"

    def open_raw(self, path: Path) -> int:
        """A descriptor for appending; a file that is too large is emptied first. The caller closes it."""
        fd = os.open(path, _APPEND, 0o640)
        if os.fstat(fd).st_size > MAX_RAW_BYTES:
            os.ftruncate(fd, 0)
        return fd

    def write(self, message: OutputLines | LogLines | UserLogRecord) -> None:
        """Appends the output that a worker has sent."""
        match message:
            case OutputLines():
                self.write_output(message.stream, message.text)
            case LogLines():
                self.write_log(message.text)
            case UserLogRecord():
                self.write_record(message.record, message.text)

    def write_output(self, stream: str, text: str) -> None:
        """Appends whole lines to .out (stdout) or .err (stderr), then hands them to the sink.

        If the disk is full, only the file lacks the lines: the sink gets them, and nobody fails.
        """
        lines = text if text.endswith("\n") else text + "\n"
        self._append(".err" if stream == "stderr" else ".out", lines)
        if self._sink is not None:
            self._sink.write(stream, lines)

    def write_log(self, text: str) -> None:
        """Appends whole lines of a worker's log to .log."""
        self._append(".log", text if text.endswith("\n") else text + "\n")

    def write_record(self, record: LoggedRecord, text: str) -> None:
        """Appends a user's log record to .log as `text`, then passes the record to the sink."""
        self.write_log(text)
        if self._sink is not None:
            self._sink.write_record(record)

    def _append(self, suffix: str, text: str) -> None:
        try:
            # After lines that were cut off, a new line begins.
            self._write(suffix, f"\n{text}" if suffix in self._refused else text)
        except OSError as error:
            why = error.strerror or str(error)
            if self._refused.get(suffix) != why:
                self._refused[suffix] = why
                _log.warning(
                    "%s%s cannot be written: %s; the output of the worker is lost until it can",
                    self._stem,
                    suffix,
                    why,
                )
        else:
            self._refused.pop(suffix, None)

    def _write(self, suffix: str, text: str) -> None:
        fd = self._files.get(suffix)
        if fd is None:
            path = self._directory / f"{self._stem}{suffix}"
            fd = self._files[suffix] = os.open(path, _APPEND, 0o640)
        data = memoryview(text.encode("utf-8", "surrogateescape"))
        while data:
            data = data[os.write(fd, data) :]

    def list(self) -> tuple[FileInfo, ...]:
        """The plain files of the log folder that belong to this TaskExecutor, by name."""
        found = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False) and self._is_own(entry.name):
                    status = entry.stat(follow_symlinks=False)
                    found.append(
                        FileInfo(name=entry.name, size=status.st_size, mtime=status.st_mtime_ns // 1_000_000)
                    )
        return tuple(sorted(found, key=lambda info: info.name))

    def _is_own(self, name: str) -> bool:
        return name.startswith((f"{self._stem}.", f"{self._stem}-"))

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Bytes of a file that `list` names. Raises UnknownLogFileError for any other name.

        A negative offset counts from the end.
        """
        names = [info.name for info in self.list()]
        if name not in names:
            raise UnknownLogFileError(
                f"this TaskExecutor has no log file named {name!r}; it has: {', '.join(names) or 'none'}"
            )
        own_name = names[names.index(name)]
        fd = os.open(self._directory / own_name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            size = os.fstat(fd).st_size
            file.seek(max(0, size + offset) if offset < 0 else min(offset, size))
            return file.read(max(0, min(length, MAX_READ_BYTES)))

    def close(self) -> None:
        """Closes the files; a later write opens them again."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()


def read_tail(path: Path, start: int, limit: int = 8192) -> str:
    """The last `limit` bytes that were written to `path` at or after `start`, in whole lines.

    It is "" without the file.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(start, size - limit)
            file.seek(begin)
            data = file.read(limit)
    except FileNotFoundError:
        return ""
    if begin > start:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace").strip()
