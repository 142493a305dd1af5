"""Targets of savepoints: which paths a request may name, and how others are refused.

Owner: none (pure). A path is checked before any file system is touched.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.paths import scheme_of

#: Schemes of the available file systems.
SCHEMES = ("file", "hdfs", "webhdfs")


class InvalidSavepointPathError(YarrowError):
    """A request names a target where no savepoint can be."""


def savepoint_target(requested: str | None, configured: str) -> str:
    """The parent folder of a savepoint: the requested one, else the configured one; a local one as a plain path."""
    if requested is not None and requested.strip():
        return _one_form(checked_path(requested.strip(), "target directory of the savepoint"))
    if configured:
        return _one_form(configured)
    raise InvalidSavepointPathError(
        "the request names no directory for the savepoint, and execution.checkpointing.savepoint-dir "
        "is not set: name a directory, or set the key."
    )


def _one_form(path: str) -> str:
    """`/data` for `file:///data` and `/data/`: the printed path does not depend on how it was requested."""
    plain = path.removeprefix("file://") if path.startswith("file:///") else path
    return plain.rstrip("/") or "/"


def checked_path(path: str, what: str) -> str:
    """Returns the path if it may be used. Raises InvalidSavepointPathError, which names the fault."""
    if any(ord(character) < 32 for character in path):
        raise InvalidSavepointPathError(
            f"{what}: {path!r} holds a control character: name a path without control characters"
        )
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
        raise InvalidSavepointPathError(
            f"{what}: {path!r} leads upwards by '..': write the path without '..'"
        )
    return path
