"""Files of the machine itself, behind the FileSystem interface.

Owner: any thread. `rename` links the new name and then removes the old one, because a plain rename would
replace its target. `close` of a created file waits until its bytes are on the disk.
"""

from __future__ import annotations

import errno
import os
import shutil
from typing import BinaryIO, cast
from urllib.parse import unquote

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.fs.file_system import FileStatus

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


class LocalFileSystem:
    """Plain paths and `file://` URLs."""

    def status(self, path: str) -> FileStatus:
        """The status of `path`."""
        found = os.stat(plain_path(path))
        is_dir = os.path.isdir(plain_path(path))
        size = 0 if is_dir else found.st_size
        return FileStatus(path, is_dir, size, found.st_mtime_ns // 1_000_000, found.st_atime_ns // 1_000_000)

    def list(self, path: str) -> list[FileStatus]:
        """The entries of a folder, by name; dangling links are left out."""
        base = path.rstrip("/") or "/"
        found = []
        for name in sorted(os.listdir(plain_path(path))):
            try:
                found.append(self.status(os.path.join(base, name) if path != "." else name))
            except FileNotFoundError:
                continue
        return found

    def open(self, path: str) -> BinaryIO:
        """A seekable stream of the file's bytes."""
        return open(plain_path(path), "rb")

    def create(self, path: str, replication: int = 0) -> BinaryIO:
        """A stream to a new file; its folders are made when missing. There is one copy."""
        plain = plain_path(path)
        os.makedirs(os.path.dirname(plain) or ".", exist_ok=True)
        return cast(BinaryIO, _DurableFile(plain, "xb"))

    def rename(self, source: str, target: str) -> None:
        """Gives a file another name; FileExistsError when the target is there."""
        old, new = plain_path(source), plain_path(target)
        try:
            os.link(old, new)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A file system without hard links: the check and the rename are two steps, but names are used
            # once.
            if os.path.lexists(new):
                raise FileExistsError(errno.EEXIST, "rename does not replace its target", new) from None
            os.rename(old, new)
        else:
            os.unlink(old)

    def delete(self, path: str, recursive: bool = False) -> bool:
        """Remove the file or folder at `path`; False if there was none."""
        plain = plain_path(path)
        try:
            if not os.path.isdir(plain) or os.path.islink(plain):
                os.unlink(plain)
            elif recursive:
                shutil.rmtree(plain)
            else:
                os.rmdir(plain)
        except FileNotFoundError:
            return False
        return True

    def make_dirs(self, path: str) -> None:
        """Makes a folder and those above it."""
        os.makedirs(plain_path(path), exist_ok=True)

    def touch(self, path: str, accessed_ms: int) -> None:
        """Sets the time of the last use."""
        plain = plain_path(path)
        os.utime(plain, ns=(accessed_ms * 1_000_000, os.stat(plain).st_mtime_ns))


def sync_folder(path: str) -> None:
    """Waits until the names in a folder are on the disk."""
    descriptor = os.open(plain_path(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _DurableFile:
    """A binary file whose `close` waits for the disk; a second `close` does nothing."""

    def __init__(self, path: str, mode: str) -> None:
        self._file = open(path, mode)  # noqa: SIM115

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def __enter__(self) -> _DurableFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def plain_path(path: str) -> str:
    """Return the path that the operating system takes. Raises FileSystemError for a URL of another host."""
    if not path.startswith("file:"):
        return path
    rest = path.removeprefix("file:")
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise FileSystemError(f"{path}: a file:// URL names this machine only; write file:///{tail}")
        rest = slash + tail
    return unquote(rest)
