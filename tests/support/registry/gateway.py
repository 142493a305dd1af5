"""A gateway in front of a real schema registry: TLS, logins and rights, and failures for a time, as deployments have.

Owner: the test; a thread of its own answers. What it lets through goes to the registry, and the registry's answer comes
back unchanged.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.services.http_threads import running_in_thread

_LOOPBACK = "127.0.0.1"
_SECONDS = 30.0
#: May read and write, and may only read.
WRITER, READER = "writer:writer-password-of-tests", "reader:reader-password-of-tests"
TOKEN = "registry-token-of-tests"


def basic(user: str) -> str:
    """The header of a user and password."""
    return f"Basic {base64.b64encode(user.encode()).decode()}"


class RegistryGateway:
    """The gateway, what it lets through, and what it has seen."""

    def __init__(self, url: str) -> None:
        self.url = url
        #: Headers of those who may write, and of those who may read.
        self.writers = {basic(WRITER), f"Bearer {TOKEN}"}
        self.readers = {basic(READER)}
        #: Tokens of an endpoint, whose owners may write.
        self.issued: list[str] = []
        #: Statuses of the next answers, in place of the registry's.
        self.failures: list[int] = []
        #: The login of each request, in their order.
        self.seen: list[str] = []

    def refusal(self, method: str, login: str) -> int | None:
        """The status for a request that is not let through."""
        self.seen.append(login)
        if self.failures:
            return self.failures.pop(0)
        if login in self.writers or login.removeprefix("Bearer ") in self.issued:
            return None
        if login in self.readers:
            return None if method == "GET" else 403
        return 401


@contextmanager
def registry_gateway(
    registry: str, store: Path | None = None, clients: Path | None = None
) -> Iterator[RegistryGateway]:
    """A gateway to the registry at a URL.

    `store` has key and certificate for TLS, and `clients` the authority that signs the certificates of clients.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, body: bytes | None) -> None:
            status = gateway.refusal(self.command, self.headers.get("Authorization", ""))
            if status is None:
                status, answer = self._passed_on(body)
            else:
                answer = json.dumps(
                    {"error_code": status * 100 + 1, "message": f"refused with {status}"}
                ).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def _passed_on(self, body: bytes | None) -> tuple[int, bytes]:
            base = urlsplit(registry)
            request = urllib.request.Request(f"{base.scheme}://{base.netloc}{self.path}", body)
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read()

        def log_message(self, format: str, *arguments: object) -> None:
            """Nobody reads these lines."""

    server = _Server((_LOOPBACK, 0), Handler)
    scheme = "http"
    if store is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(store)
        if clients is not None:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
        server.tls, scheme = context, "https"
    gateway = RegistryGateway(f"{scheme}://{_LOOPBACK}:{server.server_port}{urlsplit(registry).path}")
    with running_in_thread(server, "registry gateway"):
        yield gateway


class _Server(ThreadingHTTPServer):
    """Shakes hands in the thread of each connection, so that one that is refused stops nobody else."""

    tls: ssl.SSLContext | None = None

    def finish_request(self, request, client_address):  # type: ignore[no-untyped-def]
        if self.tls is None:
            return super().finish_request(request, client_address)
        try:
            with self.tls.wrap_socket(request, server_side=True) as secured:
                super().finish_request(secured, client_address)
        except (ssl.SSLError, ConnectionError):
            # The client does not trust this certificate, or shows none that is trusted here.
            return
