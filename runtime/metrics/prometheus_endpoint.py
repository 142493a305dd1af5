"""PrometheusEndpoint: the page of all metrics on a port of its own, without a web framework.

Owner: the event loop on which `start` ran. It answers GET only, one request a connection, and holds no state;
a client that is slow to ask is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.metrics.prometheus_text import CONTENT_TYPE, render
from yarrow.runtime.metrics.samples import Sample

_log = logging.getLogger(__name__)

#: Ports tried after the one that is set, as Flink's range 9250-9260 is for more processes on a host.
PORTS_TO_TRY = 12
_MAX_HEAD_BYTES = 16 * 1024
_HEAD_SECONDS = 10.0
_SEND_SECONDS = 30.0

CollectSamples = Callable[[], Awaitable[Iterable[Sample]]]


class NoFreePortError(YarrowError):
    """Every port that was to be tried is in use."""


class PrometheusEndpoint:
    """A server of the text that `collect` returns, at every path."""

    def __init__(self, collect: CollectSamples, filter_label_values: bool = True) -> None:
        self._collect = collect
        self._filter = filter_label_values
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str | None, ports: Iterable[int]) -> int:
        """Listens on the first free port of `ports` and returns it; `host` None = all addresses.

        Raises NoFreePortError naming those that were tried.
        """
        tried = list(ports)
        for port in tried:
            try:
                self._server = await asyncio.start_server(self._connected, host, port, limit=_MAX_HEAD_BYTES)
            except OSError as error:
                _log.debug("the Prometheus endpoint cannot listen on port %d: %s", port, error)
                continue
            self.port = self._server.sockets[0].getsockname()[1]
            return self.port
        raise NoFreePortError(
            f"no port for the Prometheus endpoint is free, tried {tried}:"
            " set metrics.reporter.prom.port to another, or to a range"
        )

    async def stop(self) -> None:
        """Closes the port and every connection. A second call does nothing."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(await self._answer(head))
            async with asyncio.timeout(_SEND_SECONDS):
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # a client that does not speak HTTP, is slow, or has gone
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        method = head.split(b" ", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET is answered\n", b"", allow=True)
        try:
            body = render(await self._collect(), self._filter).encode()
        except YarrowError as error:
            _log.warning("metrics could not be collected for Prometheus: %s", error)
            return _response("503 Service Unavailable", f"{error}\n".encode(), method)
        return _response("200 OK", body, method)


def _response(status: str, body: bytes, method: bytes, allow: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
        f"{'Allow: GET, HEAD' + chr(13) + chr(10) if allow else ''}Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else body)
