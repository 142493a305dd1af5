"""RequestGuard: the checks before and after every handler: versions, entrance, sizes, deadlines, headers.

Owner: the event loop of the REST server. Plain ASGI, no state between requests. It never looks into a body.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yarrow.am.rest.entrances import READING, entrance_of
from yarrow.am.rest.errors import RequestRefusedError
from yarrow.am.rest.routes.flink_router import JSON_TYPE
from yarrow.am.rest.services import EntranceKind, RestSettings

_log = logging.getLogger(__name__)

_PREFIX = "/v1"


class RequestGuard:
    """The outermost layer: it unites bare and versioned paths, and gives every answer Flink's headers and form."""

    def __init__(self, app: ASGIApp, settings: RestSettings) -> None:
        self._app = app
        self._settings = settings
        self._entrance = entrance_of(settings)

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
                allowed = self._settings.allow_origin
                if allowed is not None and self._settings.entrance is not EntranceKind.PROXY:
                    # Behind the proxy, the operator's browser is admitted: its other pages must not read with
                    # it.
                    headers["access-control-allow-origin"] = allowed
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            await self._entrance.check(scope)
            _assume_json(scope)
            await self._app(scope, self._limited(scope, receive), send_with_headers)
        except RequestRefusedError as error:
            await send_error(send_with_headers, error.status, str(error), error.headers)
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            text = "Internal server error: the control plane's log says more."
            await send_error(send_with_headers, HTTPStatus.INTERNAL_SERVER_ERROR, text)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """`receive` with limits of size and time; it raises refusals where the body is read."""
        limit = self._settings.max_request_bytes
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit() or int(declared) > limit:
            raise RequestRefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(limit))
        loop = asyncio.get_running_loop()
        whole = loop.time() + self._settings.body_timeout
        received = 0
        complete = False

        async def receive_limited() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()  # waiting for the client to leave has no limit
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


async def send_error(send: Send, status: int, text: str, more: Mapping[str, str] | None = None) -> None:
    """An answer in the form of Flink's errors."""
    body = msgspec.json.encode({"errors": [text]})
    headers = [
        (b"content-type", JSON_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        *((name.encode(), value.encode()) for name, value in (more or {}).items()),
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
    """Flink reads every body except multipart as JSON, whatever its content type.

    The check of origins ran before, so a page of another origin cannot use this.
    """
    if scope["method"] in READING:
        return
    kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
    if not kind.startswith("multipart/") and kind != "application/octet-stream":
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        scope["headers"] = [*headers, (b"content-type", b"application/json")]
