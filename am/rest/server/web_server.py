"""WebServer: uvicorn with the REST application on a socket, without signal handlers or ticks.

Owner: the event loop on which `start` ran. Importing this module loads the web framework.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import sys
from collections import Counter
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from yarrow.am.rest.operations import Operations
from yarrow.am.rest.server.app import create_app
from yarrow.am.rest.services import EntranceKind, RestServices, RestSettings

#: Seconds for running requests when the server ends.
_GRACE = 1
#: Most bytes of a request's head.
_MAX_HEAD_BYTES = 64 * 1024


class WebServer:
    """The REST API of one cluster on one socket."""

    def __init__(self, services: RestServices, settings: RestSettings) -> None:
        app = create_app(services, settings)
        self._operations: Operations = app.state.access.operations
        config = uvicorn.Config(
            app,
            http=_protocol(settings),
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
        config.ssl = settings.tls
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._socket: socket.socket | None = None

    async def start(self, listening: socket.socket) -> None:
        """Serves a socket that already listens. uvicorn's own `serve` would take over the process's signals."""
        self._socket = listening
        await self._server.startup(sockets=[listening])

    async def answer(self) -> None:
        """Gives clients a moment to fetch the outcomes of their operations."""
        await self._operations.answer()

    async def stop(self) -> None:
        """Closes the socket, then the connections; requests that still run get a second."""
        if self._socket is not None and self._server.started:
            await self._server.shutdown(sockets=[self._socket])


def _protocol(settings: RestSettings) -> type[H11Protocol]:
    limited = settings.entrance is EntranceKind.TOKEN
    own = {
        "head_timeout": settings.head_timeout,
        "max_waiting": settings.max_waiting_connections if limited else sys.maxsize,
        "waiting": Counter[str](),
        "most_waiting": max(1, settings.max_connections // 2),
        "in_order": {},
    }
    return type("TimedProtocol", (_TimedProtocol,), own)


class _TimedProtocol(H11Protocol):
    """HTTP with a time limit for the head of each request; uvicorn alone would wait for ever.

    A connection waits until it has sent a head. One host may have at most `max_waiting` waiting connections,
    and all hosts together `most_waiting`. Beyond that, the connection that has waited longest is closed, so
    that silent connections leave room for others.
    """

    head_timeout = 15.0
    max_waiting = sys.maxsize
    #: Waiting connections by host; one table for each server.
    waiting: ClassVar[Counter[str]] = Counter()
    most_waiting = sys.maxsize
    #: Waiting connections, the longest waiting one first; one table for each server.
    in_order: ClassVar[dict[_TimedProtocol, None]] = {}
    _deadline: asyncio.TimerHandle | None = None
    _host = ""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._host = self.client[0] if self.client else ""
        if self.waiting[self._host] >= self.max_waiting:
            transport.abort()  # before another connection gives way to it
        else:
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
        self.waiting[self._host] += 1
        close = functools.partial(self.transport.close)
        self._deadline = self.loop.call_later(self.head_timeout, close)
        self.in_order[self] = None
        if len(self.in_order) > self.most_waiting:
            next(iter(self.in_order))._give_way()

    def _give_way(self) -> None:
        self._forget_deadline()
        self.transport.abort()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self.in_order.pop(self, None)
            self.waiting[self._host] -= 1
            if not self.waiting[self._host]:
                del self.waiting[self._host]
