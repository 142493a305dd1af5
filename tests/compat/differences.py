"""Which methods differ from PyFlink's, and which test shows how: the marks of tests of behaviour.

Owner: none (pure). A test that shows a difference has `@pytest.mark.differs("Class.method", told="...")`. `told` is
part of one paragraph of docs/pyflink.md, and the methods are those of PyFlink that it is about, or none. The marks are
read from the text of the tests. So a difference is known as long as its test exists.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_TESTS = Path(__file__).resolve().parents[1]
#: The beginning of a paragraph, and lines that go on with it.
_PARAGRAPH = re.compile(r"^- (.*(?:\n  .*)*)$", re.MULTILINE)


class Mark(NamedTuple):
    """What a test says about a difference."""

    #: Below the folder of tests.
    file: str
    test: str
    methods: tuple[str, ...]
    told: str


class Difference(NamedTuple):
    """A paragraph about a difference, and the marks of the tests that show it."""

    text: str
    marks: tuple[Mark, ...]


def marks_in(text: str, file: str) -> Iterator[Mark]:
    """The marks in the text of a file of tests. Raises ValueError for one without `told`."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.differs":
                told = {each.arg: ast.literal_eval(each.value) for each in decorator.keywords}.get("told")
                if told is None:
                    raise ValueError(f"tests/{file}, {node.name}: the mark `differs` needs `told`")
                yield Mark(file, node.name, tuple(map(ast.literal_eval, decorator.args)), told)


def all_marks() -> list[Mark]:
    """The marks of all tests."""
    found: list[Mark] = []
    for file in sorted(_TESTS.rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if "mark.differs(" in text:
            found += marks_in(text, file.relative_to(_TESTS).as_posix())
    return found


def differences(page: str, marks: Sequence[Mark]) -> list[Difference]:
    """The differences that a page tells, in its order. Raises ValueError for one without a mark, or a wrong mark."""
    paragraphs = _PARAGRAPH.findall(page)
    for mark in marks:
        told = [text for text in paragraphs if mark.told in text]
        if len(told) != 1:
            raise ValueError(
                f"tests/{mark.file}, {mark.test}: {mark.told!r} is part of {len(told)} differences, and must be of one"
            )
    found = [Difference(text, tuple(mark for mark in marks if mark.told in text)) for text in paragraphs]
    for difference in found:
        if not difference.marks:
            raise ValueError(f"no test is marked as one that shows this difference: {difference.text}")
    return found


def by_method(found: Sequence[Difference]) -> dict[str, dict[int, str]]:
    """By `Class.method`: the numbers of its differences, from 1 on, each with the file of a test that shows it."""
    numbers: dict[str, dict[int, str]] = {}
    for number, difference in enumerate(found, 1):
        for mark in difference.marks:
            for method in mark.methods:
                numbers.setdefault(method, {}).setdefault(number, mark.file)
    return numbers
