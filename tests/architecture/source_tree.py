"""Where the sources are: shared by the architecture tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("yarrow", "am", "container", "runtime")


def engine_files() -> Iterator[Path]:
    """Every module of the package, each once, at its real path."""
    for package in PACKAGES:
        yield from sorted(path for path in (ROOT / package).rglob("*.py") if path.resolve() == path)


def module_name(path: Path) -> str:
    """The import name of a file that `engine_files` yields."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    dotted = parts if parts[0] == "yarrow" else ("yarrow", *parts)
    return ".".join(dotted).removesuffix(".__init__")


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
