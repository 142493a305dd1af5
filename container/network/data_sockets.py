"""DataSockets: a worker's data sockets, listening and connected, over Unix sockets or TCP with mutual TLS.

Owner: the I/O thread; only `connect` runs on task threads. Connection and the listener handle frames and
channels: this module never looks into them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import ssl
from typing import Protocol

from yarrow.container.network.connection import Connection, ConnectionListener
from yarrow.container.network.data_ports import DataPorts
from yarrow.container.network.frames import WireProtocolError
from yarrow.container.network.handshake import ClientHandshake, ServerHandshake
from yarrow.container.network.io_thread import IoThread
from yarrow.container.network.tls import TlsContexts
from yarrow.container.network.unix_sockets import bind_unix, connect_unix
from yarrow.container.protocol.worker_protocol import WorkerSettings
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.config.options.taskmanager import DataTransport
from yarrow.runtime.rpc.messages import WorkerAddress

_log = logging.getLogger(__name__)

#: Seconds in which an accepted connection must prove itself, and the most connections that may be doing so.
HANDSHAKE_SECONDS = 10.0
MAX_STRANGERS = 512
#: Silent seconds before the first probe, number of probes, and seconds between them. A host that vanishes is
#: noticed about as soon as by heartbeats. Heartbeats see hosts that cannot reach the master, but not those
#: that cannot reach each other. A live peer answers by its kernel, however busy it is.
KEEPALIVE_IDLE_SECONDS, KEEPALIVE_PROBES, KEEPALIVE_PAUSE_SECONDS = 20, 6, 5


class SocketListener(ConnectionListener, Protocol):
    """Hears of connections, on the I/O thread."""

    def on_accepted(self, connection: Connection) -> None:
        """Takes a connection of another worker, which has proved nothing yet."""
        ...


class DataSockets:
    """The data sockets of one worker."""

    def __init__(
        self,
        settings: WorkerSettings,
        io_thread: IoThread,
        listener: SocketListener,
        max_payload: int,
        ports: DataPorts,
        *,
        transport: DataTransport,
    ) -> None:
        self._settings = settings
        self._io = io_thread
        self._listener = listener
        self._max_payload = max_payload
        self._transport = transport
        self._ports = ports
        self._tls = TlsContexts.of(settings)
        #: Accepted connections that have proved nothing yet.
        self._strangers: set[Connection] = set()
        self._servers: list[socket.socket] = []
        self._unix_path = ""
        self._port = 0

    def start(self) -> WorkerAddress:
        """Opens the listening sockets; call before the I/O thread starts or on it."""
        settings = self._settings
        # Without certificates no peer could be admitted there.
        if self._tls is not None and (settings.listen_tcp or self._transport is not DataTransport.AUTO):
            tcp, self._port = self._ports.listen(settings.host)
            self._listen(tcp)
        if self._transport is not DataTransport.TCP:
            self._listen_unix()
        return WorkerAddress(
            worker_id=settings.worker_id,
            resource_id=ResourceID(settings.resource_id),
            host=settings.host,
            port=self._port,
            unix_path=self._unix_path,
            host_key=settings.host_key,
        )

    def _listen_unix(self) -> None:
        settings = self._settings
        name = f"data-{settings.worker_id.rsplit('/', 1)[-1]}-{os.getpid()}.sock"
        self._unix_path = os.path.join(settings.working_directory, name)
        self._listen(bind_unix(self._unix_path))

    def _listen(self, server: socket.socket) -> None:
        server.listen(256)
        server.setblocking(False)
        self._servers.append(server)
        self._io.register(server, selectors.EVENT_READ, lambda _events: self._accept(server))

    def stop_listening(self) -> None:
        """Accepts no more connections. I/O thread."""
        for server in self._servers:
            self._io.unregister(server)
            server.close()
        if self._unix_path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._unix_path)

    def connect(self, consumer: WorkerAddress) -> Connection:
        """Connects to another worker; `watch` the result. Raises OSError if the worker does not answer."""
        sock, tls_host = self._dial(consumer)
        handshake = ClientHandshake(self._settings.data_secret, self._settings.worker_id, consumer.worker_id)
        how = "TCP with TLS" if tls_host else "a Unix socket"
        _log.debug("data connection to %s over %s", consumer.worker_id, how)
        return Connection(
            sock, handshake, self._listener, self._request_write, consumer.worker_id, self._max_payload
        )

    def close(self, connection: Connection) -> None:
        """Closes a connection. I/O thread."""
        self._io.unregister(connection.socket)
        connection.close()

    def _dial(self, consumer: WorkerAddress) -> tuple[socket.socket, str]:
        if consumer.host_key == self._settings.host_key and consumer.unix_path:
            sock = connect_unix(consumer.unix_path)
            sock.setblocking(False)
            return sock, ""
        if self._tls is None:
            raise ConnectionError(
                f"worker {consumer.worker_id} on {consumer.host} is on another host, and no certificates were given"
            )
        plain = socket.create_connection((consumer.host, consumer.port), timeout=10)
        set_tcp_options(plain)
        plain.setblocking(False)
        wrapped = self._tls.client.wrap_socket(
            plain, server_hostname=self._settings.server_name, do_handshake_on_connect=False
        )
        return wrapped, consumer.host

    def _accept(self, server: socket.socket) -> None:
        try:
            sock, _peer = server.accept()
        except OSError:
            return
        self._strangers = {one for one in self._strangers if not (one.authenticated or one.closed)}
        if len(self._strangers) >= MAX_STRANGERS:
            _log.warning(
                "refused a data connection: %d other connections have not authenticated yet", MAX_STRANGERS
            )
            sock.close()
            return
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            assert self._tls is not None
            try:
                set_tcp_options(sock)
                sock = self._tls.server.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError as error:  # gone already, or it sent data before TLS was set up
                _log.debug("refused a data connection: %s", error)
                sock.close()
                return
        handshake = ServerHandshake(self._settings.data_secret, self._settings.worker_id)
        connection = Connection(
            sock, handshake, self._listener, self._request_write, max_payload=self._max_payload
        )
        self._strangers.add(connection)
        self._io.call_later(HANDSHAKE_SECONDS, lambda: self._expect_proof(connection))
        self._listener.on_accepted(connection)
        self.watch(connection)

    def _expect_proof(self, connection: Connection) -> None:
        self._strangers.discard(connection)
        if not connection.authenticated and not connection.closed:
            self._listener.on_closed(connection, f"no handshake within {HANDSHAKE_SECONDS:g} s")

    def watch(self, connection: Connection) -> None:
        """Serves a connection from now on. I/O thread."""
        self._io.register(
            connection.socket, selectors.EVENT_READ, lambda events: self._ready(connection, events)
        )
        if isinstance(connection.socket, ssl.SSLSocket):
            self._shake_tls(connection)
        else:
            connection.start()

    def _shake_tls(self, connection: Connection) -> None:
        sock = connection.socket
        assert isinstance(sock, ssl.SSLSocket)
        wanted = selectors.EVENT_READ
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            wanted |= selectors.EVENT_WRITE
        except (OSError, ssl.SSLError) as error:
            self._listener.on_closed(connection, f"TLS handshake failed: {error}")
            return
        else:
            connection.start()
        self._io.modify(sock, wanted, lambda events: self._ready(connection, events))

    def _request_write(self, connection: Connection) -> None:
        self._io.post(lambda: self._write(connection))

    def _write(self, connection: Connection) -> None:
        if connection.closed or not connection.tls_ready:
            return
        done = connection.flush()
        events = selectors.EVENT_READ if done else selectors.EVENT_READ | selectors.EVENT_WRITE
        self._io.modify(connection.socket, events, lambda mask: self._ready(connection, mask))

    def _ready(self, connection: Connection, events: int) -> None:
        if not connection.tls_ready:
            self._shake_tls(connection)
            return
        if events & selectors.EVENT_WRITE:
            self._write(connection)
        if events & selectors.EVENT_READ and not connection.closed:
            try:
                connection.receive()
            except WireProtocolError as error:
                self._listener.on_closed(connection, str(error))
            except (OSError, ssl.SSLError) as error:
                self._listener.on_closed(
                    connection, f"the connection to worker {connection.peer_id or '?'} broke: {error}"
                )


def set_tcp_options(sock: socket.socket) -> None:
    """Sets options of either end of a TCP connection: frames are sent at once, and a vanished peer ends it."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_PAUSE_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        # Not every system has these options; the system's own times count there.
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
