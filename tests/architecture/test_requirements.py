"""Libraries that some programs need come with an extra: nothing of the product imports them at its start."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from tests.architecture.source_tree import ROOT, engine_files, parse, walk

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    """The libraries of a list of requirements."""
    return {re.split(r"[<>=!~\[ ]", requirement)[0] for requirement in requirements}


@pytest.mark.parametrize(
    ("library", "module"),
    [("fastavro", "fastavro"), ("pandas", "pandas"), ("polars", "polars"), ("protobuf", "google")],
)
def test_a_library_of_an_extra_is_imported_by_name_alone(library: str, module: str) -> None:
    extras = PROJECT["optional-dependencies"]
    assert library not in names(PROJECT["dependencies"])
    assert names(extras[library]) == {library} and set(extras[library]) <= set(extras["test"])
    importing = [
        path
        for path in engine_files()
        for node in walk(parse(path))
        if (isinstance(node, ast.Import) and any(name.name.split(".")[0] == module for name in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == module)
    ]
    assert importing == []


def test_tools_of_the_tests_are_no_requirement_of_the_product() -> None:
    assert not names(PROJECT["dependencies"]) & {"prometheus-client", "pytest", "httpx", "mypy", "ruff"}
