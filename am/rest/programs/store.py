"""ProgramStore: uploaded programs in a folder, under names chosen by the server.

Owner: blocking; handlers call it through a thread. A name from a request is compared with the names in the
folder and never becomes part of a path.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from yarrow.am.rest.errors import BadRequestError, NotFoundError
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.fs.whole_files import replacing

_STORED_NAME = re.compile(r"[0-9a-f]{32}_(?P<name>[A-Za-z0-9._-]+)")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_MAX_NAME = 100
_SUFFIXES = (".py", ".zip")
#: Most members of an uploaded archive.
MAX_MEMBERS = 10_000
#: Bytes of an archive's directory for each member: a path and its fields.
_DIRECTORY_BYTES = 512
#: The end of a zip archive: disks, members, size and place of its directory, length of the comment.
_END = struct.Struct("<4sHHHHIIH")
_END_MARK, _MAX_COMMENT = b"PK\x05\x06", 1 << 16
#: Before the end, in archives with more than 65 535 members or 4 GiB.
_LOCATOR_MARK, _LOCATOR_BYTES = b"PK\x06\x07", 20


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """A stored program."""

    id: str
    name: str
    path: Path
    uploaded_ms: int

    @property
    def is_archive(self) -> bool:
        """A zip of modules, not a single one."""
        return self.name.endswith(".zip")


class ProgramStore:
    """The programs of one REST server."""

    def __init__(self, directory: Path | None, temporary_directory: Path, ids: IdFactory) -> None:
        """`directory` None = a temporary one, made when needed and removed by `close`."""
        self._directory = directory
        self._temporary_directory = temporary_directory
        self._temporary: Path | None = None
        self._ids = ids
        #: Entries of each archive, by id; read once, because stored programs do not change.
        self._entries: dict[str, tuple[str, ...]] = {}

    def add(self, upload_name: str, content: BinaryIO) -> StoredProgram:
        """Stores a program. Raises BadRequestError if it cannot be run."""
        name = base_name(upload_name)
        directory = self._folder()
        stored = directory / f"{self._ids.hex_id()}_{name}"
        with replacing(stored) as file:
            shutil.copyfileobj(content, file)
            file.flush()
            entries = _entries_of(Path(file.name), name)
        self._entries[stored.name] = entries
        return self.get(stored.name)

    def list(self) -> list[StoredProgram]:
        """All programs, the newest first."""
        directory = self._directory or self._temporary
        if directory is None or not directory.is_dir():
            return []
        found = []
        with os.scandir(directory) as entries:
            for entry in entries:
                match = _STORED_NAME.fullmatch(entry.name)
                if match is not None and entry.is_file(follow_symlinks=False):
                    changed = entry.stat().st_mtime_ns // 1_000_000
                    found.append(StoredProgram(entry.name, match["name"], Path(entry.path), changed))
        return sorted(found, key=lambda program: (-program.uploaded_ms, program.id))

    def get(self, program_id: str) -> StoredProgram:
        """The program of that id. Raises NotFoundError if there is none."""
        for program in self.list():
            if program.id == program_id:
                return program
        raise NotFoundError(f"no program {program_id!r} is stored: GET /jars lists the stored programs")

    def remove(self, program_id: str) -> None:
        """Deletes a program. Raises NotFoundError if there is none."""
        self.get(program_id).path.unlink(missing_ok=True)
        self._entries.pop(program_id, None)

    def entries_of(self, program: StoredProgram) -> tuple[str, ...]:
        """The entries of a program, `__main__` first; none for a file that was put there and is no program."""
        found = self._entries.get(program.id)
        if found is None:
            try:
                found = _entries_of(program.path, program.name)
            except BadRequestError:
                found = ()
            self._entries[program.id] = found
        return found

    def close(self) -> None:
        """Removes the temporary folder; a folder that was set stays with its programs."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _folder(self) -> Path:
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            return self._directory
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="yarrow-web-", dir=self._temporary_directory))
        return self._temporary


def base_name(upload_name: str) -> str:
    """A safe name for an uploaded file: its last part, with `_` for characters other than `A-Za-z0-9._-`.

    Raises BadRequestError if it is neither a .py file nor a .zip.
    """
    last = upload_name.replace("\\", "/").rpartition("/")[2]
    suffix = next((suffix for suffix in _SUFFIXES if last.endswith(suffix)), None)
    if suffix is None:
        raise BadRequestError(
            f"{last!r} is no program that can be run: upload a Python file (.py), or a .zip of modules with"
            " a __main__.py at its top"
        )
    stem = _UNSAFE.sub("_", last[: -len(suffix)])[:_MAX_NAME].lstrip(".") or "program"
    return stem + suffix


def _entries_of(path: Path, name: str) -> tuple[str, ...]:
    """The entries of an archive: `__main__` first, then its top-level modules and packages.

    A .py file is not even compiled here: that is the child's work. Raises BadRequestError for a file that is
    no archive of modules, or has too many members.
    """
    if not name.endswith(".zip"):
        return ("__main__",)
    try:
        _check_size(path, name)
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise BadRequestError(
            f"{name} is no zip archive: {error}. Upload a zip of modules with a __main__.py at its top"
        ) from None
    if len(members) > MAX_MEMBERS:
        raise _too_many(name, len(members))
    top = {member.split("/")[0] for member in members if member.endswith(".py")}
    if not top:
        raise BadRequestError(f"{name} has no Python modules: put a __main__.py at its top")
    return tuple(
        sorted((name.removesuffix(".py") for name in top), key=lambda name: (name != "__main__", name))
    )


def _check_size(path: Path, name: str) -> None:
    """Reads the size of the directory from the end of an archive, before the directory is read whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _LOCATOR_BYTES - _END.size - _MAX_COMMENT))
        tail = file.read()
    at = tail.rfind(_END_MARK)
    if at < 0 or len(tail) - at < _END.size:
        raise zipfile.BadZipFile("File is not a zip file")
    _, _, _, _, members, directory, _, _ = _END.unpack_from(tail, at)
    is_zip64 = tail[max(0, at - _LOCATOR_BYTES) : at].startswith(_LOCATOR_MARK)
    if is_zip64 or members > MAX_MEMBERS or directory > MAX_MEMBERS * _DIRECTORY_BYTES:
        raise _too_many(name, members)


def _too_many(name: str, members: int) -> BadRequestError:
    return BadRequestError(
        f"{name} has more than {MAX_MEMBERS} members, or a directory of that length ({members} "
        "counted). Upload the program's own modules alone, and ship packages as an archive (-pyarch) "
        "or install them for the workers"
    )
