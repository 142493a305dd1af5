"""flink_router: the router on which a module of paths declares its paths.

Owner: none. The import of a module makes its routes, and no request changes them. Each application takes the routes as
they are: `include_router` would make them anew for every application. It must not know an application.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from fastapi.params import Depends
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

#: Flink's content type of JSON.
JSON_TYPE = "application/json; charset=UTF-8"


class FlinkJSONResponse(JSONResponse):
    """JSON with Flink's content type."""

    media_type = JSON_TYPE


def flink_router(tag: str, prefix: str = "", dependencies: Sequence[Depends] = ()) -> APIRouter:
    """A router whose answers are Flink's JSON, and whose operations are named after their functions."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        dependencies=dependencies,
        default_response_class=FlinkJSONResponse,
        generate_unique_id_function=operation_id,
    )


def operation_id(route: APIRoute) -> str:
    """The name of a path's function."""
    return route.name
