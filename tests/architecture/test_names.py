"""One name, one class: who greps for a class finds one definition, and an import says which thing is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.architecture.source_tree import engine_files, module_name, parse

#: Public names of classes that are defined in several modules. The list may only become shorter.
DEFINED_TWICE: Mapping[str, set[str]] = {}


def classes(paths: Iterable[Path]) -> dict[str, set[str]]:
    """The modules that define each public class, at the top of the module or behind a condition."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for node in _outside_of_definitions(parse(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(module_name(path))
    return found


def _outside_of_definitions(tree: ast.AST) -> Iterable[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _outside_of_definitions(node)


def test_no_public_class_name_is_defined_twice() -> None:
    twice = {name: modules for name, modules in classes(engine_files()).items() if len(modules) > 1}
    assert twice == DEFINED_TWICE, "merge what is one thing; name what is two after its owner"


def test_classes_are_found() -> None:
    found = classes(engine_files())
    assert found["JobStatus"] == {"yarrow.common.job_status"}
    assert found["MemorySize"] == {"yarrow.common.values.quantities"}
    assert len(found) > 1500
