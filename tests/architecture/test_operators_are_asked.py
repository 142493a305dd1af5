"""What an operator can is asked of its spec or of itself: no code chooses by the class or the tag of either.

Counted are isinstance, issubclass, comparisons of type(x), class patterns of match, and hasattr or getattr for what an
operator defines. A look-up in a registry by class is how a spec finds its operator, and stands in one module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, engine_files, parse, source, walk

#: Checks that are left, by file; a number may only become smaller.
LEFT = {
    # It looks at whatever objects the frames of a stack hold, and asks which of them is an operator.
    "container/worker/log_origin.py": 1,
}
#: Where a spec's class may be looked up: which operator runs it, and whether the engine brings it.
REGISTRIES = {"container/operators/registry.py", "runtime/graph/engine_specs.py"}


@cache
def bases() -> dict[str, set[str]]:
    """The names of the direct bases of every class that stands where specs and operators stand."""
    return {
        node.name: {name for base in node.bases for name in names_in(base)}
        for path in engine_files()
        if str(path.relative_to(ROOT)).startswith(("container/operators/", "runtime/graph/"))
        for node in walk(parse(path))
        if isinstance(node, ast.ClassDef)
    }


@cache
def operators_and_specs() -> frozenset[str]:
    """Names of all classes of operators and specs."""
    found = {"Operator", "OperatorSpec"}
    while more := {name for name, above in bases().items() if above & found} - found:
        found |= more
    return frozenset(found)


@cache
def members_of_operators() -> frozenset[str]:
    """What operators define, that one could ask for by name."""
    found: set[str] = set()
    for path in engine_files():
        if not str(path.relative_to(ROOT)).startswith("container/operators/"):
            continue
        for kind in walk(parse(path)):
            if isinstance(kind, ast.ClassDef) and kind.name in operators_and_specs():
                found |= {each.name for each in kind.body if isinstance(each, ast.FunctionDef)}
                found |= {
                    target.id
                    for each in kind.body
                    if isinstance(each, ast.Assign | ast.AnnAssign)
                    for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
                    if isinstance(target, ast.Name)
                }
    # User functions have these as well, and are asked whether they do.
    return frozenset(found - {"open", "close", "finish", "name", "snapshot_state"})


def names_in(expression: ast.AST) -> Iterator[str]:
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def called(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def is_check(node: ast.AST) -> bool:
    """Whether a node chooses by the class, the tag or a member's name."""
    kinds = operators_and_specs()
    if isinstance(node, ast.Call):
        if called(node) in ("isinstance", "issubclass") and len(node.args) == 2:
            return bool(kinds & set(names_in(node.args[1])))
        if called(node) in ("hasattr", "getattr") and len(node.args) >= 2:
            asked = node.args[1]
            return isinstance(asked, ast.Constant) and asked.value in members_of_operators()
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        names = {name for side in sides for name in names_in(side)}
        if "__struct_config__" in names:
            return True
        by_class = "__class__" in names or any(called(each) == "type" for each in ast.walk(node))
        return by_class and bool(kinds & names)
    return isinstance(node, ast.MatchClass) and bool(kinds & set(names_in(node.cls)))


def checks(path: Path) -> list[int]:
    """The lines of a file in which something chooses by class."""
    text = source(path)
    if not any(each in text for each in operators_and_specs() | {"__struct_config__", "attr("}):
        return []
    return [getattr(node, "lineno", 0) for node in walk(parse(path)) if is_check(node)]


def test_nobody_asks_for_the_class_of_a_spec_or_an_operator() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in engine_files()
        if str(path.relative_to(ROOT)) not in REGISTRIES and (lines := checks(path))
    }
    more = {file: lines for file, lines in found.items() if len(lines) > LEFT.get(file, 0)}
    assert not more, f"ask the spec or the operator what it can, see docs/design/0019: {more}"
    fewer = {file: count for file, count in LEFT.items() if len(found.get(file, [])) < count}
    assert not fewer, f"fewer checks are left than LEFT says, which has to become smaller: {fewer}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("isinstance(operator.spec, SourceOperator)", True),
        ("isinstance(operator, ProcessingOperator | SourceHead)", True),
        ("type(spec) is CollectOperator", True),
        ("spec.__class__ in (PrintOperator, CollectOperator)", True),
        ("vertex.spec.__struct_config__.tag == 'source'", True),
        ("hasattr(operator, 'to_rows')", True),
        ("type(operator).upkeep is not Operator.upkeep", True),
        ("isinstance(value, Row)", False),
        ("hasattr(function, 'close')", False),
        ("type(value) is tuple", False),
        ("spec.has_enumerator", False),
    ],
)
def test_each_way_to_ask_is_counted(line: str, expected: bool) -> None:
    assert any(is_check(node) for node in ast.walk(ast.parse(line))) is expected


def test_patterns_of_match_are_counted() -> None:
    code = "match spec:\n    case SourceOperator():\n        pass"
    assert any(is_check(node) for node in ast.walk(ast.parse(code)))


def test_having_an_enumerator_has_one_name() -> None:
    """It is declared by the spec, and its vertex passes it on."""
    other_names = re.compile(r"def (has_enumerator|has_coordinator|enumerators?_of)\b")
    named = {
        f"{path.relative_to(ROOT)}:{name}"
        for path in engine_files()
        for name in other_names.findall(source(path))
    }
    assert named == {"runtime/graph/job_graph.py:has_enumerator"}
