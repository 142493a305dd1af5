"""The file system of a path, by the path's scheme.

Owner: any thread; no I/O. A further file system implements `FileSystem` and gets its scheme here.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import scheme_of
from yarrow.runtime.fs.file_system import FileSystem

__all__ = ["file_system_for"]


def file_system_for(path: str) -> FileSystem:
    """The file system of a path, by its scheme.

    Raises FileSystemError for a scheme without one.
    """
    scheme = scheme_of(path)
    if scheme == "file":
        from yarrow.runtime.fs.local import LocalFileSystem

        return LocalFileSystem()
    if scheme in ("hdfs", "webhdfs"):
        from yarrow.runtime.fs.webhdfs import WebHdfsFileSystem

        return WebHdfsFileSystem.for_path(path)
    raise FileSystemError(
        f"{path}: no file system for the scheme {scheme!r}; use a local path, file:///... or hdfs://host:port/..."
    )
