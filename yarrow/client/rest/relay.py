"""Relay: REST of one application on a loopback port, for clients that cannot send its token.

Owner: the main thread serves until Ctrl-C; each connection has a daemon thread. It admits only programs of
the same user and pages of its own origin, because its clients count as owners of the token. Bodies pass in
pieces and are never kept.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from yarrow.client.errors import CommandError
from yarrow.client.rest.rest_client import RestClient
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.rpc.loopback import LOOPBACK

_PIECE = 1 << 16
#: Seconds without a byte after which a connection is closed.
_IDLE = 300.0
#: Headers of one connection, or about the requester: none is passed on.
_NOT_PASSED: Final = frozenset(
    {
        "authorization",
        "connection",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "origin",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "referer",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
#: Headers of an answer: a page of another origin must not read it, whatever the master would allow.
_NOT_RETURNED: Final = _NOT_PASSED | {"access-control-allow-origin", "date", "server"}


class Relay:
    """Listens from construction on; `serve` answers until `close`."""

    def __init__(self, rest: RestClient, port: int = 0) -> None:
        """Raises CommandError if the port is in use."""
        handler = type("Handler", (_Handler,), {"rest": rest, "looking": threading.Lock()})
        try:
            self._server = _Server((LOOPBACK, port), handler)
        except OSError as error:
            raise CommandError(
                f"--port {port} cannot be listened on: {error.strerror}. Without --port a free one is taken."
            ) from None

    @property
    def address(self) -> str:
        """URL for clients."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def serve(self) -> None:
        """Answers until `close` is called, or KeyboardInterrupt."""
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Ends `serve`, which must be running or have ended, and frees the port."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Admits only our own programs: other users of the host reach loopback too."""
        return user_of_connection(client_address, self.server_address) == os.getuid()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"A request could not be relayed: {type(error).__name__}: {error}", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    rest: RestClient
    #: Held during the search for the next master.
    looking: threading.Lock
    protocol_version = "HTTP/1.1"
    timeout = _IDLE

    def __getattr__(self, name: str) -> Any:
        # The base class looks for do_GET, do_POST ...: one method relays all.
        if name.startswith("do_"):
            return self._relay
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: a path may name another user's job."""

    def _relay(self) -> None:
        refusal = refusal_of(self.headers, int(self.server.server_address[1]))  # type: ignore[index]
        if refusal:
            return self._refuse(HTTPStatus.FORBIDDEN, refusal)
        if "transfer-encoding" in self.headers:
            return self._refuse(HTTPStatus.LENGTH_REQUIRED, "Send the body with a Content-Length.")
        length = self.headers.get("content-length", "0")
        if not length.isdigit():
            return self._refuse(HTTPStatus.BAD_REQUEST, f"Content-Length {length!r} is no number.")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED}
        try:
            response = self._opened(headers, int(length))
        except (OSError, http.client.HTTPException) as error:
            return self._refuse(
                HTTPStatus.BAD_GATEWAY,
                f"The application does not answer at {self.rest.address}: {error or type(error).__name__}.",
            )
        except YarrowError as error:
            return self._refuse(HTTPStatus.BAD_GATEWAY, str(error))
        with response:
            self._answer(response)

    def _opened(self, headers: Mapping[str, str], length: int) -> http.client.HTTPResponse:
        """The master's answer; if that master is gone, the next one's."""
        asked = self.rest.address
        try:
            return self._sent(headers, length)
        except ConnectionRefusedError:
            # Nothing was sent. A page makes many requests at once: one of them looks for the next master.
            with self.looking:
                if self.rest.address == asked and not self.rest.look_again():
                    raise
            return self._sent(headers, length)

    def _sent(self, headers: Mapping[str, str], length: int) -> http.client.HTTPResponse:
        body = _pieces(self.rfile, length) if length else None
        return self.rest.open(self.command, self.path, body, headers)

    def _answer(self, response: http.client.HTTPResponse) -> None:
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _NOT_RETURNED:
                self.send_header(name, value)
        chunked = response.length is None and self.command != "HEAD"
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while self.command != "HEAD" and (piece := response.read1(_PIECE)):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            self.wfile.flush()
        if response.length:
            # The master ended in the middle: whoever waits for the rest is told by the end of the connection.
            self.close_connection = True
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        body = json.dumps({"errors": [text]}).encode()
        # The rest of the client's request is not read: the connection cannot be used again.
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def refusal_of(headers: Any, port: int) -> str:
    """Why a request may not pass; empty when it may.

    It must name this relay by a loopback name, so that an attacker's name that points here is refused. It
    must come from no page of another origin.
    """
    own = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}
    hosts = headers.get_all("host") or []
    if len(hosts) != 1 or hosts[0].lower() not in own:
        return f"The request is for the host {', '.join(hosts) or '(none)'}: expected {' or '.join(sorted(own))}."
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in {f"http://{name}" for name in own}:
        return f"A page of {origin!r} may not use this relay."
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "A page of another site may not use this relay."
    return ""


def user_of_connection(
    client: tuple[str, int], server: Any, table: Path = Path("/proc/net/tcp")
) -> int | None:
    """The user id of the process on the other side of a loopback connection; None if the system does not say."""
    wanted = (_in_hex(client), _in_hex(server))
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if (fields[1], fields[2]) == wanted:
            return int(fields[7])
    return None


def _in_hex(address: tuple[str, int]) -> str:
    """An IPv4 address in the form of the kernel's table."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


def _pieces(stream: Any, length: int) -> Iterator[bytes]:
    while length > 0:
        piece = stream.read(min(length, _PIECE))
        if not piece:
            raise ConnectionResetError("the client sent less than its Content-Length")
        length -= len(piece)
        yield piece
