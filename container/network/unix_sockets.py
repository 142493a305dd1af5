"""Unix sockets with paths of any length.

Owner: the calling thread. The system takes at most 107 bytes of a path: a longer one is opened through the
descriptor of its folder.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator


def bind_unix(path: str) -> socket.socket:
    """A socket bound to `path`; it does not listen yet. Raises OSError."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(path) as short:
            server.bind(short)
    except OSError:
        server.close()
        raise
    return server


def connect_unix(path: str) -> socket.socket:
    """A socket connected to the server at `path`. Raises OSError."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(path) as short:
            client.connect(short)
    except OSError:
        client.close()
        raise
    return client


@contextlib.contextmanager
def _short_path(path: str) -> Iterator[str]:
    if len(path.encode()) <= 100:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
