"""The server on a real port: start, laziness, deadlines, Prometheus, stop."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.unit.am.rest.fakes import FakeCluster
from tests.unit.am.rest.running import run
from yarrow.am.rest.errors import RestServerError
from yarrow.am.rest.server.server import RestServer, free_ports
from yarrow.am.rest.server.web_server import WebServer
from yarrow.am.rest.services import RestServices, RestSettings
from yarrow.runtime.metrics.prometheus_endpoint import NoFreePortError


async def serve(
    services: RestServices, host: str, port: int | None = None, *, lazily: bool = False
) -> RestServer:
    """A started server on `port`, or on the first free port from 8081; its `address` tells."""
    server = RestServer(services)
    await server.start(host, free_ports(port), lazily=lazily)
    return server


@pytest.mark.parametrize("lazily", [False, True])
def test_server_answers_until_it_is_stopped(cluster: FakeCluster, lazily: bool) -> None:
    async def main() -> None:
        server = await serve(cluster.services, "127.0.0.1", 0, lazily=lazily)
        try:
            assert server.address == f"http://localhost:{server.port}"
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as client:
                answers = await asyncio.gather(*(client.get("/v1/overview") for _ in range(3)))
                assert [answer.status_code for answer in answers] == [200, 200, 200]
                upload = await client.post("/jars/upload", files={"jarfile": ("a.py", b"")})
                assert upload.status_code == 200
        finally:
            await server.stop()
            await server.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        assert not list(RestSettings.of(cluster.services.settings).temporary_directory.iterdir())

    run(main())


def test_lazy_server_stops_without_a_client(cluster: FakeCluster) -> None:
    async def main() -> None:
        server = await serve(cluster.services, "127.0.0.1", 0, lazily=True)
        await server.stop()

    run(main())


def test_lazy_server_does_not_load_the_framework() -> None:
    program = "import sys, yarrow.am.rest.server.server; print(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"fastapi", "uvicorn", "starlette", "pydantic"} & set(finished.stdout.split())


def test_port_in_use_is_named_and_the_next_of_a_range_taken(cluster: FakeCluster) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = other.getsockname()[1]
            with pytest.raises(RestServerError, match=f"port {taken} is in use"):
                await serve(cluster.services, "127.0.0.1", taken)
            server = RestServer(cluster.services)
            await server.start("127.0.0.1", [taken, 0], lazily=True)
            assert server.port != taken
            await server.stop()

    run(main())


def test_address_of_another_host_is_refused(cluster: FakeCluster) -> None:
    with pytest.raises(RestServerError, match=r"rest\.bind-address"):
        run(serve(cluster.services, "192.0.2.1", 0))


def test_client_that_sends_no_head_is_cut_off(cluster: FakeCluster) -> None:
    async def main() -> None:
        settings = RestSettings(head_timeout=0.5)
        server = RestServer(cluster.services, settings)
        await server.start("127.0.0.1", [0])
        try:
            for beginning in (b"", b"GET /overview HTTP/1.1\r\nHost: lo"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(beginning)
                assert await reader.read() == b""
                writer.close()
            # After an answer the connection stays, until a next head begins and does not end.
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /config HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            writer.write(b"GET /")
            assert (await reader.read()).endswith(b"}")
            writer.close()
        finally:
            await server.stop()

    run(main())


def test_prometheus_has_a_port_of_its_own(tmp_path: Path) -> None:
    cluster = FakeCluster(
        tmp_path, {"metrics.reporter.prom.port": "0", "metrics.reporter.prom.host": "127.0.0.1"}
    )

    async def main() -> str:
        server = await serve(cluster.services, "127.0.0.1", 0, lazily=True)
        try:
            assert server.prometheus_port
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.prometheus_port}") as client:
                assert (await client.post("/metrics")).status_code == 405
                return (await client.get("/metrics")).text
        finally:
            await server.stop()

    page = run(main())
    assert "\nflink_jobmanager_taskSlotsTotal{" in page
    assert "\nflink_taskmanager_Status_JVM_Memory_Heap_Used{" in page
    assert "\nflink_jobmanager_job_uptime{" in page
    assert "\nflink_taskmanager_job_task_backPressuredTimeMsPerSecond{" in page


def test_prometheus_is_off_unless_asked_for(cluster: FakeCluster) -> None:
    async def main() -> int | None:
        server = await serve(cluster.services, "127.0.0.1", 0, lazily=True)
        await server.stop()
        return server.prometheus_port

    assert run(main()) is None


def test_start_that_fails_leaves_no_port_open(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = other.getsockname()[1]
            values = {"metrics.reporter.prom.port": str(taken), "metrics.reporter.prom.host": "127.0.0.1"}
            server = RestServer(FakeCluster(tmp_path, values).services)
            with pytest.raises(NoFreePortError, match=str(taken)):
                await server.start("127.0.0.1", [0], lazily=True)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", server.port)

    run(main())


@pytest.fixture
def many_files() -> Iterator[None]:
    """Both ends of some thousand connections lie in this process."""
    former = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, former[1]), former[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, former)


def test_while_a_thousand_requests_are_half_sent_a_complete_one_is_answered(
    cluster: FakeCluster, many_files: None
) -> None:
    async def main() -> None:
        server = RestServer(cluster.services)
        await server.start("127.0.0.1", [0])
        opened = []
        try:
            for _ in range(1000):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /overview HTTP/1.1\r\nHost: localhost\r\n")
                opened.append(writer)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
                assert (await client.get("/overview")).status_code == 200
        finally:
            for writer in opened:
                writer.close()
            await server.stop()

    run(main())


def test_an_idle_connection_is_closed_after_the_idleness_timeout(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, {"rest.idleness-timeout": "1 s"})
    web_server = WebServer(cluster.services, RestSettings.of(cluster.services.settings))
    assert web_server._server.config.timeout_keep_alive == 1

    async def main() -> None:
        server = await serve(cluster.services, "127.0.0.1", 0)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
            # The end of the stream: the server has closed the connection, though the client has not.
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        finally:
            await server.stop()

    run(main())
