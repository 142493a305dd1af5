"""A token is renewed before it expires, and serves until then while its endpoint cannot give another one."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.services.http_threads import running_in_thread
from yarrow.datastream.connectors.kafka.cluster.access_token import AccessToken, endpoint_is_away
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaConnectorError, KafkaUnreachableError
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.security.certificates import CertificateAuthority

LIFE = 100
#: Seconds of a test that does not wait.
LIMIT = 60.0


class Endpoint:
    """What a server of tokens answers next, and how often it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.asked = 0
        self.is_cut = False
        self.address = ""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    found = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.asked += 1
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"access_token": f"token {found.asked}", "expires_in": LIFE}).encode()
            self.send_response(found.status)
            if found.status == 302:
                self.send_header("Location", f"http://{found.address}")
            self.send_header("Content-Length", str(len(body) + 10 * found.is_cut))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nobody reads these lines."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found.address = f"127.0.0.1:{server.server_port}/token"
    with running_in_thread(server, "token-endpoint"):
        yield found


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def settings_of(url: str) -> dict[str, str]:
    return {
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "pa77",
    }


def token(endpoint: Endpoint, time: Time) -> AccessToken:
    return AccessToken(settings_of(f"http://{endpoint.address}?key=pa66"), time)


def test_the_last_token_serves_until_it_expires(endpoint: Endpoint) -> None:
    time = Time()
    found = token(endpoint, time)
    assert found.value() == "token 1"
    time.now = 0.79 * LIFE
    assert found.value() == "token 1" and endpoint.asked == 1
    endpoint.status = 503
    time.now = 0.9 * LIFE
    assert found.value() == "token 1" and endpoint.asked == 2
    time.now = LIFE
    with pytest.raises(KafkaConnectorError, match=r"status 503$"):
        found.value()
    endpoint.status = 200
    assert found.value() == "token 4"


@pytest.mark.parametrize(
    ("status", "is_cut", "says"),
    [
        (401, False, "status 401. Check client id"),
        (503, False, "status 503$"),
        (302, False, "status 302$"),
        (200, True, "cannot be reached"),
    ],
)
def test_an_endpoint_without_a_token_is_told_without_secrets(
    endpoint: Endpoint, status: int, is_cut: bool, says: str
) -> None:
    endpoint.status, endpoint.is_cut = status, is_cut
    with pytest.raises(KafkaConnectorError, match=says) as told:
        token(endpoint, Time()).value()
    assert "pa66" not in str(told.value) and "pa77" not in str(told.value)
    assert endpoint.asked == 1


def test_an_endpoint_whose_certificate_is_not_trusted_is_not_away(tmp_path: Path) -> None:
    identity = CertificateAuthority("test", SystemClock()).issue("endpoint")
    pem = tmp_path / "endpoint.pem"
    pem.write_bytes(identity.certificate + identity.private_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    settings = settings_of(f"https://127.0.0.1:{server.server_port}/token")
    with running_in_thread(server, "token-endpoint"):
        with pytest.raises(KafkaConnectorError, match="CERTIFICATE_VERIFY_FAILED"):
            AccessToken(settings).value()
        assert not endpoint_is_away(settings, LIMIT)


def test_an_endpoint_that_says_nothing_in_the_time_that_is_left_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = settings_of(f"http://127.0.0.1:{silent.getsockname()[1]}/token")
        with pytest.raises(KafkaUnreachableError, match="timed out"):
            AccessToken(settings, answer_seconds=0.01).value()
        assert endpoint_is_away(settings, 0.01)


def test_an_address_that_is_none_is_not_away() -> None:
    assert not endpoint_is_away(settings_of("http://127.0.0.1:port/token"), LIMIT)
