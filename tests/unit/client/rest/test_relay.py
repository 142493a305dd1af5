"""The loopback relay: what passes, what is added and left out, and who is refused."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.services.http_threads import running_in_thread
from yarrow.client.errors import CommandError
from yarrow.client.rest.relay import Relay, user_of_connection
from yarrow.client.rest.rest_client import RestClient
from yarrow.runtime.rpc.loopback import LOOPBACK

TOKEN = "a" * 43


class Master(BaseHTTPRequestHandler):
    """Answers with what it got; `/stream` in two pieces, the second only when the test has seen the first."""

    protocol_version = "HTTP/1.1"
    first_was_seen = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/stream":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nfirst\r\n")
            self.wfile.flush()
            assert self.first_was_seen.wait(120)
            self.wfile.write(b"6\r\nsecond\r\n0\r\n\r\n")
            return
        if self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "8")
            self.end_headers()
            self.wfile.write(b"1234")
            self.close_connection = True
            return
        length = int(self.headers.get("content-length", 0))
        got = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": self.rfile.read(length).decode(),
        }
        body = json.dumps(got).encode()
        self.send_response(202)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("X-Own", "kept")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_POST = do_PATCH = do_DELETE = do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def master() -> Iterator[ThreadingHTTPServer]:
    Master.first_was_seen.clear()
    server = ThreadingHTTPServer((LOOPBACK, 0), Master)
    server.daemon_threads = False
    with running_in_thread(server, "master"):
        yield server


@pytest.fixture
def relay(master: ThreadingHTTPServer) -> Iterator[Relay]:
    relay = Relay(RestClient(LOOPBACK, master.server_address[1], token=TOKEN))
    thread = threading.Thread(target=relay.serve)
    thread.start()
    yield relay
    relay.close()
    thread.join()


def ask(
    relay: Relay, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, int(relay.address.rpartition(":")[2]), timeout=120)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def test_a_request_passes_with_the_token_and_without_who_asked(relay: Relay) -> None:
    status, headers, body = ask(
        relay,
        "POST",
        "/jobs?a=%2F&b=1",
        "hello",
        Authorization="Basic other",
        Cookie="c",
        Origin=relay.address,
        X_Mine="1",
    )
    got = json.loads(body)
    assert (status, got["method"], got["path"], got["body"]) == (202, "POST", "/jobs?a=%2F&b=1", "hello")
    assert got["headers"]["authorization"] == f"Bearer {TOKEN}"
    assert got["headers"]["x-mine"] == "1"
    assert not {"cookie", "origin"} & set(got["headers"])
    assert headers["x-own"] == "kept"
    # What would let a page of another origin read the answer stays here.
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE", "HEAD"])
def test_every_method_passes(relay: Relay, method: str) -> None:
    status, _, body = ask(relay, method, "/x")
    assert status == 202
    assert body == b"" if method == "HEAD" else json.loads(body)["method"] == method


def test_an_answer_that_ends_in_the_middle_ends_so_for_who_asked(relay: Relay) -> None:
    with pytest.raises(http.client.IncompleteRead):
        ask(relay, "GET", "/cut")


def test_an_answer_is_passed_on_while_it_comes(relay: Relay) -> None:
    connection = http.client.HTTPConnection(LOOPBACK, int(relay.address.rpartition(":")[2]), timeout=120)
    connection.request("GET", "/stream")
    with connection.getresponse() as response:
        assert response.read1() == b"first"
        Master.first_was_seen.set()
        assert response.read() == b"second"
    connection.close()


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Host": "evil.example"}, "for the host evil.example"),
        ({"Host": "127.0.0.1:1"}, "for the host 127.0.0.1:1"),
        ({"Origin": "http://evil.example"}, "may not use this relay"),
        ({"Origin": "null"}, "may not use this relay"),
        ({"Sec-Fetch-Site": "cross-site"}, "another site"),
        ({"Transfer-Encoding": "chunked"}, "Content-Length"),
    ],
)
def test_pages_of_others_are_refused(relay: Relay, headers: dict[str, str], said: str) -> None:
    for method in ("GET", "POST"):
        status, answered, body = ask(relay, method, "/jobs", None, **headers)
        assert status in (403, 411)
        assert said in json.loads(body)["errors"][0]
        assert "access-control-allow-origin" not in answered


def test_a_master_that_is_gone_is_named(relay: Relay, master: ThreadingHTTPServer) -> None:
    port = master.server_address[1]
    master.shutdown()
    master.server_close()
    status, _, body = ask(relay, "GET", "/jobs")
    assert status == 502
    assert f"http://{LOOPBACK}:{port}" in json.loads(body)["errors"][0]


def test_the_next_master_is_found(master: ThreadingHTTPServer) -> None:
    """An attempt that YARN starts after another has an address of its own."""
    where = [f"http://{LOOPBACK}:{master.server_address[1]}"]

    def locate() -> str:
        if not where:
            raise CommandError("application_1 has ended: FAILED.")
        return where.pop()

    # Bound, so that nobody else gets the port, and without anybody who listens.
    gone = socket.socket()
    gone.bind((LOOPBACK, 0))
    relay = Relay(RestClient(LOOPBACK, gone.getsockname()[1], token=TOKEN, locate=locate))
    thread = threading.Thread(target=relay.serve)
    thread.start()
    try:
        status, _, body = ask(relay, "POST", "/jobs", "a body")
        assert (status, json.loads(body)["body"]) == (202, "a body")
        master.shutdown()
        master.server_close()
        status, _, body = ask(relay, "GET", "/jobs")
        assert (status, json.loads(body)["errors"]) == (502, ["application_1 has ended: FAILED."])
    finally:
        relay.close()
        thread.join()
        gone.close()


def test_the_user_of_a_connection(tmp_path: Path) -> None:
    server = ThreadingHTTPServer((LOOPBACK, 0), Master)
    client = http.client.HTTPConnection(LOOPBACK, server.server_address[1])
    client.connect()
    try:
        assert user_of_connection(client.sock.getsockname(), server.server_address) == os.getuid()
    finally:
        client.close()
        server.server_close()
    table = tmp_path / "tcp"
    line = "   0: 0100007F:{:04X} 0100007F:{:04X} 01 00000000:00000000 00:00000000 00000000 {} 0 1"
    table.write_text("head\n" + line.format(40000, 8081, 1234) + "\n")
    assert user_of_connection((LOOPBACK, 40000), (LOOPBACK, 8081), table) == 1234
    assert user_of_connection((LOOPBACK, 40001), (LOOPBACK, 8081), table) is None
    assert user_of_connection((LOOPBACK, 40000), (LOOPBACK, 8081), tmp_path / "none") is None


@pytest.mark.parametrize("user", [os.getuid() + 1, None])
def test_other_users_of_this_host_are_refused(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, user: int | None
) -> None:
    monkeypatch.setattr("yarrow.client.rest.relay.user_of_connection", lambda client, server: user)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        ask(relay, "GET", "/jobs")
    monkeypatch.undo()
    assert ask(relay, "GET", "/jobs")[0] == 202


def test_a_port_that_is_taken_is_named(relay: Relay) -> None:
    port = int(relay.address.rpartition(":")[2])
    with pytest.raises(CommandError, match=f"--port {port} cannot be listened on"):
        Relay(RestClient(LOOPBACK, 1), port)
