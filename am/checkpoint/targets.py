"""Places of savepoints as requests name them: what is allowed, and how others are refused.

Owner: none (pure). A path is looked at before anything touches a file system.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.paths import scheme_of

#: Schemes of file systems that there are.
SCHEMES = ("file", "hdfs", "webhdfs")


class InvalidSavepointPathError(YarrowError):
    """A request names a place where no savepoint can be."""


def savepoint_target(requested: str | None, configured: str) -> str:
    """The folder below which a savepoint is written: as asked for, else as configured; of this host as a plain path."""
    if requested is not None and requested.strip():
        return _one_form(checked_path(requested.strip(), "target directory of the savepoint"))
    if configured:
        return _one_form(configured)
    raise InvalidSavepointPathError(
        "the request names no directory for the savepoint, and execution.checkpointing.savepoint-dir is not set:"
        " name one, or set the key."
    )


def _one_form(path: str) -> str:
    """`/data` for `file:///data` and `/data/`: what is printed does not depend on how it was asked for."""
    plain = path.removeprefix("file://") if path.startswith("file:///") else path
    return plain.rstrip("/") or "/"


def checked_path(path: str, what: str) -> str:
    """The path, when it may be used; InvalidSavepointPathError names what is wrong with it."""
    if any(ord(character) < 32 for character in path):
        raise InvalidSavepointPathError(f"{what}: {path!r} holds a control character")
    scheme = scheme_of(path)
    if scheme not in SCHEMES:
        raise InvalidSavepointPathError(
            f"{what}: {path!r} has the scheme {scheme!r}; use an absolute local path, file:///... or"
            " hdfs://host:port/..."
        )
    if "://" not in path and not path.startswith("/"):
        raise InvalidSavepointPathError(
            f"{what}: {path!r} is relative, and the JobManager's folder is not yours: name an absolute path"
        )
    if ".." in path.split("/"):
        raise InvalidSavepointPathError(f"{what}: {path!r} leads upwards by '..': name the place itself")
    return path
