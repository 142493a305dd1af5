"""LazyWeb: the web API of an embedded cluster, which loads its modules when the first client connects.

Owner: the shared loop; the imports run in a thread. The port is taken at once, so that its number can be told
and that a port in use is an error before a job starts; who never asks pays nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.options import rest
from yarrow.runtime.config.settings import Settings

if TYPE_CHECKING:
    from yarrow.am.cluster_entrypoint import ControlPlane, WebEndpoint

_DEFAULT_HOST = "127.0.0.1"
_FIRST_PORT = 8081
_PORTS_TRIED = 1000
_log = logging.getLogger(__name__)


class RestPortError(YarrowError):
    """No port for the web API."""


def bind_rest_port(config: Settings) -> socket.socket:
    """A listening socket on rest.port (or rest.bind-port) where set, else on the first free one from 8081."""
    host = config.get(rest.BIND_ADDRESS) or _DEFAULT_HOST
    is_set = config.is_set(rest.BIND_PORT)
    ports = _configured(config) if is_set else iter(range(_FIRST_PORT, _FIRST_PORT + _PORTS_TRIED))
    failure: OSError | None = None
    for port in ports:
        try:
            return _listen(host, port)
        except OSError as error:
            failure = error
    wanted = f"rest.port {config.get(rest.BIND_PORT)}" if is_set else f"a port from {_FIRST_PORT}"
    raise RestPortError(
        f"The web API cannot listen on {host}, {wanted}: {failure}."
        " Set rest.port to a free port, or to none for the first free one from 8081."
    )


def _configured(config: Settings) -> Iterator[int]:
    for first, last in config.get(rest.BIND_PORT).intervals:
        yield from range(first, last + 1)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class LazyWeb:
    """The listener, and behind it the server once somebody has asked."""

    def __init__(self, plane: ControlPlane, config: Settings, listener: socket.socket) -> None:
        """Owns `listener` from now on."""
        self._plane = plane
        self._config = config
        self._listener = listener
        self._loading: asyncio.Task[WebEndpoint] | None = None
        host, port = listener.getsockname()[:2]
        self.port: int = port
        #: URL for people; names the loopback where all addresses are served.
        self.address = f"http://{'localhost' if host in ('127.0.0.1', '0.0.0.0', '::') else host}:{port}"

    def start(self) -> None:
        """Waits for the first connection."""
        asyncio.get_running_loop().add_reader(self._listener, self._first_connection)

    def _first_connection(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._loading = loop.create_task(self._load())
        self._loading.add_done_callback(_report)

    async def _load(self) -> WebEndpoint:
        from importlib import import_module

        server = await asyncio.to_thread(import_module, "yarrow.am.rest.server")
        web: WebEndpoint = await server.start_web(self._plane, self._config, self._listener)
        return web

    async def stop(self) -> None:
        """Takes no more requests and closes the port."""
        asyncio.get_running_loop().remove_reader(self._listener)
        if self._loading is not None:
            self._loading.cancel()
            [web] = await asyncio.gather(self._loading, return_exceptions=True)
            if not isinstance(web, BaseException):
                await web.stop()
        self._listener.close()


def _report(loading: asyncio.Task[WebEndpoint]) -> None:
    if not loading.cancelled() and (error := loading.exception()) is not None:
        _log.error("the web API could not be loaded", exc_info=error)
