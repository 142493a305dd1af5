"""TokenEndpoint: gives signed tokens to a client that shows its id and secret, as a server of OpenID Connect does.

Owner: the test; a thread of its own answers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.kafka.credentials import CLIENT_ID, CLIENT_SECRET, Credentials
from tests.support.kafka.layout import LOOPBACK
from tests.support.services.http_threads import running_in_thread


class TokenEndpoint:
    """The endpoint, and the tokens that it has given."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.tokens: list[str] = []


@contextmanager
def token_endpoint(credentials: Credentials) -> Iterator[TokenEndpoint]:
    """An endpoint that answers while the block runs."""
    basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            known = self.headers.get("Authorization") == f"Basic {basic}"
            if known:
                endpoint.tokens.append(credentials.token())
                body = json.dumps(
                    {"access_token": endpoint.tokens[-1], "token_type": "Bearer", "expires_in": 3600}
                ).encode()
            else:
                body = json.dumps({"error": "invalid_client"}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nobody reads these lines."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    endpoint = TokenEndpoint(f"http://{LOOPBACK}:{server.server_port}/token")
    with running_in_thread(server, "token endpoint"):
        yield endpoint
