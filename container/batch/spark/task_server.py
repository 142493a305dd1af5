"""TaskServer: the driver's end of the connections that tasks of stages open; the results wait in the last one.

Owner: one thread accepts, and one for each connection reads and calls the listener. A listener that blocks holds up
its task alone, which is the flow control of results. Must not judge what it hears.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from pathlib import Path
from typing import Protocol

import msgspec

from yarrow.container.batch.spark.shared_job import SOCKET
from yarrow.container.batch.spark.task_messages import (
    AttemptEnded,
    AttemptFailed,
    AttemptProgress,
    AttemptStarted,
    FromTaskMessage,
    ResultChunk,
    ResultsEnded,
    ResultsStarted,
)
from yarrow.container.network.unix_sockets import bind_unix
from yarrow.container.protocol.errors import FrameError
from yarrow.container.protocol.framing import FramedSocket

_log = logging.getLogger(__name__)
_BACKLOG = 256
_DECODER: msgspec.msgpack.Decoder[FromTaskMessage] = msgspec.msgpack.Decoder(FromTaskMessage)


class ResultsListener(Protocol):
    """Hears the results that one connection brings."""

    def take(self, chunk: ResultChunk) -> None:
        """The next result; blocks while there is no room."""
        ...

    def end(self) -> None:
        """All results have come."""
        ...


class AttemptListener(Protocol):
    """Hears of the tasks of one run; several threads call it."""

    def attempt_started(self, started: AttemptStarted) -> None: ...

    def attempt_progressed(
        self, started: AttemptStarted, progress: AttemptProgress | AttemptEnded
    ) -> None: ...

    def attempt_failed(self, started: AttemptStarted, failed: AttemptFailed) -> None: ...

    def attempt_lost(self, started: AttemptStarted) -> None:
        """Its process has ended without a word, or was ended."""
        ...

    def results_started(self, started: ResultsStarted) -> ResultsListener:
        """Results come from their beginning, perhaps once more, or twice at a time."""
        ...


class TaskServer:
    """Serves the tasks of one run."""

    def __init__(self, folder: Path, listener: AttemptListener) -> None:
        self._listener = listener
        self._path = folder / SOCKET
        self._server = bind_unix(str(self._path))
        os.chmod(self._path, 0o600)
        self._server.listen(_BACKLOG)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Begins to accept."""
        threading.Thread(target=self._accept, name="task-server", daemon=True).start()

    def close(self) -> None:
        """Ends all connections."""
        with self._lock:
            self._closed = True
            connections = list(self._open)
        _shut(self._server)
        self._server.close()
        for connection in connections:
            _shut(connection)
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                if self._closed:
                    connection.close()
                    return
                self._open.add(connection)
            threading.Thread(target=self._read, args=(connection,), name="task", daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        frames = FramedSocket(connection, _DECODER)
        try:
            self._serve(frames)
        except (FrameError, OSError) as error:
            _log.info("a task's connection ended: %s", error)
        finally:
            with self._lock:
                self._open.discard(connection)
            frames.close()

    def _serve(self, frames: FramedSocket[FromTaskMessage]) -> None:
        first = frames.receive()
        if isinstance(first, ResultsStarted):
            results = self._listener.results_started(first)
            while isinstance(message := frames.receive(), ResultChunk):
                results.take(message)
            if isinstance(message, ResultsEnded):
                results.end()
        elif isinstance(first, AttemptStarted):
            self._listener.attempt_started(first)
            self._follow(first, frames)
        elif isinstance(first, AttemptFailed):
            self._listener.attempt_failed(_UNKNOWN, first)

    def _follow(self, started: AttemptStarted, frames: FramedSocket[FromTaskMessage]) -> None:
        told = False
        try:
            while (message := frames.receive()) is not None:
                if isinstance(message, AttemptFailed):
                    told = True
                    self._listener.attempt_failed(started, message)
                elif isinstance(message, AttemptProgress | AttemptEnded):
                    told = isinstance(message, AttemptEnded)
                    self._listener.attempt_progressed(started, message)
        finally:
            if not told:
                self._listener.attempt_lost(started)


#: A task that failed before it knew its place.
_UNKNOWN = AttemptStarted(run=-1, stage=-1, subtask=-1, attempt=-1, pid=0)


def _shut(sock: socket.socket) -> None:
    """Wakes up whoever waits in it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
