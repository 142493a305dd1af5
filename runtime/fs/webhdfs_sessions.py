"""Sessions of WebHDFS, kept for the next borrower: a new session for each call would cost a connection each.

Owner: any thread; a session belongs to one borrower at a time, because an HTTP session is not made for several threads.
A forked child begins without any.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from yarrow.runtime.fs.webhdfs_credentials import Credentials, HdfsAuthority

#: Idle sessions kept for one HDFS.
_MOST_IDLE = 8
_CONNECT_AND_READ_SECONDS = (10.0, 120.0)


class SessionPool:
    """The sessions to the name nodes of one HDFS; `authority` gives their identity."""

    def __init__(self, addresses: tuple[str, ...], authority: HdfsAuthority) -> None:
        self._addresses = addresses
        self._authority = authority
        self._lock = threading.Lock()
        #: With what they show, which may be out of date.
        self._idle: list[tuple[Credentials, Any]] = []
        self._lent: dict[int, Credentials] = {}

    def take(self) -> Any:
        """A client of the package `hdfs` for the caller alone, until it is given back.

        Raises HadoopLoginError, FileSystemError where HDFS asks for Kerberos and nothing lets us in.
        """
        wanted = self._authority.credentials()
        client, outdated = None, []
        with self._lock:
            while client is None and self._idle:
                shown, kept = self._idle.pop()
                if shown == wanted:
                    client = kept
                else:
                    outdated.append(kept)
        for kept in outdated:
            _close(kept)
        if client is None:
            client = _client(";".join(self._addresses), wanted)
        with self._lock:
            self._lent[id(client)] = wanted
        return client

    def give_back(self, client: Any) -> None:
        """Ends the loan."""
        with self._lock:
            shown = self._lent.pop(id(client))
            if len(self._idle) < _MOST_IDLE:
                self._idle.append((shown, client))
                return
        _close(client)

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A loan for one request."""
        client = self.take()
        try:
            yield client
        finally:
            self.give_back(client)

    def close(self) -> None:
        """Close the idle sessions."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, client in idle:
            _close(client)


def _close(client: Any) -> None:
    """Closes a client's connections: `hdfs` 2.7 has no public way, and leaves them to the garbage collector."""
    client._session.close()


def _client(addresses: str, credentials: Credentials) -> Any:
    if credentials.token:
        from yarrow.runtime.fs.webhdfs_token_sessions import token_client

        return token_client(addresses, credentials.token, _CONNECT_AND_READ_SECONDS)
    import hdfs

    return hdfs.InsecureClient(addresses, user=credentials.user, timeout=_CONNECT_AND_READ_SECONDS)


#: By HDFS, its web addresses, and the user where a variable names one.
_pools: dict[tuple[str, tuple[str, ...], str | None], SessionPool] = {}
_lock = threading.Lock()


def pool_of(prefix: str, addresses: tuple[str, ...]) -> SessionPool:
    """The process's pool for an HDFS, `hdfs://...` without a path, and the web addresses of its name nodes."""
    key = (prefix, addresses, os.environ.get("HADOOP_USER_NAME"))
    with _lock:
        found = _pools.get(key)
        if found is None:
            found = _pools[key] = SessionPool(addresses, HdfsAuthority(prefix))
        return found


def close_sessions() -> None:
    """Close the sessions that nobody uses at the moment: for the orderly end of a process or test."""
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
