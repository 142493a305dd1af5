"""WebServer: uvicorn with the REST application on a socket, without signal handlers or ticks.

Owner: the event loop on which `start` ran. Importing this module loads the web framework.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from yarrow.am.rest.app import create_app
from yarrow.am.rest.operations import Operations
from yarrow.am.rest.services import RestServices, RestSettings

#: Seconds that running requests get when the server ends.
_GRACE = 1
#: Longest head of a request, in bytes.
_MAX_HEAD_BYTES = 64 * 1024


class WebServer:
    """The REST API of one cluster on one socket."""

    def __init__(self, services: RestServices, settings: RestSettings) -> None:
        app = create_app(services, settings)
        self._operations: Operations = app.state.access.operations
        config = uvicorn.Config(
            app,
            http=_protocol(settings.head_timeout),
            ws="none",
            loop="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=settings.max_connections,
            timeout_keep_alive=settings.keep_alive,
            timeout_graceful_shutdown=_GRACE,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._socket: socket.socket | None = None

    async def start(self, listening: socket.socket) -> None:
        """Serves a socket that listens already. uvicorn's own `serve` would take the process's signals."""
        self._socket = listening
        await self._server.startup(sockets=[listening])

    async def answer(self) -> None:
        """Lets clients hear, for a moment, how what they have begun has ended."""
        await self._operations.answer()

    async def stop(self) -> None:
        """Closes the socket, then the connections; requests that still run get a second."""
        if self._socket is not None and self._server.started:
            await self._server.shutdown(sockets=[self._socket])


def _protocol(head_timeout: float) -> type[H11Protocol]:
    return type("TimedProtocol", (_TimedProtocol,), {"head_timeout": head_timeout})


class _TimedProtocol(H11Protocol):
    """HTTP whose clients have to send the head of each request in time; uvicorn waits for ever."""

    head_timeout = 15.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not cycle:
            self._forget_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        close = functools.partial(self.transport.close)
        self._deadline = self.loop.call_later(self.head_timeout, close)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
