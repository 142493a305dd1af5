"""Callbacks are given to constructors: what is set on an object later, a reader of its class does not find."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import engine_files, module_name, parse, walk

#: Attributes that a module sets on another object to something that is called later. The list may only shrink.
SET_LATER = {
    # Hooks that `Operator` declares, each with the flag of operators that want it: a chain knows the next operator only
    # when all operators are there.
    ("yarrow.container.chain.operator_chain", "emit_again"),
    ("yarrow.container.chain.operator_chain", "emit_held"),
    ("yarrow.container.chain.operator_chain", "send"),
    ("yarrow.container.task.task_inputs", "time_holder"),
    ("yarrow.container.batch.batch_outputs", "write_text"),
    ("yarrow.container.task.loop_markers", "markers"),
    # The process's own: a class holds what its signal handler must find.
    ("yarrow.container.worker.last_words", "words"),
    # Channels and their barrier handler are there before the task whose inputs they feed.
    ("yarrow.container.task.task_inputs", "on_announced"),
    ("yarrow.container.task.checkpoint_course", "listener"),
}


def set_later(tree: ast.Module) -> Iterator[str]:
    """Names of attributes of other objects that are set to a callback: by their name, or by what they are set to."""
    for node in walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = {
                each.name
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(each)
            }
            for part in ast.walk(node):
                if isinstance(part, ast.Assign) and is_called_later(part.value, methods):
                    yield from _of_others(part)
        if isinstance(node, ast.Assign):
            yield from (name for name in _of_others(node) if name.startswith("on_"))


def is_property(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in method.decorator_list)


def is_called_later(value: ast.expr, methods: set[str]) -> bool:
    """Whether a value is a function, a method of the class, or the object itself, which then listens."""
    match value:
        case ast.Lambda() | ast.Call(func=ast.Name("partial")) | ast.Name("self"):
            return True
        case ast.Attribute(value=ast.Name("self"), attr=name):
            return name in methods
    return False


def _of_others(node: ast.Assign) -> Iterator[str]:
    for target in node.targets:
        if isinstance(target, ast.Attribute) and not (
            isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")
        ):
            yield target.attr


@pytest.mark.slow
def test_no_callback_is_set_by_attribute() -> None:
    found = {(module_name(path), name) for path in engine_files() for name in set_later(parse(path))}
    assert found == SET_LATER


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("other.on_end = f", ["on_end"]),
        ("self.part.end = lambda: None", ["end"]),
        ("other.end = partial(self.m, 1)", ["end"]),
        ("other.end = self.m", ["end"]),
        ("other.listener = self", ["listener"]),
        ("other.end = self.value", []),
        ("self.end = self.m", []),
    ],
)
def test_callbacks_are_found(line: str, found: list[str]) -> None:
    assert list(set_later(ast.parse(f"class A:\n def m(self):\n  {line}"))) == found
