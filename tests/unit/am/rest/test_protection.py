"""Browsers of other origins, names that lead here by trick, bodies that are too large or too slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.unit.am.rest.fakes import JOB, FakeCluster, client_of
from tests.unit.am.rest.running import run
from yarrow.am.rest.services import RestSettings

ACTIONS = [
    ("PATCH", f"/jobs/{JOB}"),
    ("DELETE", "/cluster"),
    ("POST", "/v1/blobs"),
    ("POST", "/jars/upload"),
    ("GET", "/v1/jars/x/plan"),
    ("GET", f"/jobs/{JOB}/collect/results"),
    ("GET", f"/jobs/{JOB}/yarn-cancel"),
]


def ask(
    cluster: FakeCluster, method: str, path: str, settings: RestSettings | None = None, **options: Any
) -> httpx.Response:
    async def main() -> httpx.Response:
        async with client_of(cluster.app(settings)) as client:
            return await client.request(method, path, **options)

    return run(main())


@pytest.mark.parametrize(("method", "path"), ACTIONS)
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
        {"host": "evil.example", "origin": "http://evil.example"},
        {"host": "localhost.evil.example"},
        {"host": "[::1"},
    ],
)
def test_foreign_pages_change_nothing(
    cluster: FakeCluster, method: str, path: str, headers: dict[str, str]
) -> None:
    response = ask(cluster, method, path, headers=headers)
    assert response.status_code == 403, response.text
    assert response.json()["errors"]
    assert not cluster.dispatcher.cancelled
    assert not cluster.dispatcher.shut_down


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://localhost"},
        {"host": "127.0.0.1:8081", "origin": "http://127.0.0.1:8081"},
        {"host": "[::1]:8081"},
        {"host": "127.9.9.9"},
        {"host": "LOCALHOST:1"},
        {"sec-fetch-site": "same-origin"},
    ],
)
def test_own_pages_and_clients_that_are_no_browsers_may(
    cluster: FakeCluster, headers: dict[str, str]
) -> None:
    assert ask(cluster, "PATCH", f"/jobs/{JOB}", headers=headers).status_code == 202


def test_names_and_origins_can_be_configured(tmp_path: Path) -> None:
    settings = {"rest.address": "Master.Example", "web.access-control-allow-origin": "https://ui.example"}
    cluster = FakeCluster(tmp_path, settings)
    headers = {"host": "master.example:8081", "origin": "https://ui.example"}
    response = ask(cluster, "PATCH", f"/jobs/{JOB}", headers=headers)
    assert response.status_code == 202
    assert response.headers["access-control-allow-origin"] == "https://ui.example"


@pytest.mark.parametrize("path", ["/overview", "/config", "/jobs/x/plan", "/docs", "/nothing"])
@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "1.2.3.4", "0.0.0.0:8081", "[::]", "[::1", ""]
)
def test_nothing_is_read_under_another_name(cluster: FakeCluster, path: str, host: str) -> None:
    response = ask(cluster, "GET", path, headers={"host": host})
    assert response.status_code == 403, response.text
    assert "rest.address" in response.json()["errors"][0]


def test_the_address_at_which_a_request_comes_in_is_a_name_of_the_server(cluster: FakeCluster) -> None:
    async def main(host: str) -> int:
        transport = httpx.ASGITransport(_at(cluster.app(), "10.1.2.3"))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}:8081") as client:
            return (await client.get("/overview")).status_code

    assert run(main("10.1.2.3")) == 200
    assert run(main("10.1.2.4")) == 403


def _at(app: ASGIApp, address: str) -> ASGIApp:
    async def at_address(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "server": (address, 8081)}, receive, send)

    return at_address


def test_foreign_pages_read_nothing_unless_their_origin_is_named(cluster: FakeCluster) -> None:
    headers = {"origin": "http://other.example"}
    assert "access-control-allow-origin" not in ask(cluster, "GET", "/overview", headers=headers).headers
    for origin in ("http://other.example", "*"):
        answer = ask(cluster, "GET", "/overview", RestSettings(allow_origin=origin))
        assert answer.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-site", "x-requested-with": "x"}, False),
        ({"origin": "http://evil.example", "x-requested-with": "x"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"origin": "http://localhost"}, True),
        ({"x-requested-with": "curl"}, True),
    ],
)
@pytest.mark.parametrize("path", ["/jars/none/plan", "/v1/jars/none/plan", "/jars/none/plan%0A"])
def test_a_plan_by_get_runs_for_own_pages_and_for_what_no_page_can_send(
    cluster: FakeCluster, path: str, headers: dict[str, str], allowed: bool
) -> None:
    # Behind the entrance: there is no such program.
    status = ask(cluster, "GET", path, headers=headers).status_code
    assert status == (404 if allowed else 403)


async def pieces(count: int) -> AsyncIterator[bytes]:
    yield b'--x\r\nContent-Disposition: form-data; name="jarfile"; filename="a.py"\r\n\r\n'
    for _ in range(count):
        yield b"x" * 1000


@pytest.mark.parametrize("path", ["/blobs", "/jobs", "/jars/upload", f"/jobs/{JOB}/checkpoints"])
def test_large_bodies_are_refused_with_and_without_a_length(cluster: FakeCluster, path: str) -> None:
    limit = RestSettings(max_request_bytes=5000)
    kind = {"content-type": "multipart/form-data; boundary=x"} if path in ("/jobs", "/jars/upload") else {}
    declared = ask(cluster, "POST", path, limit, content=b"x" * 5001, headers=kind)
    streamed = ask(cluster, "POST", path, limit, content=pieces(6), headers=kind)
    for response in (declared, streamed):
        assert response.status_code == 413, response.text
        assert "rest.server.max-content-length" in response.json()["errors"][0]
    assert not cluster.dispatcher.blobs


def test_body_at_the_limit_is_taken(cluster: FakeCluster) -> None:
    response = ask(cluster, "POST", "/blobs", RestSettings(max_request_bytes=5000), content=b"x" * 5000)
    assert response.status_code == 201
    assert cluster.dispatcher.blobs[response.json()["key"]] == b"x" * 5000


def test_body_that_does_not_come_is_given_up(cluster: FakeCluster) -> None:
    app = cluster.app(RestSettings(body_pause_timeout=0.05))
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("never")

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/blobs",
        "raw_path": b"/blobs",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"localhost"), (b"content-length", b"10")],
    }
    run(app(scope, receive, send))
    assert sent[0]["status"] == 408


def test_bugs_are_answered_and_logged(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    del cluster.dispatcher.jobs  # as a broken gateway would
    response = ask(cluster, "GET", "/jobs")
    assert response.status_code == 500
    assert response.json() == {"errors": ["Internal server error: the control plane's log says more."]}
    assert "GET /jobs failed" in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'"\xff"',
        b"NaN",
        b'{"cancel-job": 1e999}',
        b'{"target-directory": 7}',
        b"\0" * 100,
    ],
    ids=range(10),
)
@pytest.mark.parametrize("path", [f"/jobs/{JOB}/savepoints", f"/jobs/{JOB}/stop", "/savepoint-disposal"])
def test_bodies_that_make_no_sense_are_the_callers_mistake(
    cluster: FakeCluster, path: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = ask(cluster, "POST", path, content=body)
    assert 200 <= answer.status_code < 500 and answer.status_code not in (401, 403)
    assert "Traceback" not in answer.text and ".py" not in answer.text
    assert "failed" not in caplog.text


@pytest.mark.parametrize(
    "name", ["%C3%BC", "%00", "%ff", "a" * 4000, "%2E%2E", "%0d%0aX: y", "\u202e", "0" * 33]
)
def test_ids_that_are_none_are_named_as_such(cluster: FakeCluster, name: str) -> None:
    for path in (f"/jobs/{name}", f"/taskmanagers/{name}", f"/jars/{name}/plan"):
        answer = ask(cluster, "GET", path)
        assert 400 <= answer.status_code < 500, answer.text
        assert answer.json()["errors"]
