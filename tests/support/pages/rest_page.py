"""docs/rest.md, written from the application's OpenAPI document, so that page and code agree.

Owner: none (pure). It starts no server and reaches no cluster. The text depends on the declarations alone, never on the
machine or the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from yarrow.am.rest.server.app import create_app
from yarrow.am.rest.services import RestServices, RestSettings
from yarrow.runtime.rpc.gateways import DispatcherGateway, ResourceManagerGateway

_INTRODUCTION: Final = """\
# REST API

`python -m tests.support.pages` writes this page from the models of the server's answers.
A running server shows the same at `/docs`, and as an OpenAPI document at `/openapi.json`.

Paths and fields are those of Flink's REST API. If Flink 1.x and 2.x name a thing differently, both names
are there. Paths and fields that exist only here are marked as Yarrow's.

- Every path works bare and under `/v1`. Ids are 32 hexadecimal digits. Times are epoch milliseconds, durations
  milliseconds, sizes bytes; -1 means not yet.
- A refusal is `{"errors": ["..."]}`. A status below 500 is the caller's error. 400 is a wrong parameter, id or
  body, 403 not allowed, 404 no such thing, 405 wrong method and 408 no body in time. 409 is not in this state,
  413 too large (`rest.server.max-content-length`) and 422 a failed uploaded program. 503 and 504 mean that a
  part of the cluster does not answer.
- The server reads a body that is not multipart as JSON, whatever type the request names.
- On a loopback address every request has to name this server. Its names are a loopback name or address, the address at
  which it listens, a name of its host, and `rest.address`.
- On a loopback address, a request that changes something, runs a program or takes rows away may not come from a page of
  another origin. Such a page cannot read either, since the answer has no header that allows it.
  `web.access-control-allow-origin` may name one origin that may do both. `GET /jars/{jarid}/plan` wants
  `X-Requested-With: NAME` from clients that are no page of the server. Clients that are no browsers need nothing else.
- On YARN and on any other address every request bears `Authorization: Bearer TOKEN`, with the token that `yarrow token`
  prints. Without it the answer is 401. YARN's proxy gives views only. [security.md](security.md) has more.
- Uploaded programs are Python files or zips of modules. The main of a program runs in a process of its own, at most two
  minutes (`web.timeout` if that is less). The server submits its jobs when the main has ended well.

Metrics for Prometheus have a port of their own: 9249 or the first free one up to 9260, or
`metrics.reporter.prom.port`. This option, or `prom` in `metrics.reporters`, switches the port on. One endpoint,
in the control plane process, shows the metrics of all processes of the cluster. Names and labels are those of Flink's
reporter. TaskExecutors have no endpoint.
"""


def render() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def open_api() -> dict[str, Any]:
    """The OpenAPI document of an application without a cluster, which is never called."""
    nothing = cast("Any", None)
    services = RestServices(
        dispatcher=cast("DispatcherGateway", nothing),
        resource_manager=cast("ResourceManagerGateway", nothing),
        connect_task_executor=cast("Any", nothing),
    )
    return create_app(services, RestSettings()).openapi()


def _lines() -> Iterator[str]:
    api = open_api()
    yield _INTRODUCTION
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append((path, method, operation))
    for title, operations in groups.items():
        yield f"## {title}\n"
        for path, method, operation in operations:
            yield from _operation(path, method, operation)
    yield "## Bodies\n"
    for name, schema in sorted(api["components"]["schemas"].items()):
        yield from _schema(name, schema)


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {method.upper()} {path}\n"
    yield f"{operation['description']}\n"
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "query":
            text = f"- `{parameter['name']}` ({_type(parameter['schema'])})"
            yield f"{text}: {parameter['description']}" if "description" in parameter else text
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f"- Request: {kind}, {_type(body['schema'])}"
    for status, answer in operation["responses"].items():
        if int(status) < 400:
            yield f"- Answer {status}: {_answer(answer)}"
    refusals = [status for status in operation["responses"] if int(status) >= 400]
    yield f"- Refusals: {', '.join(refusals)}\n"


def _answer(answer: Mapping[str, Any]) -> str:
    parts = [f"{kind}, {_type(body['schema'])}" for kind, body in answer.get("content", {}).items()]
    told = answer["description"]
    return "; ".join(parts) if told == "Successful Response" else f"{'; '.join(parts)}. {told}"


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    if "description" in schema:
        yield f"{' '.join(str(schema['description']).split())}\n"
    required = set(schema.get("required", ()))
    for field, inner in schema.get("properties", {}).items():
        optional = "" if field in required else ", may be left out"
        told = f": {inner['description']}" if "description" in inner else ""
        yield f"- `{field}` {_type(inner)}{optional}{told}"
    if "enum" in schema:
        yield ", ".join(f"`{value}`" for value in schema["enum"])
    yield ""


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"map of {_type(schema['additionalProperties'])}"
    if schema.get("format") == "binary" or "contentMediaType" in schema:
        return "bytes"
    return str(kind)
