"""docs/rest.md and the OpenAPI document agree with the models."""

from __future__ import annotations

from pathlib import Path

import pytest

from yarrow.am.rest.server import docs

ROOT = Path(__file__).resolve().parents[4]


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
    assert page == docs.render(), "docs/rest.md is out of date: run python -m yarrow.am.rest.server.docs"


def test_every_operation_and_body_is_on_the_page() -> None:
    page, api = docs.render(), docs.open_api()
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
    for methods in docs.open_api()["paths"].values():
        for operation in methods.values():
            assert "HTTPValidationError" not in str(operation)
            assert {"503", "504"} <= set(operation["responses"])


def test_the_command_writes_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "rest.md"
    assert docs.main(["--check", str(target)]) == 1
    assert docs.main([str(target)]) == 0
    assert docs.main(["--check", str(target)]) == 0
    target.write_text("stale", encoding="utf-8")
    assert docs.main(["--check", str(target)]) == 1
    assert "out of date" in capsys.readouterr().err
