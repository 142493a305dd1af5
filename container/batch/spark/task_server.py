"""TaskServer: the driver's end of the connections that tasks of stages open; the results wait in the last one.

Owner: one thread accepts, and one for each connection reads and calls the listener. A listener that blocks holds up
its task alone, which is the flow control of results. Must not judge what it hears.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
import threading
from pathlib import Path
from typing import Protocol

import msgspec

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.driver.newest_tokens import NewestTokens
from yarrow.container.batch.driver.shared_job import SOCKET, SharedJob
from yarrow.container.batch.driver.task_messages import (
    AttemptAt,
    AttemptEnded,
    AttemptFailed,
    AttemptKeyGroups,
    AttemptProgress,
    AttemptStarted,
    FilePart,
    FileWanted,
    FromTaskMessage,
    JobWanted,
    ResultChunk,
    ResultsEnded,
    ResultsStarted,
    SentJob,
    SharesWanted,
    TaskShares,
    TokensSent,
    TokensWanted,
)
from yarrow.container.batch.spark.tasks.driver_address import (
    DriverAddress,
    DriverElsewhere,
    DriverOnThisHost,
    tls_context,
)
from yarrow.container.network.data_sockets import set_tcp_options
from yarrow.container.network.unix_sockets import bind_unix
from yarrow.container.protocol.errors import FrameError
from yarrow.container.protocol.framing import FramedSocket
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.rpc.roles import Role
from yarrow.runtime.security.certificates import CertificateAuthority

_log = logging.getLogger(__name__)
_BACKLOG = 256
#: Seconds in which the other end of a connection must prove itself.
_HANDSHAKE_SECONDS = 30.0
#: Bytes of a shipped file in one message.
_PART_BYTES = 4 << 20
#: Seconds between two looks whether the run or the process has ended, while there are no newer tokens.
_TOKENS_SECONDS = 1.0
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

    def key_groups_read(self, started: AttemptStarted, groups: AttemptKeyGroups) -> None: ...

    def shares_of(self, started: AttemptStarted) -> dict[OperatorID, RateLimit]:
        """The attempt's present shares of rate limits, by operator."""
        ...

    def attempt_failed(self, started: AttemptStarted, failed: AttemptFailed) -> None: ...

    def attempt_lost(self, started: AttemptStarted, last: AttemptAt | None) -> None:
        """Its process has died, or was ended; `last` is what it has told last of its doing."""
        ...

    def results_started(self, started: ResultsStarted) -> ResultsListener:
        """Results come from their beginning, perhaps once more, or twice at a time."""
        ...


class TaskEntrance(Protocol):
    """Where tasks of a run come in."""

    server: socket.socket
    #: For the tasks.
    address: DriverAddress

    def admit(self, connection: socket.socket) -> socket.socket:
        """The connection once its other end has proved itself; blocks. Raises OSError."""
        ...

    def send_job(self, frames: FramedSocket[FromTaskMessage]) -> None:
        """Answers a task that wants the job. Raises OSError and FrameError."""
        ...

    def close(self) -> None:
        """Closes the server."""
        ...


class EntranceOnThisHost:
    """A Unix socket in the run's folder, beside the job."""

    def __init__(self, folder: Path, job: SharedJob) -> None:
        job.write(folder)
        self._path = folder / SOCKET
        self.server = bind_unix(str(self._path))
        os.chmod(self._path, 0o600)
        self.server.listen(_BACKLOG)
        self.address: DriverAddress = DriverOnThisHost(str(folder))

    def admit(self, connection: socket.socket) -> socket.socket:
        return connection

    def send_job(self, frames: FramedSocket[FromTaskMessage]) -> None:
        raise FrameError("tasks of this host read the job from its folder")

    def close(self) -> None:
        self.server.close()
        self._path.unlink(missing_ok=True)


class EntranceForOtherHosts:
    """A TCP port with mutual TLS. The run's own authority signs one certificate for the driver, one for its tasks."""

    def __init__(self, host: str, bind_host: str, job: SharedJob, clock: Clock) -> None:
        """`host`: the name by which executors reach this one; `bind_host`: the address to listen at."""
        authority = CertificateAuthority(f"batch run {job.run}", clock)
        own = authority.issue("driver", Role.SPARK_DRIVER)
        self._context = tls_context(own, ssl.PROTOCOL_TLS_SERVER)
        self._job = job.encoded()
        self._paths = dict(job.file_paths)
        self.server = socket.create_server((bind_host, 0), backlog=_BACKLOG)
        port = self.server.getsockname()[1]
        self.address: DriverAddress = DriverElsewhere(host, port, job.run, authority.issue("task"))

    def admit(self, connection: socket.socket) -> socket.socket:
        set_tcp_options(connection)
        connection.settimeout(_HANDSHAKE_SECONDS)
        admitted = self._context.wrap_socket(connection, server_side=True)
        admitted.settimeout(None)
        return admitted

    def send_job(self, frames: FramedSocket[FromTaskMessage]) -> None:
        frames.send(SentJob(job=self._job))
        while isinstance(wanted := frames.receive(), FileWanted):
            path = self._paths.get(wanted.key)
            if path is None:
                raise FrameError(f"a task wants {wanted.key!r}, which is no file of its job")
            with open(path, "rb") as stream:
                part = stream.read(_PART_BYTES)
                while part:
                    following = stream.read(_PART_BYTES)
                    frames.send(FilePart(data=part, last=not following))
                    part = following
                if stream.tell() == 0:
                    frames.send(FilePart(data=b"", last=True))

    def close(self) -> None:
        self.server.close()


