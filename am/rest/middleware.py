"""What holds for every request before and after its handler: versions, origin, sizes, deadlines, headers.

Owner: the event loop of the REST server. Plain ASGI, no state between requests. It never looks into a body.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yarrow.am.rest.errors import ForbiddenError, RestError
from yarrow.am.rest.services import RestSettings

_log = logging.getLogger(__name__)

JSON_TYPE = "application/json; charset=UTF-8"
_PREFIX = "/v1"
#: Methods that change nothing by themselves.
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: Paths whose GET runs a program, takes rows away or cancels a job.
_ACTING_GETS = ("/plan", "/yarn-cancel", "/yarn-stop")


class RequestGuard:
    """The outermost layer: bare and versioned paths are one, and every answer has Flink's headers and form."""

    def __init__(self, app: ASGIApp, settings: RestSettings) -> None:
        self._app = app
        self._settings = settings
        self._origins = OriginCheck(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        _strip_version(scope)
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["access-control-allow-origin"] = self._settings.allow_origin
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            await self._origins.check(scope)
            _assume_json(scope)
            await self._app(scope, self._limited(scope, receive), send_with_headers)
        except RestError as error:
            await send_error(send_with_headers, error.status, str(error))
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            text = "Internal server error: the control plane's log says more."
            await send_error(send_with_headers, HTTPStatus.INTERNAL_SERVER_ERROR, text)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """`receive` within the limits of size and time; refusals are raised where the body is read."""
        limit = self._settings.max_request_bytes
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit() or int(declared) > limit:
            raise RestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(limit))
        loop = asyncio.get_running_loop()
        whole = loop.time() + self._settings.body_timeout
        received = 0
        complete = False

        async def receive_limited() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()  # waiting for the client to go takes as long as it takes
            try:
                async with asyncio.timeout_at(min(whole, loop.time() + self._settings.body_pause_timeout)):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    HTTPStatus.REQUEST_TIMEOUT, "The body of the request did not come in time."
                ) from None
            received += len(message.get("body", b""))
            if received > limit:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(limit))
            complete = not message.get("more_body", False)
            return message

        return receive_limited


def _too_large(limit: int) -> str:
    return (
        f"The request is larger than {limit} bytes (rest.server.max-content-length): raise the limit, or send"
        " less."
    )


async def send_error(send: Send, status: int, text: str) -> None:
    """An answer in the form of Flink's errors."""
    body = msgspec.json.encode({"errors": [text]})
    headers = [
        (b"content-type", JSON_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _strip_version(scope: Scope) -> None:
    path = scope["path"]
    if path == _PREFIX or path.startswith(f"{_PREFIX}/"):
        scope["path"] = path[len(_PREFIX) :] or "/"
        raw = scope.get("raw_path")
        if raw is not None:
            scope["raw_path"] = raw[len(_PREFIX) :] or b"/"


def _assume_json(scope: Scope) -> None:
    """Flink reads every body that is not multipart as JSON, whatever the client calls it.

    The check of origins came before: a page of another origin cannot make use of it.
    """
    if scope["method"] in _READING:
        return
    kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
    if not kind.startswith("multipart/") and kind != "application/octet-stream":
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        scope["headers"] = [*headers, (b"content-type", b"application/json")]


class OriginCheck:
    """Refuses what a web page of another origin asks for with the help of a browser on the inside.

    A request that changes something must name this server by an address or by a name of this host, so that a
    name which an attacker makes point here is no way in; and if it says which page it comes from, that page
    must be this server's own or the origin that `web.access-control-allow-origin` names. Clients that are no
    browsers send no Origin.
    """

    def __init__(self, settings: RestSettings) -> None:
        self._origin = settings.allow_origin if settings.allow_origin != "*" else None
        self._names = {"localhost", socket.gethostname().lower(), *settings.host_names}
        self._asked_for_full_name = False

    async def check(self, scope: Scope) -> None:
        """Raises ForbiddenError, saying what was expected."""
        if not _acts(scope):
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not await self._knows(_host_name(host)):
            raise ForbiddenError(
                f"The request is for the host {host!r}, which is not this one: use an address,"
                f" {' or '.join(sorted(self._names))}, or set rest.address to the name that is used."
            )
        origin = headers.get("origin")
        if origin is not None and origin != self._origin and urlsplit(origin).netloc.lower() != host.lower():
            raise ForbiddenError(
                f"A page of {origin!r} may not change anything here: only pages of this server, or of the"
                " origin that web.access-control-allow-origin names."
            )
        if origin is None and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise ForbiddenError("A page of another site may not change anything here.")

    async def _knows(self, name: str) -> bool:
        if name in self._names or _is_address(name):
            return True
        if not self._asked_for_full_name:
            # Asking may wait for a name server, so it is done for the first unknown name only.
            self._asked_for_full_name = True
            self._names.add((await asyncio.to_thread(socket.getfqdn)).lower())
        return name in self._names


def _acts(scope: Scope) -> bool:
    if scope["method"] not in _READING:
        return True
    path: str = scope["path"]
    program_plan = path.startswith("/jars/") and path.endswith(_ACTING_GETS)
    return program_plan or (path.startswith("/jobs/") and ("/yarn-" in path or "/collect/" in path))


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
