"""The listener that asks for a token, on a real port: who has proved nothing holds nothing; and REST by TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.unit.am.rest.fakes import FakeCluster
from tests.unit.am.rest.running import run
from tests.unit.runtime.security.stores import Stores
from yarrow.am.rest.errors import RestServerError
from yarrow.am.rest.server.server import RestServer
from yarrow.am.rest.services import EntranceKind, RestSettings, for_other_hosts, is_loopback
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.security.keystores import load_pair, rest_identity, rest_server_context
from yarrow.runtime.security.rest_tokens import token_hash

TOKEN = "t0ken-a71c"
HOST = "127.0.0.1"
WITH_TOKEN = RestSettings(entrance=EntranceKind.TOKEN, token_hash=token_hash(TOKEN))


async def started(cluster: FakeCluster, settings: RestSettings) -> RestServer:
    server = RestServer(cluster.services, settings)
    await server.start(HOST, [0])
    return server


def test_a_stranger_is_refused_before_the_body_and_disconnected(cluster: FakeCluster) -> None:
    async def main() -> None:
        server = await started(cluster, WITH_TOKEN)
        try:
            reader, writer = await asyncio.open_connection(HOST, server.port)
            # A body is announced, and never comes: the answer does not wait for it.
            writer.write(b"POST /blobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"connection: close" in answer.lower()
            writer.close()
        finally:
            await server.stop()

    run(main())


def test_a_stranger_cannot_keep_a_connection(cluster: FakeCluster) -> None:
    async def main() -> None:
        server = await started(cluster, WITH_TOKEN)
        try:
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(b"GET /overview HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
            answer = await reader.read()
            assert answer.count(b"HTTP/1.1 ") == 1
            writer.close()
        finally:
            await server.stop()

    run(main())


def test_idle_connections_of_one_host_leave_room_for_those_with_a_token(cluster: FakeCluster) -> None:
    async def main() -> None:
        settings = replace(WITH_TOKEN, max_waiting_connections=3, max_connections=12)
        server = await started(cluster, settings)
        headers = {"authorization": f"Bearer {TOKEN}"}
        opened = []
        try:
            async with httpx.AsyncClient(base_url=f"http://{HOST}:{server.port}", headers=headers) as client:
                # In use before, and idle now: it is not among those that are waited for.
                assert (await client.get("/overview")).status_code == 200
                for _ in range(20):
                    opened.append(await asyncio.open_connection(HOST, server.port))
                closed = [asyncio.ensure_future(reader.read()) for reader, _ in opened]
                while sum(one.done() for one in closed) < 17:
                    await asyncio.wait(
                        [one for one in closed if not one.done()], return_when="FIRST_COMPLETED"
                    )
                assert (await client.get("/overview")).status_code == 200
                kept = [writer for (_, writer), one in zip(opened, closed, strict=True) if not one.done()]
                assert len(kept) == 3
                # Those that go make room.
                kept[0].close()
                await kept[0].wait_closed()
                async with httpx.AsyncClient(base_url=client.base_url, headers=headers) as late:
                    assert (await late.get("/overview")).status_code == 200
                for one in closed:
                    one.cancel()
                await asyncio.gather(*closed, return_exceptions=True)
        finally:
            for _, writer in opened:
                writer.close()
            await server.stop()

    run(main())


@pytest.mark.parametrize(
    "head", [b"GET /overview HTTP/1.1\r\nHost: x\r\n" + b"a: " + b"x" * 70_000, b"a" * 70_000]
)
def test_a_flood_of_headers_is_cut_off(cluster: FakeCluster, head: bytes) -> None:
    async def main() -> None:
        server = await started(cluster, WITH_TOKEN)
        try:
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(head)
            answer = await reader.read()
            assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
            writer.close()
        finally:
            await server.stop()

    run(main())


def test_a_head_that_drips_is_cut_off(cluster: FakeCluster) -> None:
    async def main() -> None:
        server = await started(cluster, replace(WITH_TOKEN, head_timeout=0.2))
        try:
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(b"GET /overview HTTP/1.1\r\n")
            assert await reader.read() == b""
            writer.close()
        finally:
            await server.stop()

    run(main())


def test_a_token_is_asked_for_unless_the_configuration_says_none(caplog: pytest.LogCaptureFixture) -> None:
    asked = for_other_hosts(RestSettings(), Settings({}), token_hash(TOKEN))
    assert asked.entrance is EntranceKind.TOKEN
    assert asked.token_hash == token_hash(TOKEN)
    assert not caplog.records
    none = for_other_hosts(
        RestSettings(), Settings({"security.rest.authentication": "none"}), token_hash(TOKEN)
    )
    assert none.entrance is EntranceKind.LOOPBACK
    assert "security.rest.authentication is none" in caplog.text


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((name, True) for name in ("localhost", "127.0.0.1", "127.1.2.3", "::1")),
        *((name, False) for name in ("", "0.0.0.0", "::", "10.0.0.1", "node7", "localhost.example")),
    ],
)
def test_only_loopback_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_server_decides_by_the_address_to_which_it_is_bound(tmp_path: Path) -> None:
    async def answer(host: str, settings: RestSettings, **values: str) -> int:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        server = RestServer(FakeCluster(folder, values).services, settings)
        await server.start(host, [0])
        try:
            async with httpx.AsyncClient() as client:
                return (await client.get(f"http://127.0.0.1:{server.port}/overview")).status_code
        finally:
            await server.stop()

    with_token = RestSettings(token_hash=token_hash(TOKEN))
    none = {"security.rest.authentication": "none"}
    assert run(answer("0.0.0.0", with_token)) == 401
    assert run(answer("127.0.0.1", with_token)) == 200
    assert run(answer("localhost", with_token)) == 200
    assert run(answer("0.0.0.0", with_token, **none)) == 200
    assert run(answer("0.0.0.0", RestSettings(), **none)) == 200
    for settings in (RestSettings(), RestSettings(entrance=EntranceKind.PROXY)):
        with pytest.raises(RestServerError, match=r"0\.0\.0\.0"):
            run(answer("0.0.0.0", settings))


def tls_settings(stores: Stores, **more: str) -> RestSettings:
    values = {**stores.settings("rest"), "security.ssl.rest.enabled": "true", **more}
    config = Settings(values)
    identity = rest_identity(config)
    assert identity is not None
    return replace(RestSettings(), tls=rest_server_context(identity, config))


def client_context(stores: Stores, certificate: Stores | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=stores.identity.ca_certificate.decode())
    context.check_hostname = False
    if certificate is not None:
        load_pair(context, certificate.identity.certificate, certificate.identity.private_key)
    return context


async def status(server: RestServer, context: ssl.SSLContext) -> int:
    async with httpx.AsyncClient(verify=context) as client:
        return (await client.get(f"https://{HOST}:{server.port}/overview")).status_code


def test_rest_by_tls_is_not_plain_too(cluster: FakeCluster, tmp_path: Path) -> None:
    stores = Stores(tmp_path)

    async def main() -> None:
        server = await started(cluster, tls_settings(stores))
        try:
            assert server.address == f"https://localhost:{server.port}"
            assert await status(server, client_context(stores)) == 200
            with pytest.raises(httpx.ConnectError):
                await status(server, client_context(Stores(tmp_path, "stranger")))
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(b"GET /overview HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP" not in await reader.read()
            writer.close()
        finally:
            await server.stop()

    run(main())


def test_clients_can_have_to_show_a_certificate(cluster: FakeCluster, tmp_path: Path) -> None:
    stores = Stores(tmp_path)

    async def main() -> None:
        mutual = tls_settings(stores, **{"security.ssl.rest.authentication-enabled": "true"})
        server = await started(cluster, mutual)
        try:
            assert await status(server, client_context(stores, stores)) == 200
            for certificate in (None, Stores(tmp_path, "stranger")):
                with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
                    await status(server, client_context(stores, certificate))
        finally:
            await server.stop()

    run(main())


def test_older_versions_of_tls_are_refused(cluster: FakeCluster, tmp_path: Path) -> None:
    stores = Stores(tmp_path)

    async def main() -> None:
        server = await started(cluster, tls_settings(stores, **{"security.ssl.protocol": "TLSv1.3"}))
        old = client_context(stores)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        try:
            with pytest.raises(httpx.ConnectError):
                await status(server, old)
            assert await status(server, client_context(stores)) == 200
        finally:
            await server.stop()

    run(main())


def test_a_host_at_its_limit_makes_nobody_else_give_way(cluster: FakeCluster) -> None:
    async def main() -> None:
        few = replace(WITH_TOKEN, max_waiting_connections=1, max_connections=4)
        server = await started(cluster, few)
        writers = []

        async def half_sent(host: str) -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection(HOST, server.port, local_addr=(host, 0))
            writer.write(b"GET /overview HTTP/1.1\r\nHost: x\r\n")
            writers.append(writer)
            return reader

        try:
            await half_sent("127.0.0.1")
            slow, slow_writer = await half_sent("127.0.0.2"), writers[-1]
            for _ in range(4):
                refused = await half_sent("127.0.0.1")
                with contextlib.suppress(ConnectionResetError):
                    assert await refused.read() == b""
            slow_writer.write(f"Authorization: Bearer {TOKEN}\r\n\r\n".encode())
            assert (await slow.readline()).startswith(b"HTTP/1.1 200 ")
        finally:
            for writer in writers:
                writer.close()
            await server.stop()

    run(main())
