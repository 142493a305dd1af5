"""The tests that documents name as their proof are there: files, folders, and the parts of names given behind them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: A folder or file below tests/, and a test module by its name alone.
PLACE = re.compile(r"(?<![\w/])(?:\.\./)*(tests/[\w./-]*\w)")
MODULE = re.compile(r"(?<![\w-])((?:[\w.-]+/)*test_\w+\.py)\b")
#: What stands in brackets behind a module, and the parts of names of its tests in it.
BEHIND = re.compile(r"[`\]]*(?:\([^()`]*\.py\))?[,:]?\s*\(([^()]*`[^()]*)\)")
PART = re.compile(r"`([a-z0-9_]+)`")


def _modules() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.setdefault(path.name, []).append(path)
    return found


MODULES = _modules()


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """The names of the test functions of a module, and what parametrizations call their cases."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return frozenset(name for name in functions if name.startswith("test_"))


def named(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each module that a text names, with the parts of names behind it."""
    for match in MODULE.finditer(text):
        behind = BEHIND.match(text, match.end())
        yield match.group(1), PART.findall(behind.group(1)) if behind is not None else []


def candidates(module: str) -> list[Path]:
    """The modules that a document may mean."""
    path = module.lstrip("./")
    return [found for found in MODULES.get(Path(module).name, []) if found.as_posix().endswith(f"/{path}")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_places_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    gone = {place for place in PLACE.findall(text) if not (ROOT / place).exists()}
    gone |= {module for module, _ in named(text) if not candidates(module)}
    assert not gone


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_parts_of_names_are_those_of_tests(document: Path) -> None:
    gone = []
    for module, parts in named(document.read_text(encoding="utf-8")):
        here = [names_of_tests(path) for path in candidates(module)]
        gone += [
            f"{module}: {part}" for part in parts if not any(part in name for names in here for name in names)
        ]
    assert not gone


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tests/unit/test_a.py (`one`, `two`: three)", [("tests/unit/test_a.py", ["one", "two"])]),
        ("../test_a.py (also idle ones), test_b.py", [("../test_a.py", []), ("test_b.py", [])]),
        ("[test_a.py](../tests/test_a.py): plain", [("test_a.py", []), ("../tests/test_a.py", [])]),
    ],
)
def test_names_are_found(text: str, found: list[tuple[str, list[str]]]) -> None:
    assert list(named(text)) == found
