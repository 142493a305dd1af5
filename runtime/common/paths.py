"""Paths as text: schemes and parts. A path is a local one, or a URL with a scheme.

Owner: any thread; pure. Nothing here touches a file system.
"""

from __future__ import annotations

import posixpath
import re
from urllib.parse import urlsplit

from yarrow.runtime.common.errors import FileSystemError

__all__ = ["SCHEME", "is_hidden", "join", "scheme_of", "with_default_scheme"]

#: The beginning of a path that names its scheme and a host.
SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
#: Flink also writes local files as file:/path.
_NAMES_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")


def scheme_of(path: str) -> str:
    """The scheme of a path in lower case; `file` for a plain path."""
    found = SCHEME.match(path)
    return found.group(1).lower() if found else "file"


def with_default_scheme(path: str, default: str | None) -> str:
    """`path` unchanged if it has a scheme; a plain path gets the file system `default`.

    That is Flink's fs.default-scheme (`hdfs://host:port/`, None = local).

    Raises FileSystemError for a relative path, which has a meaning only in a local process.
    """
    if default is None or scheme_of(default) == "file" or _NAMES_SCHEME.match(path):
        return path
    if not path.startswith("/"):
        raise FileSystemError(
            f"{path}: a relative path, while fs.default-scheme is {default}: write the whole path, such as"
            f" {default.rstrip('/')}/{path}, or file:///... for a local one"
        )
    found = urlsplit(default)
    return f"{found.scheme}://{found.netloc}{path}"


def join(base: str, *parts: str) -> str:
    """`base` with further parts, whatever its scheme; empty parts are left out."""
    return posixpath.join(base, *[part for part in parts if part])


def is_hidden(name: str) -> bool:
    """Whether a name begins with a dot or an underscore: such files belong to running writers, not to readers."""
    return name.startswith((".", "_"))
