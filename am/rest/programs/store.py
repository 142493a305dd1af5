"""ProgramStore: uploaded programs in a folder, under names that the server chose.

Owner: blocking; handlers call it through a thread. A name from a request is compared with what the folder
lists and never becomes part of a path.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from yarrow.am.rest.errors import BadRequestError, NotFoundError
from yarrow.runtime.common.ids import IdFactory

_STORED_NAME = re.compile(r"[0-9a-f]{32}_(?P<name>[A-Za-z0-9._-]+)")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_MAX_NAME = 100
_SUFFIXES = (".py", ".zip")


@dataclass(frozen=True, slots=True)
class Program:
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

    def add(self, upload_name: str, content: BinaryIO) -> Program:
        """Stores a program; BadRequestError when it is none that can be run."""
        name = base_name(upload_name)
        directory = self._folder()
        stored = directory / f"{self._ids.hex_id()}_{name}"
        part = stored.with_name(f"{stored.name}.part")
        try:
            with part.open("xb") as file:
                shutil.copyfileobj(content, file)
            _check(part, name)
            part.rename(stored)
        finally:
            part.unlink(missing_ok=True)
        return self.get(stored.name)

    def list(self) -> list[Program]:
        """All programs, the newest first."""
        directory = self._directory or self._temporary
        if directory is None or not directory.is_dir():
            return []
        found = []
        with os.scandir(directory) as entries:
            for entry in entries:
                match = _STORED_NAME.fullmatch(entry.name)
                stored = match is not None and not entry.name.endswith(".part")
                if match is not None and stored and entry.is_file(follow_symlinks=False):
                    changed = entry.stat().st_mtime_ns // 1_000_000
                    found.append(Program(entry.name, match["name"], Path(entry.path), changed))
        return sorted(found, key=lambda program: (-program.uploaded_ms, program.id))

    def get(self, program_id: str) -> Program:
        """The program of that id; NotFoundError when there is none."""
        for program in self.list():
            if program.id == program_id:
                return program
        raise NotFoundError(f"no program {program_id!r} is stored: GET /jars lists those that are")

    def remove(self, program_id: str) -> None:
        """Deletes a program; NotFoundError when there is none."""
        self.get(program_id).path.unlink(missing_ok=True)

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
    """The name of an uploaded file made safe: its last part, other characters than `A-Za-z0-9._-` as `_`.

    BadRequestError when it is neither a .py file nor a .zip.
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


def _check(path: Path, name: str) -> None:
    """Looks at the directory of an archive. A .py file is not even compiled here: that is the child's work."""
    if name.endswith(".zip"):
        try:
            with zipfile.ZipFile(path) as archive:
                modules = [member for member in archive.namelist() if member.endswith(".py")]
        except (zipfile.BadZipFile, OSError) as error:
            raise BadRequestError(f"{name} is no zip archive: {error}") from None
        if not modules:
            raise BadRequestError(f"{name} has no Python modules: put a __main__.py at its top")


def archive_modules(program: Program) -> list[str]:
    """What a zip offers as entries: `__main__` first, then its top-level modules and packages."""
    with zipfile.ZipFile(program.path) as archive:
        members = archive.namelist()
    top = {member.split("/")[0] for member in members if member.endswith(".py")}
    names = sorted(name.removesuffix(".py") for name in top)
    return sorted(names, key=lambda name: name != "__main__")
