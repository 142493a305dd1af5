"""Paths, statuses, query parameters and fields of the REST API against Flink's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.compat.rest.exclusions import (
    FIELDS,
    FIELDS_AT_MOST,
    NEVER_ANSWERED,
    PATHS,
    PATHS_AT_MOST,
    QUERY,
)
from tests.compat.rest.flink_shapes import FlinkPath, Shape, flink_paths, parse
from tests.unit.am.rest.fakes import FakeCluster

FLINK = flink_paths()
SERVED = [path for path in FLINK if (path.path, path.method) not in PATHS]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    return FakeCluster(folder).app().openapi()


def _title(path: FlinkPath) -> str:
    return f"{path.method} {path.path}"


def test_the_list_is_read_whole() -> None:
    assert len(FLINK) > 90
    details = next(path for path in FLINK if _title(path) == "get /jobs/{jobid}")
    vertices = details.response.fields["vertices"].items
    assert vertices is not None
    assert "read-bytes-complete" in vertices.fields["metrics"].fields


def test_a_shape_is_read_with_its_nesting() -> None:
    shape = parse("A(x:long, y:[B(z:{C:D(w:E[P, Q])})], self:[^A])")
    assert set(shape.fields) == {"x", "y", "self"}
    items = shape.fields["y"].items
    assert items is not None
    values = items.fields["z"].items
    assert values is not None
    assert set(values.fields) == {"w"}


def test_exclusions_are_paths_of_flink_that_are_not_served(api: dict[str, Any]) -> None:
    assert len(PATHS) <= PATHS_AT_MOST
    known = {(path.path, path.method) for path in FLINK}
    assert set(PATHS) <= known
    served = {(path, method) for path, methods in api["paths"].items() for method in methods}
    assert not set(PATHS) & served, "these are served now: take them off the list"
    assert sum(len(fields) for fields in FIELDS.values()) <= FIELDS_AT_MOST


@pytest.mark.parametrize("flink", SERVED, ids=_title)
def test_path_has_flinks_status_parameters_and_fields(flink: FlinkPath, api: dict[str, Any]) -> None:
    operation = api["paths"].get(flink.path, {}).get(flink.method)
    assert operation is not None, "the path is not served and not on the list of exclusions"
    key = (flink.path, flink.method)
    parameters = {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
    unknown = set(flink.query) - parameters - QUERY.get(key, set())
    assert not unknown, f"query parameters {unknown}"
    if flink.status is None:
        return
    assert str(flink.status) in operation["responses"]
    schemas = api["components"]["schemas"]
    if key not in NEVER_ANSWERED:
        content = operation["responses"][str(flink.status)]["content"]
        schema = next(iter(content.values()))["schema"]
        missing = {
            field.rpartition(".")[2] for field in missing_fields(flink.response, schema, schemas, "answer")
        }
        assert missing == set(FIELDS.get(key, {}))
    if flink.request.fields and flink.path != "/jobs":
        body = operation.get("requestBody")
        if body is None:
            assert flink.method == "get", "the request has no body"
            return
        schema = body["content"]["application/json"]["schema"]
        assert not list(missing_fields(flink.request, schema, schemas, "request"))


def missing_fields(shape: Shape, schema: dict[str, Any], schemas: dict[str, Any], where: str) -> list[str]:
    """Fields that Flink has and the schema has not, with the way to them."""
    schema = resolve(schema, schemas)
    if shape.items is not None:
        inner = schema.get("items") or schema.get("additionalProperties")
        if not isinstance(inner, dict):
            return [] if not shape.items.fields else [f"{where}: is no collection"]
        return missing_fields(shape.items, inner, schemas, f"{where}[]")
    found = []
    properties = schema.get("properties", {})
    for name, inner_shape in shape.fields.items():
        if name not in properties:
            found.append(f"{where}.{name}")
        else:
            found += missing_fields(inner_shape, properties[name], schemas, f"{where}.{name}")
    return found


def resolve(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema itself behind references and `or null`."""
    while True:
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rpartition("/")[2]]
        elif "anyOf" in schema:
            choices = [part for part in schema["anyOf"] if part.get("type") != "null"]
            schema = choices[0]
        else:
            return schema


def test_a_missing_field_is_found() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"properties": {"b": {}}}}}}
    shape = parse("X(a:[Y(b:int, c:int)], d:int)")
    assert missing_fields(shape, schema, {}, "x") == ["x.a[].c", "x.d"]
