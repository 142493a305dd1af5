"""FileLedger: which files of a folder the runs of a scheduled job have taken.

Owner: any thread; blocking. Each run adds a file of names, whose own name follows from them: so adding is repeatable.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.paths import join
from yarrow.runtime.fs.file_search import find_files
from yarrow.runtime.fs.file_system import FileStatus
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.whole_files import TEMPORARY_PREFIX, write_whole

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
#: Of a record: `\\n` is a line's end in a name, a doubled backslash is one.
_ESCAPED: Final = re.compile(r"\\(.)")
#: So many records are made one when the next run adds its own.
_MOST_RECORDS: Final = 32


def checked_name(name: str, user: str) -> str:
    """The name under which files are taken. Raises InvalidProgramError if it cannot be part of a folder's name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidProgramError(
            f"{user}: the name {name!r} becomes part of a folder's name: use letters, digits, _ . and -"
        )
    return name


class FileLedger:
    """Which files of a folder were taken under a name. Any thread; blocking."""

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.folder = join(path, f".taken-{name}")
        self._base = ""

    def taken(self) -> frozenset[str]:
        """Names below the folder of all taken files. Raises FileSystemError and OSError."""
        return frozenset(name for record in self._records() for name in self._read(record))

    def untaken(self) -> list[FileStatus]:
        """All other files, by path. Raises FileNotFoundError if the folder is missing."""
        taken = self.taken()
        return [file for file in find_files(self.path) if self.name_of(file.path) not in taken]

    def name_of(self, path: str) -> str:
        """The name of a file below the folder."""
        if not self._base:
            # Asked once: on HDFS each answer is a call of the NameNode.
            self._base = file_system_for(self.path).status(self.path).path.rstrip("/") + "/"
        return path.removeprefix(self._base)

    def write_successor(self, folder: str, names: Iterable[str]) -> None:
        """Writes into an empty folder what this one would hold if the files were taken; it may replace this one."""
        known = self._still_taken() | frozenset(names)
        text = _text_of(known)
        file_system_for(folder).make_dirs(folder)
        write_whole(join(folder, f"{hashlib.sha256(text).hexdigest()}.txt"), text)

    def _still_taken(self) -> frozenset[str]:
        """Names of taken files that are still there. A FileSink uses each name once, so the others do not return."""
        return self.taken() & {self.name_of(file.path) for file in find_files(self.path)}

    def take(self, names: Iterable[str]) -> None:
        """Records that the files were taken; a second call changes nothing."""
        files = file_system_for(self.folder)
        records = self._records()
        known = frozenset(names)
        if len(records) >= _MOST_RECORDS:
            known |= self._still_taken()
        else:
            records = []
        text = _text_of(known)
        record = join(self.folder, f"{hashlib.sha256(text).hexdigest()}.txt")
        files.make_dirs(self.folder)
        with suppress(FileExistsError):
            write_whole(record, text)
        for former in records:
            if former.path.rpartition("/")[2] != record.rpartition("/")[2]:
                files.delete(former.path)

    def _records(self) -> list[FileStatus]:
        with suppress(FileNotFoundError):
            entries = file_system_for(self.folder).list(self.folder)
            return [entry for entry in entries if not entry.name.startswith(TEMPORARY_PREFIX)]
        return []

    def _read(self, record: FileStatus) -> list[str]:
        with suppress(FileNotFoundError), file_system_for(record.path).open(record.path) as stream:
            return _names_in(bytes(stream.read()))
        # Two records were made one meanwhile.
        return []


def _text_of(names: Iterable[str]) -> bytes:
    """A record: a line for each name. A name may hold each character but the slash and zero."""
    lines = (name.replace("\\", "\\\\").replace("\n", "\\n") for name in sorted(names))
    return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")


def _names_in(text: bytes) -> list[str]:
    # Not `splitlines`: it would end lines at characters that names may have.
    lines = text.decode(errors="surrogateescape").split("\n")[:-1]
    return [_ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], line) for line in lines]
