"""Mutant: one decision of the engine broken on purpose; where it stands in the code, and who must notice.

A mutant names its place by function and text, never by file or line: it survives a move of either. No I/O but reading
source files.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

#: Folders of the product's code in a checkout.
PRODUCT = ("am", "container", "runtime", "yarrow")

_Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """A text of one function that is replaced by another."""

    #: Qualified name of the function or class, such as `SlotPool.offer`.
    function: str
    #: Stands exactly once in that function, on one line.
    text: str
    replacement: str
    #: The test that fails with it: file name and function.
    killer: str = ""
    #: Why no test can notice it; a mutant has either a killer or this.
    equivalent: str = ""

    def __str__(self) -> str:
        return f"{self.function}: {self.text}  ->  {self.replacement}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a mutant applies: an offset in a file's text."""

    path: Path
    offset: int

    def mutated(self, source: str, mutant: Mutant) -> str:
        """The file's text with the mutant in it."""
        return source[: self.offset] + mutant.replacement + source[self.offset + len(mutant.text) :]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A condition behind which the engine raises an error."""

    path: Path
    #: Qualified name of the function.
    function: str
    #: The lines of the condition, counted from 1.
    lines: range

    def is_broken_by(self, mutant: Mutant, text: str) -> bool:
        """Whether the mutant changes the condition; `text` is that of the file."""
        condition = text.splitlines()[self.lines.start - 1 : self.lines.stop - 1]
        return mutant.function == self.function and any(mutant.text in line for line in condition)


class MutantDoesNotApplyError(Exception):
    """The text of a mutant does not stand exactly once where it says; the message names it."""


class Sources:
    """The product's source files of one checkout."""

    def __init__(self, root: Path) -> None:
        self._texts = {path: path.read_text() for path in _python_files(root)}
        self._functions: dict[Path, list[tuple[str, int, int]]] = {}

    def place_of(self, mutant: Mutant) -> Place:
        """The one place where it applies. Raises MutantDoesNotApplyError."""
        places = [
            Place(path, offset)
            for path, text in self._texts.items()
            if mutant.text in text
            for offset in self._offsets(path, mutant)
        ]
        if len(places) != 1:
            raise MutantDoesNotApplyError(
                f"{mutant}: its text stands {len(places)} times in functions of that name"
                f" ({', '.join(str(place.path) for place in places) or 'no file'}), expected is once"
            )
        return places[0]

    def text_of(self, path: Path) -> str:
        """The text of a file."""
        return self._texts[path]

    def refusals(self, errors: Collection[str]) -> Iterator[Refusal]:
        """Each `raise` of one of these errors behind an `if`; a raise in an `except` only tells another error anew."""
        for path, text in self._texts.items():
            if any(error in text for error in errors):
                yield from _refusals(path, ast.parse(text), errors)

    def _offsets(self, path: Path, mutant: Mutant) -> list[int]:
        text = self._texts[path]
        if path not in self._functions:
            self._functions[path] = list(_functions(text))
        found = set()
        for name, start, end in self._functions[path]:
            if name == mutant.function:
                offset = text.find(mutant.text, start, end)
                while offset >= 0:
                    found.add(offset)
                    offset = text.find(mutant.text, offset + 1, end)
        return sorted(found)


def _python_files(root: Path) -> list[Path]:
    """Each file once: the package links to the folders beside it."""
    return sorted(
        path
        for folder in PRODUCT
        for path in (root / folder).rglob("*.py")
        if path.relative_to(root).parts[:2] not in {("yarrow", name) for name in PRODUCT}
    )


def _functions(text: str) -> Iterator[tuple[str, int, int]]:
    """(qualified name, start, end) of each function and class, as offsets of the text."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(nodes: Iterable[ast.AST], prefix: str) -> Iterator[tuple[str, int, int]]:
        for node in nodes:
            if isinstance(node, _Definition):
                name = f"{prefix}{node.name}"
                assert node.end_lineno is not None
                yield name, starts[node.lineno - 1], starts[node.end_lineno]
                yield from walk(ast.iter_child_nodes(node), f"{name}.")
            else:
                yield from walk(ast.iter_child_nodes(node), prefix)

    return walk(ast.parse(text).body, "")


def _refusals(path: Path, tree: ast.Module, errors: Collection[str]) -> Iterator[Refusal]:
    def walk(nodes: Iterable[ast.AST], function: str, condition: ast.If | None) -> Iterator[Refusal]:
        for node in nodes:
            if isinstance(node, _Definition):
                name = f"{function}.{node.name}" if function else node.name
                yield from walk(ast.iter_child_nodes(node), name, None)
            elif isinstance(node, ast.If):
                yield from walk(ast.iter_child_nodes(node), function, node)
            elif isinstance(node, ast.ExceptHandler):
                continue
            elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                raised = node.exc.func
                if isinstance(raised, ast.Name) and raised.id in errors and condition is not None:
                    yield Refusal(path, function, range(condition.lineno, condition.body[0].lineno))
            else:
                yield from walk(ast.iter_child_nodes(node), function, condition)

    return walk(tree.body, "", None)


def killers_of(root: Path, mutants: Sequence[Mutant]) -> dict[Mutant, str]:
    """The pytest name of each one's killer; LookupError names one whose file is not there exactly once."""
    files: dict[str, list[Path]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        files.setdefault(path.name, []).append(path)
    found = {}
    for mutant in mutants:
        name, _, test = mutant.killer.partition("::")
        candidates = [path for path in files.get(name, []) if f"def {test}(" in path.read_text()]
        if len(candidates) != 1:
            raise LookupError(f"{mutant}: the test {mutant.killer} is there {len(candidates)} times")
        found[mutant] = f"{candidates[0].relative_to(root)}::{test}"
    return found
