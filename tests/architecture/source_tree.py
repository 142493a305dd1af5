"""The sources of the product: shared by the architecture tests.

Each process finds, reads and parses a file once. So nobody may change a tree.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("yarrow", "am", "container", "runtime")


@cache
def engine_files() -> tuple[Path, ...]:
    """Every module of the package, each once, at its real path."""
    return tuple(
        path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.resolve() == path
    )


def module_name(path: Path) -> str:
    """The import name of a file that `engine_files` names."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    dotted = parts if parts[0] == "yarrow" else ("yarrow", *parts)
    return ".".join(dotted).removesuffix(".__init__")


@cache
def source(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(source(path), filename=str(path))


@cache
def walk(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a syntax tree, in the order of `ast.walk`."""
    return tuple(ast.walk(tree))
