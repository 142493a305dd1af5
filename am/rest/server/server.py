"""RestServer: the REST API on a port, on the event loop on which it was started.

Owner: that loop; no thread of its own, no signal handlers. Importing this module does not load the web
framework. A server that starts lazily loads it when the first client connects, and the kernel holds the
connection until then. So a job without clients costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

import yarrow.runtime.config.options.metrics as metric_options
from yarrow.am.rest.errors import RestServerError
from yarrow.am.rest.metric_samples import MetricSamples
from yarrow.am.rest.services import (
    EntranceKind,
    RestServices,
    RestSettings,
    prometheus_is_on,
    settings_for_address,
)
from yarrow.runtime.metrics.prometheus_endpoint import PORTS_TO_TRY, PrometheusEndpoint

if TYPE_CHECKING:
    from yarrow.am.rest.server.web_server import WebServer

_log = logging.getLogger(__name__)

#: First port of a server without a configured port, and the number of ports to try.
FIRST_PORT = 8081
PORTS_FROM_FIRST = 1000
_BACKLOG = 256


class RestServer:
    """One server; `stop` ends it."""

    def __init__(self, services: RestServices, settings: RestSettings | None = None) -> None:
        self._services = services
        self._settings = settings or RestSettings.of(services.settings)
        self._socket: socket.socket | None = None
        self._loading: asyncio.Task[None] | None = None
        self._web: WebServer | None = None
        self._prometheus: PrometheusEndpoint | None = None
        self.host = ""
        self.port = 0

    @property
    def address(self) -> str:
        """`http://host:port` (or https), as clients on this host use it."""
        host = {"": "localhost", "0.0.0.0": "localhost", "::": "localhost", "127.0.0.1": "localhost"}
        scheme = "http" if self._settings.tls is None else "https"
        return f"{scheme}://{host.get(self.host, self.host)}:{self.port}"

    @property
    def asks_for_token(self) -> bool:
        """Whether clients must show a token; known after `start`."""
        return self._settings.entrance is EntranceKind.TOKEN

    @property
    def prometheus_port(self) -> int | None:
        """The port of the Prometheus endpoint; None where it is off."""
        return self._prometheus.port if self._prometheus is not None else None

    async def start(self, host: str, ports: Iterable[int], *, lazily: bool = False) -> str:
        """Listens on the first free port and returns the address.

        Raises RestServerError if no port is free, or if other hosts could enter without a token.

        `lazily` = load the web framework when the first client connects.
        """
        self.host = host
        self._socket = _listen(host, ports)
        bound, self.port = self._socket.getsockname()[:2]
        try:
            self._settings = settings_for_address(self._settings, self._services.settings, bound)
            if lazily:
                asyncio.get_running_loop().add_reader(self._socket.fileno(), self._first_client)
            else:
                await self._load()
            await self._start_prometheus()
        except BaseException:
            await self.stop()
            raise
        return self.address

    def load_soon(self) -> None:
        """Loads the web framework of a lazy server now, without waiting for a client or delaying one."""
        if self._socket is not None and self._loading is None and self._web is None:
            self._first_client()

    async def stop(self) -> None:
        """Accepts no more requests, and gives running ones a moment to end. A second call does nothing.

        Outcomes of operations that have just ended are sent before.
        """
        if self._socket is not None and self._web is not None:
            await self._web.answer()
        listening, self._socket = self._socket, None
        if listening is not None:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        if self._loading is not None:
            self._loading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loading
        if self._web is not None:
            web, self._web = self._web, None
            await web.stop()
        if listening is not None:
            listening.close()
        if self._prometheus is not None:
            prometheus, self._prometheus = self._prometheus, None
            await prometheus.stop()

    def _first_client(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._loading = asyncio.create_task(self._load(), name="load the web server")
        self._loading.add_done_callback(_log_failure)

    async def _load(self) -> None:
        listening = self._socket
        assert listening is not None
        # Imports take a while, so they must not run on the cluster's loop.
        make = await asyncio.to_thread(_import_web_server)
        web = make(self._services, self._settings)
        if self._socket is listening:
            self._web = web
            await web.start(listening)

    async def _start_prometheus(self) -> None:
        settings = self._services.settings
        if not prometheus_is_on(settings):
            return
        collect = MetricSamples(self._services).collect
        filtered = settings.get(metric_options.PROMETHEUS_FILTER_LABELS)
        endpoint = PrometheusEndpoint(collect, filtered)
        configured = settings.get(metric_options.PROMETHEUS_PORT)
        ports = list(configured)
        if len(ports) == 1 and not settings.is_set(metric_options.PROMETHEUS_PORT):
            ports = list(range(ports[0], ports[0] + PORTS_TO_TRY))
        await endpoint.start(settings.get(metric_options.PROMETHEUS_HOST), ports)
        self._prometheus = endpoint
        _log.info("metrics for Prometheus on port %d", endpoint.port)


def _import_web_server() -> type[WebServer]:
    from yarrow.am.rest.server.web_server import WebServer

    return WebServer


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("the REST server could not be started", exc_info=task.exception())


def free_ports(port: int | None) -> Iterable[int]:
    """The configured port alone; else the ports from 8081 on, of which the first free one is taken."""
    return [port] if port is not None else range(FIRST_PORT, FIRST_PORT + PORTS_FROM_FIRST)


def _listen(host: str, ports: Iterable[int]) -> socket.socket:
    tried: list[int] = []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(_BACKLOG)
            listening.setblocking(False)
            return listening
        except OSError as error:
            listening.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise RestServerError(
                    f"the REST server cannot listen on {host!r}, port {port}: {error.strerror}."
                    " rest.bind-address must be an address of this host"
                ) from error
            tried.append(port)
    shown = f"{tried[0]} to {tried[-1]}" if len(tried) > 1 else str(tried[0] if tried else "none")
    raise RestServerError(
        f"the REST server cannot listen on {host or 'any address'}: port {shown} is in use. Set "
        "rest.port to another port, or rest.bind-port to a range. Set rest.bind-port to 0 where any "
        "port will do, as for a program that runs beside a local cluster"
    )