class TaskServer:
    """Serves the tasks of one run."""

    def __init__(self, entrance: TaskEntrance, listener: AttemptListener, tokens: NewestTokens) -> None:
        """`tokens`: what processes on other hosts get."""
        self._listener = listener
        self._tokens = tokens
        self._entrance = entrance
        self._server = entrance.server
        self._open: set[socket.socket] = set()
        #: Notified when a task writes no more.
        self._lock = threading.Condition()
        #: Threads of connections whose task may write something.
        self._writing: set[threading.Thread] = set()
        self._closed = False

    def start(self) -> None:
        """Begins to accept."""
        threading.Thread(target=self._accept, name="task-server", daemon=True).start()

    def await_tasks(self, seconds: float) -> bool:
        """Waits so long until no task that has connected can write any more; False if one still may."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._writing, seconds)

    def close(self) -> None:
        """Ends all connections."""
        with self._lock:
            self._closed = True
            connections = list(self._open)
        _shut(self._server)
        for connection in connections:
            _shut(connection)
        self._entrance.close()

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
                thread = threading.Thread(target=self._read, args=(connection,), name="task", daemon=True)
                self._writing.add(thread)
            thread.start()

    def _read(self, connection: socket.socket) -> None:
        admitted = connection
        try:
            admitted = self._entrance.admit(connection)
            with self._lock:
                # TLS has taken the descriptor over.
                self._open.discard(connection)
                self._open.add(admitted)
                if self._closed and admitted is not connection:
                    # Too late for `close`, which has ended the plain connection.
                    return
            self._serve(admitted)
        except (FrameError, OSError) as error:
            _log.info("a task's connection ended: %s", error)
        finally:
            with self._lock:
                self._open -= {connection, admitted}
            self._writes_no_more()
            admitted.close()
            connection.close()

    def _writes_no_more(self) -> None:
        """Notes that the task of this thread's connection has ended, or is none that writes."""
        with self._lock:
            self._writing.discard(threading.current_thread())
            self._lock.notify_all()

    def _serve(self, connection: socket.socket) -> None:
        frames = FramedSocket(connection, _DECODER)
        first = frames.receive()
        if not isinstance(first, AttemptStarted):
            self._writes_no_more()
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
        elif isinstance(first, JobWanted):
            self._entrance.send_job(frames)
        elif isinstance(first, TokensWanted):
            self._send_tokens(frames, connection)

    def _send_tokens(self, frames: FramedSocket[FromTaskMessage], connection: socket.socket) -> None:
        """Sends the newest tokens, and each newer ones, until the run or the process ends."""
        sent = self._tokens.newest
        frames.send(TokensSent(content=sent.content))
        while not self._closed and not _is_closed_by_peer(connection):
            newer = self._tokens.wait_for_newer(sent.number, _TOKENS_SECONDS)
            if newer is not None and not self._closed:
                sent = newer
                frames.send(TokensSent(content=sent.content))

    def _follow(self, started: AttemptStarted, frames: FramedSocket[FromTaskMessage]) -> None:
        told, last = False, None
        try:
            while (message := frames.receive()) is not None:
                if isinstance(message, AttemptFailed | AttemptEnded):
                    self._writes_no_more()
                if isinstance(message, AttemptFailed):
                    told = True
                    self._listener.attempt_failed(started, message)
                elif isinstance(message, AttemptAt):
                    last = message if message.operator_name else None
                elif isinstance(message, AttemptKeyGroups):
                    self._listener.key_groups_read(started, message)
                elif isinstance(message, SharesWanted):
                    frames.send(TaskShares(shares=self._listener.shares_of(started)))
                elif isinstance(message, AttemptProgress | AttemptEnded):
                    told = isinstance(message, AttemptEnded)
                    self._listener.attempt_progressed(started, message)
        finally:
            if not told:
                self._listener.attempt_lost(started, last)


#: A task that failed before it knew its place.
_UNKNOWN = AttemptStarted(run=-1, stage=-1, subtask=-1, attempt=-1, pid=0)


def _shut(sock: socket.socket) -> None:
    """Wakes up whoever waits in it."""
    with contextlib.suppress(OSError):
        # SSLSocket.shutdown would turn TLS off first, while another thread may be sending a secret.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _is_closed_by_peer(connection: socket.socket) -> bool:
    """Whether the other end, which sends nothing more, has closed the connection."""
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(0))
