"""create_app: the REST API of one cluster as an ASGI application.

Owner: the event loop of the REST server. Importing this module loads the web framework; others import
server.py, which loads it when needed. It holds no state of the cluster: every answer is computed anew.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

import yarrow
from yarrow.am.rest.errors import status_of
from yarrow.am.rest.routes import (
    applications,
    checkpoints,
    cluster,
    job_manager,
    jobs,
    metrics,
    programs,
    rate_limits,
    rescaling,
    savepoints,
    schedules,
    spark_pages,
    submission,
    task_managers,
    vertices,
)
from yarrow.am.rest.routes.cluster_access import ClusterAccess
from yarrow.am.rest.routes.flink_router import FlinkJSONResponse, operation_id
from yarrow.am.rest.server.api_page import API_PAGE
from yarrow.am.rest.server.middleware import RequestGuard
from yarrow.am.rest.server.pages import Pages
from yarrow.am.rest.services import RestServices, RestSettings
from yarrow.runtime.common.errors import YarrowError

_log = logging.getLogger(__name__)
#: Quoted characters of a bad body in its refusal.
_QUOTED = 40

#: A special path comes before a general one that also matches it.
_ROUTERS = (
    cluster,
    job_manager,
    metrics,
    submission,
    applications,
    jobs,
    vertices,
    checkpoints,
    savepoints,
    rescaling,
    rate_limits,
    schedules,
    spark_pages,
    task_managers,
    programs,
)


class RestApplication(FastAPI):
    """FastAPI whose document describes our refusals: an invalid request gets 400, not 422."""

    _making_document = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document; made once, by the first thread that asks."""
        with self._making_document:
            if self.openapi_schema is None:
                self._take_out_unprocessable(super().openapi())
            assert self.openapi_schema is not None
            return self.openapi_schema

    def _take_out_unprocessable(self, document: dict[str, Any]) -> None:
        for methods in document["paths"].values():
            for operation in methods.values():
                operation["responses"] = _own_responses(operation["responses"])
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)


def _own_responses(responses: dict[str, Any]) -> dict[str, Any]:
    """The responses without the framework's own, in order of their statuses."""
    return {
        status: responses[status]
        for status in sorted(responses)
        if "HTTPValidationError" not in str(responses[status].get("content"))
    }


def create_app(services: RestServices, settings: RestSettings | None = None) -> FastAPI:
    """The application; `settings` None = those of the cluster's configuration."""
    settings = settings or RestSettings.of(services.settings)
    access = ClusterAccess.of(services, settings)

    pages = Pages(settings.pages)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        access.close()
        pages.close()

    app = RestApplication(
        title="Yarrow REST API",
        summary="Paths and fields are those of Flink's REST API, bare and under /v1.",
        version=yarrow.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        default_response_class=FlinkJSONResponse,
        lifespan=lifespan,
        generate_unique_id_function=operation_id,
        redirect_slashes=False,
    )
    app.state.access = access
    for module in _ROUTERS:
        app.router.routes.extend(module.router.routes)
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    app.add_exception_handler(HTTPException, _refuse_http)
    app.add_exception_handler(YarrowError, _refuse_error)
    app.add_middleware(RequestGuard, settings=settings)

    @app.get("/docs", include_in_schema=False)
    async def show_api() -> HTMLResponse:
        return HTMLResponse(API_PAGE)

    @app.get("/openapi.json", include_in_schema=False)
    async def document() -> FlinkJSONResponse:
        # The first call takes a moment, so it must not run on the cluster's loop.
        return FlinkJSONResponse(await asyncio.to_thread(app.openapi))

    # Last: a page never hides a path of the API.
    app.router.routes.append(pages)
    return app


def _error(status: int, errors: Sequence[str], headers: dict[str, str] | None = None) -> JSONResponse:
    return FlinkJSONResponse({"errors": list(errors)}, status_code=status, headers=headers)


async def _refuse_invalid(request: Request, error: Exception) -> JSONResponse:
    """Names every invalid part of a request."""
    assert isinstance(error, RequestValidationError)
    return _error(HTTPStatus.BAD_REQUEST, [_invalid_part(part, error.body) for part in error.errors()])


def _invalid_part(part: dict[str, Any], body: object) -> str:
    if part.get("type") == "json_invalid":
        return _invalid_json(str(part.get("ctx", {}).get("error", "")), body, part["loc"][-1])
    location = part.get("loc")
    names = [str(name) for name in location] if isinstance(location, Sequence) else []
    where = (
        " ".join((f"{names[0]} parameter" if names[0] != "body" else "body", ".".join(names[1:])))
        if names
        else ""
    )
    given = repr(part.get("input"))
    return f"{where.strip() or 'request'}: {part.get('msg')} (given: {given[:200]})"


def _invalid_json(why: str, body: object, position: int) -> str:
    """The error in a body that should be JSON, with the text at its position."""
    text = body if isinstance(body, str) else ""
    line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
    found = repr(text[position : position + _QUOTED]) if position < len(text) else "the end of the body"
    return f"body: expected JSON: {why or 'it cannot be read'}, line {line}, column {column}, at {found}"


async def _refuse_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    text = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        text = f"Not found: {request.url.path}"
    elif isinstance(error.__cause__, UnicodeDecodeError):
        wrong = error.__cause__
        text = f"body: expected JSON in UTF-8: byte {wrong.start} is 0x{wrong.object[wrong.start]:02x}: {wrong.reason}"
    elif isinstance(error.__cause__, RecursionError):
        text = "body: expected JSON: it is nested too deeply"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        text = f"Method {request.method} is not allowed for {request.url.path}."
    return _error(error.status_code, [text], dict(error.headers) if error.headers else None)


async def _refuse_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, YarrowError)
    status = status_of(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("%s %s: %s", request.method, request.url.path, error)
    return _error(status, [str(error)])
