"""TcpRelay: stands between clients and one server, and lets through what a test wants: the network of fault tests.

Owner: one thread of its own; the methods may be called from any. A cut is silent, as a network's: nothing is closed and
nothing is said, bytes wait; connections that are made meanwhile wait as well. It knows the process behind a connection,
so that one process can be cut off while others are not. On loopback only.
"""

from __future__ import annotations

import contextlib
import enum
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_LOOK_SECONDS = 0.05
_CHUNK = 64 * 1024
#: Bytes that wait for a slow receiver before no more are read.
_MAX_WAITING = 1 << 20


class Direction(enum.Flag):
    """Which bytes are held back."""

    TO_SERVER = enum.auto()
    TO_CLIENT = enum.auto()
    BOTH = TO_SERVER | TO_CLIENT


_NOTHING: tuple[frozenset[int] | None, Direction] = (frozenset(), Direction(0))


@dataclass(eq=False, slots=True)
class _Way:
    """Bytes in one direction of one connection."""

    source: socket.socket
    sink: socket.socket
    direction: Direction
    #: The client's port.
    port: int
    #: Whose connection it is, once a cut has asked for it; looked for among all processes, it would hold up the rest.
    pid: int | None = None
    others: frozenset[int] = frozenset()
    waiting: bytearray = field(default_factory=bytearray)
    ended: bool = False


class TcpRelay:
    """Serves on a free port of `host` from `start` on, until `close`."""

    def __init__(self, server: tuple[str, int], host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = server
        self._listener = socket.create_server((host, port))
        self._trap: tuple[bytes, frozenset[int], Direction] | None = None
        #: Whose bytes are held back (None = everybody's), and which; replaced as a whole.
        self._cut: tuple[frozenset[int] | None, Direction] = _NOTHING
        self._ways: list[_Way] = []
        self._closed = threading.Event()
        self._resets: deque[threading.Event] = deque()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """host:port for clients."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    def cut(self, pids: Collection[int] | None = None, direction: Direction = Direction.BOTH) -> None:
        """From now on nothing passes of these processes' connections (None: of all)."""
        self._cut = (None if pids is None else frozenset(pids), direction)

    def cut_at(self, text: bytes, pids: Collection[int], direction: Direction) -> None:
        """Cuts when one of the processes sends bytes with this text; `is_cut` says when.

        These bytes are held back, or their answer is, as the direction says.
        """
        self._trap = (text, frozenset(pids), direction)

    @property
    def is_cut(self) -> bool:
        """Whether something is held back now."""
        return self._cut is not _NOTHING

    def heal(self) -> None:
        """Everything passes again, first what has waited."""
        self._trap, self._cut = None, _NOTHING

    def reset(self) -> None:
        """Ends the connections that there are, with what waits in them; a cut holds for those that come."""
        done = threading.Event()
        self._resets.append(done)
        done.wait(60.0)

    def connected_pids(self) -> set[int]:
        """Processes that have a connection."""
        ports, own = {way.port for way in list(self._ways)}, self._listener.getsockname()[1]
        found = [one for one in psutil.net_connections("tcp") if one.raddr and one.raddr.port == own]
        return {one.pid for one in found if one.laddr.port in ports and one.pid is not None}

    def close(self) -> None:
        """Ends all connections."""
        self._closed.set()
        self._thread.join(10)

    def __enter__(self) -> TcpRelay:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # The thread.

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._turn()
        finally:
            self._listener.close()
            for way in self._ways:
                way.source.close()

    def _turn(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            events: dict[socket.socket, int] = {}
            for way in self._ways:
                if not self._is_cut(way):
                    if not way.ended and len(way.waiting) < _MAX_WAITING:
                        events[way.source] = events.get(way.source, 0) | selectors.EVENT_READ
                    if way.waiting:
                        events[way.sink] = events.get(way.sink, 0) | selectors.EVENT_WRITE
            for connection, mask in events.items():
                selector.register(connection, mask)
            ready = {key.fileobj: mask for key, mask in selector.select(_LOOK_SECONDS)}
        for way in list(self._ways):
            if ready.get(way.source, 0) & selectors.EVENT_READ and not self._is_cut(way):
                self._receive(way)
            if way.waiting and not self._is_cut(way):
                self._send(way)
        self._drop_ended()
        while self._resets:
            for way in self._ways:
                way.source.close()
            self._ways.clear()
            self._resets.popleft().set()
        if self._listener in ready:
            self._accept()

    def _is_cut(self, way: _Way) -> bool:
        pids, direction = self._cut
        return bool(way.direction & direction) and (pids is None or self._is_of(way, pids))

    def _is_of(self, way: _Way, pids: frozenset[int]) -> bool:
        """Whether one of the processes is the connection's client."""
        if way.pid is None and (unknown := pids - way.others):
            inode = _inode_of(way.port, self._listener.getsockname()[1])
            way.pid = next((pid for pid in unknown if _has_open(pid, inode)), None)
            way.others |= unknown
        return way.pid in pids

    def _accept(self) -> None:
        client, peer = self._listener.accept()
        try:
            server = socket.create_connection(self._server, 2.0)
        except OSError:
            client.close()
            return
        for connection in (client, server):
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ways.append(_Way(client, server, Direction.TO_SERVER, peer[1]))
        self._ways.append(_Way(server, client, Direction.TO_CLIENT, peer[1]))

    def _receive(self, way: _Way) -> None:
        try:
            read = way.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            read = b""
        way.waiting += read
        way.ended = not read
        trap = self._trap
        if trap is not None and way.direction is Direction.TO_SERVER:
            text, pids, direction = trap
            if text in way.waiting and self._is_of(way, pids):
                self._trap, self._cut = None, (pids, direction)

    @staticmethod
    def _send(way: _Way) -> None:
        try:
            sent = way.sink.send(way.waiting)
        except BlockingIOError:
            return
        except OSError:
            way.waiting.clear()
            way.ended = True
            return
        del way.waiting[:sent]

    def _drop_ended(self) -> None:
        """A connection that one side has ended, and whose last bytes have passed, is ended at the other."""
        for way in [way for way in self._ways if way.ended and not way.waiting and not self._is_cut(way)]:
            for one in [one for one in self._ways if one.source in (way.source, way.sink)]:
                self._ways.remove(one)
            for connection in (way.source, way.sink):
                with contextlib.suppress(OSError):
                    connection.close()


def _inode_of(port: int, to_port: int) -> str:
    """The inode of the connection between two ports of this machine, at the first; "" where there is none."""
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(f":{port:04X}") and fields[2].endswith(f":{to_port:04X}"):
                return fields[9]
    return ""


def _has_open(pid: int, inode: str) -> bool:
    try:
        entries = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for entry in entries:
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{entry}") == f"socket:[{inode}]":
                return True
    return False
