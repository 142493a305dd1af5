"""docs/rest.md and the OpenAPI document agree with the models."""

from __future__ import annotations

from pathlib import Path

from tests.support.pages import rest_page

ROOT = Path(__file__).resolve().parents[4]


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
    assert page == rest_page.render(), "docs/rest.md is out of date: run python -m tests.support.pages"


def test_every_operation_and_body_is_on_the_page() -> None:
    page, api = rest_page.render(), rest_page.open_api()
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            assert page.count(f"\n### {method.upper()} {path}\n") == 1
            assert operation["description"], f"{method} {path} has no description"
    for name, schema in api["components"]["schemas"].items():
        assert page.count(f"\n### {name}\n") == 1
        assert schema.get("description") or "enum" in schema or name.startswith("Body_"), (
            f"{name} says nothing"
        )


def test_no_operation_announces_what_it_never_answers() -> None:
    for methods in rest_page.open_api()["paths"].values():
        for operation in methods.values():
            assert "HTTPValidationError" not in str(operation)
            assert {"503", "504"} <= set(operation["responses"])
