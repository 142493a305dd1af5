"""Files that readers see whole or not at all: written under a name of nobody's, made durable, then renamed.

Owner: any thread; blocking. Nothing is ever overwritten. What a killed writer leaves has a hidden name that begins with
TEMPORARY_PREFIX: whoever owns the folder may remove it.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator
from typing import Final

from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.fs.file_system import FileSystem, FileSystemError, file_system_for, join, scheme_of
from yarrow.runtime.fs.local import sync_folder

#: How names begin under which files are written.
TEMPORARY_PREFIX: Final = "_tmp-"


class FileNotWrittenError(FileSystemError):
    """A file is not there, or it is not known whether it is; its cause says why."""


def temporary_name(path: str, unique: str) -> str:
    """Under which the file at `path` is written: beside it, hidden, with `unique` of this one writing alone."""
    folder, name = posixpath.split(path)
    return join(folder, f"{TEMPORARY_PREFIX}{name}-{unique}")


def write_whole(
    path: str, data: bytes, unique: str = "", before_rename: Callable[[], None] = lambda: None
) -> None:
    """Writes a new file; when this returns it is durable, its name too, and has all its bytes.

    `unique` becomes part of the temporary name, "" = something random. On any failure the temporary file is removed, as
    far as storage lets it. Raises FileExistsError where there is a file of that name, PermissionError where it may not
    be written, FileNotWrittenError for all else; each names `path`. `before_rename` is called when all bytes are
    durable: where it raises, all stays as it is, as if the process had died there.
    """
    temporary = temporary_name(path, unique or RandomIdFactory().hex_id())
    files = file_system_for(path)
    with _cleaned_up(files, temporary, path):
        _write(files, temporary, data)
    before_rename()
    with _cleaned_up(files, temporary, path):
        _rename(files, temporary, path)


@contextlib.contextmanager
def _cleaned_up(files: FileSystem, temporary: str, path: str) -> Iterator[None]:
    """Errors that name `path`, and nothing is left of it."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(OSError, FileSystemError):
            files.delete(temporary)
        if isinstance(error, FileExistsError) or not isinstance(error, OSError | FileSystemError):
            raise
        if isinstance(error, PermissionError):
            raise PermissionError(f"{path} may not be written by this process ({_text(error)})") from error
        raise FileNotWrittenError(
            f"{path} cannot be written ({_text(error)}). Check the space and who may write there."
        ) from error


def _write(files: FileSystem, temporary: str, data: bytes) -> None:
    try:
        with files.create(temporary) as stream:
            stream.write(data)
    except FileExistsError as error:
        # Where a folder should be; the name itself is nobody else's.
        raise FileSystemError(str(error)) from error
    length = files.status(temporary).size
    if length != len(data):
        raise FileSystemError(f"the storage holds {length} of its {len(data)} bytes: is it full?")


def _rename(files: FileSystem, temporary: str, path: str) -> None:
    try:
        files.rename(temporary, path)
    except FileExistsError as error:
        raise FileExistsError(f"{path} is there already, and files are never overwritten") from error
    if scheme_of(path) == "file":
        sync_folder(posixpath.dirname(path))


def _text(error: Exception) -> str:
    """What happened, without the name of the temporary file where that is apart from it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
