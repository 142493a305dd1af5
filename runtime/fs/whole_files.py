"""Files that readers see whole or not at all: written under a temporary name, made durable, then renamed.

Owner: any thread; blocking. `write_whole` makes new files on any storage and never overwrites; `replace_whole` puts a
small local file in the place of an older one. What a killed writer leaves has a hidden name that begins with
TEMPORARY_PREFIX: whoever owns the folder may remove it.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.common.paths import join, scheme_of
from yarrow.runtime.fs.file_system import FileSystem
from yarrow.runtime.fs.local import sync_folder
from yarrow.runtime.fs.registry import file_system_for

#: The beginning of the names of temporary files.
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


def replace_whole(
    path: Path, data: bytes, mode: int = 0o600, before_rename: Callable[[], None] = lambda: None
) -> None:
    """Replace the file at `path` by a local file of `data`; when this returns the new file is durable.

    Readers, and a process that starts after a crash, see the old bytes or the new ones. The file has exactly the
    permissions `mode`. A symbolic link is replaced, not followed. `before_rename` is called when all bytes are durable.
    Raises OSError that names `path`; the old file is as it was then, and nothing of the new one is left.
    """
    with replacing(path, mode, before_rename) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(
    path: Path, mode: int = 0o600, before_rename: Callable[[], None] = lambda: None
) -> Iterator[BinaryIO]:
    """Yield a file whose bytes replace the file at `path` when the block ends; see `replace_whole`.

    Where the block raises, the old file stays. `name` of the yielded file is the path of what has been written so far.
    """
    temporary = Path(temporary_name(str(path), RandomIdFactory().hex_id()))
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(temporary, "wb", opener=lambda name, _: os.open(name, flags, 0o600)) as file:
            # Not by `open`, which applies the umask of the process.
            os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        before_rename()
        os.replace(temporary, path)
        sync_folder(str(path.parent))
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename, error.filename2 = str(path), None
        raise


@contextlib.contextmanager
def _cleaned_up(files: FileSystem, temporary: str, path: str) -> Iterator[None]:
    """A context whose errors name `path`, and that removes the temporary file."""
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
        raise FileSystemError(
            f"the storage holds {length} of {len(data)} bytes: check whether the storage is full"
        )


def _rename(files: FileSystem, temporary: str, path: str) -> None:
    try:
        files.rename(temporary, path)
    except FileExistsError as error:
        raise FileExistsError(f"{path} exists already, and files are never overwritten") from error
    if scheme_of(path) == "file":
        sync_folder(posixpath.dirname(path))


def _text(error: Exception) -> str:
    """The text of an error, without the name of the temporary file if that is apart from it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
