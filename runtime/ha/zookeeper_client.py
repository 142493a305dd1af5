"""ZooKeeperClient: one session, its calls with limits of time, its events, and our errors in place of kazoo's.

Owner: any thread; calls block. Listeners are called on the client's own thread and must only note what happened. A
lost session is followed by a new one by itself. kazoo's types do not leave runtime/ha.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.config.options import high_availability as options
from yarrow.runtime.ha.outage import Outage, OutageFilter, filtered_logger
from yarrow.runtime.ha.records import RecordsError
from yarrow.runtime.ha.settings import ZooKeeperSettings

T = TypeVar("T")

__all__ = [
    "BROKEN",
    "BadVersionError",
    "NoNodeError",
    "NodeExistsError",
    "NotEmptyError",
    "SessionEvent",
    "ZooKeeperClient",
    "ZooKeeperUnreachableError",
]
#: Errors of a call whose outcome is unknown.
BROKEN = (
    ConnectionLoss,
    ConnectionClosedError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    KazooTimeoutError,
)
#: Part of the session timeout for which a server may be silent before another is tried.
_SILENCE = 0.4
#: Seconds for which a server's first word is waited for: as part of the session timeout, for each server; its bounds.
_HANDSHAKE, _SHORTEST_HANDSHAKE, _LONGEST_HANDSHAKE = 1 / 6, 1.0, 5.0
#: How often a removal looks at a node again because somebody made another below it.
_COLLISIONS = 20
#: Longest pause between two attempts to reach a server.
_RECONNECT_PAUSE = 1.0
#: Seconds that the end of a session is waited for.
_FAREWELL = 3.0
_log = logging.getLogger(__name__)


class ZooKeeperUnreachableError(RecordsError):
    """No server of the quorum answered in time, or it refused this client."""


class SessionEvent(StrEnum):
    """An event of a session."""

    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"
    LOST = "LOST"


_EVENTS = {
    KazooState.CONNECTED: SessionEvent.CONNECTED,
    KazooState.SUSPENDED: SessionEvent.SUSPENDED,
    KazooState.LOST: SessionEvent.LOST,
}


def handshake_limit(settings: ZooKeeperSettings) -> float:
    """Seconds for the first answer of one server: the rest of a session suffices for all servers."""
    servers = settings.quorum.count(",") + 1
    wanted = settings.session_timeout * _HANDSHAKE / servers
    return min(max(wanted, _SHORTEST_HANDSHAKE), _LONGEST_HANDSHAKE)


class ZooKeeperClient:
    """A session whose calls go below the node of one cluster id; paths are relative to it."""

    def __init__(self, settings: ZooKeeperSettings, secret: bytes = b"", clock: Clock | None = None) -> None:
        """`secret`: of the cluster; needed where only the creator may read and write."""
        if settings.creator_only and not secret:
            raise ZooKeeperUnreachableError(
                f"{options.ZOOKEEPER_ACL.key}: creator needs the secret of the cluster, which this process does not"
                " have: name its directory in security.cluster.directory, or set the option to open."
            )
        self.settings = settings
        self.clock = clock or SystemClock()
        self._public = OPEN_ACL_UNSAFE
        self._private = OPEN_ACL_UNSAFE
        auth: list[tuple[str, str]] = []
        if settings.creator_only:
            # Everybody may read the leaders; only members of the cluster see and change the rest.
            self._public, self._private = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE], CREATOR_ALL_ACL
            auth = [("digest", f"yarrow:{hashlib.sha256(b'zookeeper' + secret).hexdigest()}")]
        self._outage = Outage(settings.quorum)
        said = OutageFilter(self._outage, self.clock.monotonic, _log.warning)
        self._client = KazooClient(
            logger=filtered_logger("kazoo.client", said),
            hosts=settings.quorum,
            timeout=settings.session_timeout,
            auth_data=auth,
            connection_retry={
                "max_tries": -1,
                "delay": 0.1,
                "max_delay": min(_RECONNECT_PAUSE, max(settings.retry_wait, 0.1)),
            },
        )
        self._session_timeout = 0.0
        self._stopped = False
        self._watch_over_connecting()
        self._connected = threading.Event()
        self._client.add_listener(self._note_connected)

    def _watch_over_connecting(self) -> None:
        """Learn how long the server keeps a session, which kazoo does not report, and bound three waits.

        A server may take a connection and say nothing: it starts, hangs, or is cut off from the others. It is
        given up while the session still lives, and another is tried.

        kazoo 2.11 does not report the timeout that the server has granted, and takes no limit for the
        handshake. So two private methods of its connection are wrapped;
        tests/unit/runtime/test_private_members.py pins them.
        """
        connection, handler = self._client._connection, self._client.handler
        connect, invoke, open_socket = connection._connect, connection._invoke, handler.create_connection
        limit = handshake_limit(self.settings)

        def learning(*arguments: Any) -> tuple[float, float]:
            read_timeout, connect_timeout = connect(*arguments)
            self._session_timeout = read_timeout * 1.5 / 1000
            return min(read_timeout, self._session_timeout * 1000 * _SILENCE), connect_timeout

        def shaking_hands(timeout: float, *arguments: Any, **named: Any) -> Any:
            return invoke(min(timeout, limit), *arguments, **named)

        def opening(*arguments: Any, **named: Any) -> Any:
            return open_socket(*arguments, **{**named, "timeout": min(named.get("timeout", limit), limit)})

        connection._connect, connection._invoke = learning, shaking_hands
        handler.create_connection = opening

    @property
    def session_timeout(self) -> float:
        """Seconds for which the server keeps a silent session; the requested number until it has answered."""
        return self._session_timeout or min(self.settings.session_timeout, 1.0)

    @property
    def session(self) -> tuple[int, bytes] | None:
        """Id and password of the session; None without one."""
        found: tuple[int, bytes] | None = self._client.client_id
        return found

    @property
    def is_connected(self) -> bool:
        """Whether calls are sent at once."""
        return bool(self._client.connected)

    def start(self) -> None:
        """Connects; ZooKeeperUnreachableError when nobody answers within the connection timeout."""
        limit = self.settings.connection_timeout
        connected = self._client.start_async()
        connected.wait(limit)
        if not self._client.connected:
            self.stop()
            raise ZooKeeperUnreachableError(
                f"no ZooKeeper server of {self.settings.quorum} ({options.ZOOKEEPER_QUORUM.key}) answered within"
                f" {limit:g} s ({options.ZOOKEEPER_CONNECTION_TIMEOUT.key}): check the addresses, and that a majority"
                " of the servers runs."
            )

    def stop(self) -> None:
        """Ends the session. A second call does nothing.

        A silent server is waited for only a moment, so that it delays nobody. The session then ends by its
        timeout, as if this process had died.
        """
        self._stopped = True
        leaving = threading.Thread(target=self._leave, name="zookeeper-farewell", daemon=True)
        leaving.start()
        leaving.join(_FAREWELL)
        if leaving.is_alive():
            _log.info("ZooKeeper does not answer: the session ends by its timeout")

    def _leave(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            _log.info("the ZooKeeper session was not closed: %s", error)

    def listen(self, listener: Callable[[SessionEvent], None]) -> None:
        """Tells of each event, on the client's thread."""

        def told(state: str) -> None:
            listener(_EVENTS[state])

        self._client.add_listener(told)

    def _note_connected(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            if sentence := self._outage.reached(self.clock.monotonic()):
                _log.info("%s", sentence)
            self._connected.set()
        else:
            self._connected.clear()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called: nothing comes any more."""
        return self._stopped

    def wait_until_connected(self, seconds: float) -> bool:
        """False when there is no connection after that time."""
        return self._connected.wait(seconds)

    def path(self, relative: str) -> str:
        """The absolute path of a node."""
        return f"{self.settings.root}/{relative}" if relative else self.settings.root

    # One call each, not repeated. Beside BROKEN they raise kazoo's NoNodeError and the like.

    def get(self, path: str, timeout: float) -> tuple[bytes, int]:
        """Content and version."""
        data, stat = self._client.get_async(self.path(path)).get(timeout=timeout)
        return data or b"", stat.version

    def exists(self, path: str, timeout: float, watch: Callable[[object], None] | None = None) -> bool:
        """Whether there is a node; `watch` is called once, at its next change."""
        return self._client.exists_async(self.path(path), watch=watch).get(timeout=timeout) is not None

    def children(self, path: str, timeout: float) -> list[str]:
        """Names below a node."""
        found: list[str] = self._client.get_children_async(self.path(path)).get(timeout=timeout)
        return found

    def create(
        self,
        path: str,
        data: bytes,
        timeout: float,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        public: bool = False,
    ) -> str:
        """Make a node below an existing one; returns its name in full, relative."""
        acl = self._public if public else self._private
        created: str = self._client.create_async(
            self.path(path), data, acl=acl, ephemeral=ephemeral, sequence=sequence
        ).get(timeout=timeout)
        return created[len(self.settings.root) + 1 :]

    def delete(self, path: str, timeout: float) -> None:
        """Removes a node without any below."""
        self._client.delete_async(self.path(path)).get(timeout=timeout)

    def ensure(self, path: str, timeout: float, *, public: bool = False) -> None:
        """Makes a node and those above it, where they are missing."""
        acl = self._public if public else self._private
        absolute = self.path(path)
        # Nodes above the cluster id are shared by clusters.
        root = self.settings.root
        for end in [index for index, letter in enumerate(absolute) if letter == "/" and index] + [
            len(absolute)
        ]:
            part = absolute[:end]
            if self._client.exists_async(part).get(timeout=timeout) is not None:
                # Not tried: a process without the right to create below the parent is refused, whether the
                # node exists or not.
                continue
            access = acl if part.startswith(f"{root}/") else OPEN_ACL_UNSAFE
            with contextlib.suppress(NodeExistsError):
                self._client.create_async(part, b"", acl=access).get(timeout=timeout)

    def transaction(self) -> ZooKeeperTransaction:
        """An empty one."""
        return ZooKeeperTransaction(self, self._client.transaction(), self._public, self._private)

    def watch_data(self, path: str, listener: Callable[[bytes | None], bool]) -> None:
        """Calls `listener` with the content now and at each change, on the client's thread, until it answers False."""

        def changed(data: bytes | None, stat: object) -> bool:
            return listener(data if stat is not None else None)

        self._client.DataWatch(self.path(path), changed)

    def delete_all(self, path: str = "") -> None:
        """Remove a node with all below it; a missing node is no error. RecordsError."""

        def once(timeout: float) -> None:
            self._delete_below(path, timeout)

        self.repeated(once, f"removing {self.path(path)}")

    def _delete_below(self, path: str, timeout: float) -> None:
        for left in reversed(range(_COLLISIONS)):
            try:
                for name in self.children(path, timeout):
                    self._delete_below(f"{path}/{name}" if path else name, timeout)
                self.delete(path, timeout)
                return
            except NoNodeError:
                return
            except NotEmptyError:
                # Somebody has made one meanwhile.
                if not left:
                    raise

    def delete_parents(self) -> None:
        """Removes the nodes above the cluster id as far as they are empty. RecordsError."""

        def once(timeout: float) -> None:
            parent = self.settings.root.rpartition("/")[0]
            while parent:
                try:
                    self._client.delete_async(parent).get(timeout=timeout)
                except (NotEmptyError, NoAuthError):
                    return
                except NoNodeError:
                    pass  # By the call before, of which the answer got lost.
                parent = parent.rpartition("/")[0]

        self.repeated(once, f"removing what is empty above {self.settings.root}")

    def repeated(self, call: Callable[[float], T], what: str) -> T:
        """Repeat an idempotent call within the limits of the settings; `call` gets one attempt's timeout.

        ZooKeeperUnreachableError when all attempts failed, RecordsError for what ZooKeeper refuses.
        """
        settings = self.settings
        cause: BaseException | None = None
        for _ in range(settings.max_retries + 1):
            if not self.wait_until_connected(max(settings.retry_wait, 0.1)):
                continue
            try:
                return call(max(self.session_timeout, 1.0))
            except BROKEN as error:
                cause = error
            except KazooException as error:
                raise RecordsError(f"{what} was refused by ZooKeeper: {refusal(error)}") from error
        raise ZooKeeperUnreachableError(self.unreachable(what, settings.max_retries + 1)) from cause

    def unreachable(self, what: str, attempts: int) -> str:
        """The sentence about a call that did not get through."""
        return (
            f"ZooKeeper at {self.settings.quorum} ({options.ZOOKEEPER_QUORUM.key}) cannot be reached: {what} was tried"
            f" {attempts} times"
        )


class ZooKeeperTransaction:
    """Changes that happen together or not at all."""

    def __init__(
        self, client: ZooKeeperClient, transaction: Any, public: list[Any], private: list[Any]
    ) -> None:
        self._client = client
        self._transaction = transaction
        self._public, self._private = public, private

    def check(self, path: str, version: int) -> None:
        """Require that the node has this version; -1 = only that it exists."""
        self._transaction.check(self._client.path(path), version)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, public: bool = False) -> None:
        """Makes a node."""
        acl = self._public if public else self._private
        self._transaction.create(self._client.path(path), data, acl=acl, ephemeral=ephemeral)

    def set(self, path: str, data: bytes, version: int = -1) -> None:
        """Replaces the content of a node that has this version, -1 = any."""
        self._transaction.set_data(self._client.path(path), data, version)

    def delete(self, path: str) -> None:
        """Removes a node without any below."""
        self._transaction.delete(self._client.path(path), -1)

    def commit(self, timeout: float) -> list[object]:
        """Return the result of each part; raises the error of the part that failed, or BROKEN."""
        results: list[object] = self._transaction.commit_async().get(timeout=timeout)
        for result in results:
            # The others are rolled back, and say so by errors of their own.
            if isinstance(result, Exception) and type(result).__name__ not in (
                "RolledBackError",
                "RuntimeInconsistency",
            ):
                raise result
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results


def refusal(error: KazooException) -> str:
    """The refusal of ZooKeeper, in words."""
    if isinstance(error, NoAuthError | AuthFailedError):
        return (
            "this process may not access the nodes, which belong to a cluster with another secret: see"
            f" {options.ZOOKEEPER_ACL.key}"
        )
    return type(error).__name__
