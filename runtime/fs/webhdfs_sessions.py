"""Sessions of WebHDFS, kept for the next who asks: making one for each call would cost a connection each.

Owner: any thread; a session belongs to one borrower at a time, because an HTTP session is not made for several threads.
A forked child begins without any.
"""

from __future__ import annotations

import getpass
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Idle sessions kept for one HDFS.
_MOST_IDLE = 8
_CONNECT_AND_READ_SECONDS = (10.0, 120.0)


class SessionPool:
    """Of the name nodes of one HDFS, and one user."""

    def __init__(self, addresses: tuple[str, ...], user: str) -> None:
        self._addresses = addresses
        self._user = user
        self._lock = threading.Lock()
        self._idle: list[Any] = []

    def take(self) -> Any:
        """A client of the package `hdfs` for the caller alone, until it is given back."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        import hdfs

        return hdfs.InsecureClient(
            ";".join(self._addresses), user=self._user, timeout=_CONNECT_AND_READ_SECONDS
        )

    def give_back(self, client: Any) -> None:
        """Ends the loan."""
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(client)
                return
        client._session.close()

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A loan for one request."""
        client = self.take()
        try:
            yield client
        finally:
            self.give_back(client)

    def close(self) -> None:
        """Closes the idle ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for client in idle:
            client._session.close()


_pools: dict[tuple[tuple[str, ...], str], SessionPool] = {}
_lock = threading.Lock()


def pool_of(addresses: tuple[str, ...]) -> SessionPool:
    """The process's pool for these name nodes."""
    user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    with _lock:
        found = _pools.get((addresses, user))
        if found is None:
            found = _pools[addresses, user] = SessionPool(addresses, user)
        return found


def close_sessions() -> None:
    """Closes what nobody uses at the moment: for the orderly end of a process or test."""
    with _lock:
        pools = tuple(_pools.values())
        _pools.clear()
    for pool in pools:
        pool.close()


def _begin_anew() -> None:
    """In a forked child: the parent's connections are the parent's, and so may be a held lock."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_begin_anew)
