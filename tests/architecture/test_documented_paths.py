"""What the documents tell a reader to open is there: files, and the functions named behind them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.source_tree import PACKAGES, ROOT, engine_files, parse

ARCHITECTURE = ROOT / "docs" / "architecture.md"
DOCUMENTS = [ARCHITECTURE, *sorted((ROOT / "docs" / "design").glob("*.md"))]

#: `folder/module.py`, and the names in brackets that may follow it: (`Class.method`, `function`).
PATH = re.compile(r"`([\w./-]+\.py)`(?:\s+\(((?:`[\w.]+`(?:,\s+)?)+)\))?")
NAME = re.compile(r"`([\w.]+)`")
#: `Class.method`, with or without its file.
METHOD = re.compile(r"`([A-Z]\w+)\.(\w+)`")


@cache
def names_defined(path: Path) -> frozenset[str]:
    """Functions, classes, `Class.method`, and what modules and classes assign."""
    found: set[str] = set()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    visit(parse(path).body, "")
    return frozenset(found)


def documented_paths(document: Path) -> list[tuple[str, list[str]]]:
    """Each path of a document with the names given for it; in design notes those with a folder only."""
    found = [
        (path, NAME.findall(names)) for path, names in PATH.findall(document.read_text(encoding="utf-8"))
    ]
    return [(path, names) for path, names in found if document == ARCHITECTURE or "/" in path]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_of_documents_exist(document: Path) -> None:
    missing = [path for path, _ in documented_paths(document) if not (ROOT / path).is_file()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_names_given_for_a_path_are_defined_there(document: Path) -> None:
    missing = [
        f"{path}: {name}"
        for path, names in documented_paths(document)
        if names and (ROOT / path).is_file()
        for name in sorted(set(names) - names_defined(ROOT / path))
    ]
    assert not missing


@pytest.fixture(scope="module")
def engine_names() -> set[str]:
    """Return the names that the engine defines in files with a class which documents name."""
    texts = (document.read_text(encoding="utf-8") for document in DOCUMENTS)
    owners = sorted({owner for text in texts for owner, _ in METHOD.findall(text)})
    has_owner = re.compile(rf"^\s*class ({'|'.join(owners)})\b", re.MULTILINE)
    files = (path for path in engine_files() if has_owner.search(path.read_text(encoding="utf-8")))
    return set().union(*(names_defined(path) for path in files))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_methods_that_documents_name_are_somewhere(document: Path, engine_names: set[str]) -> None:
    text = document.read_text(encoding="utf-8")
    named = {f"{owner}.{method}" for owner, method in METHOD.findall(text)}
    assert named or document != ARCHITECTURE, "the page names no method: has its form changed?"
    assert not sorted(named - engine_names)


def test_the_architecture_names_every_package() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    folders = {f"{package}/" for package in PACKAGES if package != "yarrow"}
    assert not [folder for folder in folders if f"`{folder}`" not in text]
