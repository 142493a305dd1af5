"""No function takes more parameters than a reader keeps in mind: what belongs together is one value.

Besides self and cls; constructors that dataclasses and structs generate are no functions of the text. PyFlink's
signatures are what they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import engine_files, module_name, parse

MOST_PARAMETERS = 8


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, in_class: bool) -> int:
    """How many a caller may give: *args and **kwargs are one each, self and cls none."""
    arguments = function.args
    by_place = [*arguments.posonlyargs, *arguments.args]
    decorators = {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
    bound = in_class and by_place and "staticmethod" not in decorators
    return (
        len(by_place)
        - bool(bound)
        + len(arguments.kwonlyargs)
        + (arguments.vararg is not None)
        + (arguments.kwarg is not None)
    )


def functions(node: ast.AST, name: str, in_class: bool = False) -> Iterator[tuple[str, int]]:
    """All functions of a tree, nested ones too, by their whole name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}.{child.name}"
            yield inner, parameters(child, in_class)
            yield from functions(child, inner)
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{name}.{child.name}", in_class=True)
        else:
            yield from functions(child, name, in_class)


@pytest.mark.slow
def test_no_function_takes_more_than_eight_parameters() -> None:
    found = {
        name: number
        for path in engine_files()
        for name, number in functions(parse(path), module_name(path))
        if number > MOST_PARAMETERS
    }
    assert found == {}, "make one value of what belongs together"


def test_parameters_are_counted() -> None:
    tree = ast.parse(
        "class A:\n"
        " def f(self, a, /, b, *c, d=1, **e): pass\n"
        " @staticmethod\n"
        " def g(a, b): pass\n"
        " @classmethod\n"
        " def h(cls, a): \n"
        "  async def inner(x): pass\n"
        "if True:\n"
        " def k(self, b): pass\n"
    )
    counted = dict(functions(tree, "m"))
    assert counted == {"m.A.f": 5, "m.A.g": 2, "m.A.h": 1, "m.A.h.inner": 1, "m.k": 2}
