"""One name, one class: who greps for a class finds one definition, and an import says which thing is meant.

A constant of one name and one value is one thing, too. Functions are not looked at: many rooms have a `fault_of` or a
`settings_of` of their own.
"""

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


#: Two constants may share a smaller number, such as 0 or a minute, by chance.
_TELLING_NUMBER = 1 << 32


def constants(paths: Iterable[Path]) -> dict[tuple[str, object], set[str]]:
    """The modules that define each public constant, by its name and its value: a text, or a large number."""
    found: dict[tuple[str, object], set[str]] = defaultdict(set)
    for path in paths:
        for node in _outside_of_definitions(parse(path)):
            for name, value in _assigned(node):
                if isinstance(value, str) or (isinstance(value, int) and abs(value) >= _TELLING_NUMBER):
                    found[name, value].add(module_name(path))
    return found


def _assigned(node: ast.AST) -> Iterable[tuple[str, object]]:
    """The public names in capitals to which a statement assigns a value that stands there, and the value."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return
    if any(
        isinstance(part, ast.Name | ast.Call | ast.Attribute | ast.JoinedStr) for part in ast.walk(node.value)
    ):
        return
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    for name in names:
        if name.isupper() and not name.startswith("_"):
            yield name, eval(compile(ast.Expression(node.value), name, "eval"), {})


def _outside_of_definitions(tree: ast.AST) -> Iterable[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _outside_of_definitions(node)


def test_no_public_class_name_is_defined_twice() -> None:
    twice = {name: modules for name, modules in classes(engine_files()).items() if len(modules) > 1}
    assert twice == DEFINED_TWICE, "merge what is one thing; name what is two after its owner"


def test_no_public_constant_is_defined_twice() -> None:
    twice = {name: modules for name, modules in constants(engine_files()).items() if len(modules) > 1}
    assert twice == {}, "import what is one thing; name what is two after its owner"


def test_constants_are_found() -> None:
    found = constants(engine_files())
    assert found["LOOPBACK", "127.0.0.1"] == {"yarrow.runtime.rpc.loopback"}
    assert found["MIN_TIMESTAMP", -(2**63)] == {"yarrow.common.watermark_strategy"}


def test_classes_are_found() -> None:
    found = classes(engine_files())
    assert found["JobStatus"] == {"yarrow.common.job_status"}
    assert found["MemorySize"] == {"yarrow.common.values.quantities"}
    assert len(found) > 1500
