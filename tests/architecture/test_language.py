"""English that is read once: which sentences are too long, and which docstrings do not begin with one sentence."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, engine_files, module_name, parse, source, walk

MOST_WORDS = 25

#: Longer sentences that are left in docstrings, by package of the code. A number may only become smaller.
LONG_SENTENCES: dict[str, int] = {}

#: Beginnings of literals that no person reads: a schema of Spark.
NO_SENTENCES = ("edge int not null",)

_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[)\"'*]*\s+")


def sentences(paragraph: str) -> list[str]:
    """The sentences of running text; code in backticks is one word."""
    text = _LINK.sub(r"\1", _CODE.sub("code", paragraph))
    return [" ".join(part.split()) for part in _END.split(text) if part.strip()]


def long_sentences(paragraphs: Iterable[str]) -> list[str]:
    """Those with more than MOST_WORDS words."""
    return [
        sentence
        for paragraph in paragraphs
        for sentence in sentences(paragraph)
        if len(sentence.split()) > MOST_WORDS
    ]


def paragraphs_of_document(text: str) -> Iterator[str]:
    """Paragraphs and list entries, and the cells of tables; no headings and no code."""
    for number, block in enumerate(re.split(r"^```.*$", text, flags=re.MULTILINE)):
        if number % 2:
            continue
        for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", block):
            if part.lstrip().startswith("|"):
                yield from (cell for line in part.splitlines() for cell in line.split("|"))
            elif not part.lstrip().startswith(("#", "<!--")):
                yield re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", part)


@cache
def docstrings() -> tuple[tuple[str, str], ...]:
    """Package and text of every docstring of the product."""
    return tuple(
        (".".join(module_name(path).split(".")[:2]), text)
        for path in engine_files()
        for node in walk(parse(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if (text := ast.get_docstring(node))
    )


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each literal that is no docstring: log lines, errors, help. A value in braces is one word."""
    statements = {id(node.value) for node in walk(tree) if isinstance(node, ast.Expr)}
    formatted = [node for node in walk(tree) if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in formatted for value in node.values for part in ast.walk(value)}
    for node in walk(tree):
        if id(node) in statements or id(node) in inner:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "value" for part in node.values)
            yield node.lineno, "".join(map(str, parts))


def array_names(tree: ast.Module) -> set[str]:
    """Names that a module gives to types of numpy arrays."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and "NDArray" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def imported(tree: ast.Module) -> set[str]:
    """Names that a module imports from others."""
    return {name.name for node in walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}


def functions_of_arrays(tree: ast.Module, names: set[str]) -> Iterator[tuple[str, str]]:
    """Name and docstring of each public function with a docstring that takes or gives numpy arrays."""
    for node in walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        given = [one.annotation for one in (*node.args.args, *node.args.kwonlyargs)] + [node.returns]
        words = {word for one in given if one is not None for word in re.findall(r"\w+", ast.unparse(one))}
        text = ast.get_docstring(node)
        if text and words & (names | {"NDArray", "ndarray"}):
            yield node.name, text


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.slow
def test_sentences_that_are_too_long_become_fewer() -> None:
    found: Counter[str] = Counter()
    for package, text in docstrings():
        found[package] += len(long_sentences(text.split("\n\n")))
    assert dict(+found) == LONG_SENTENCES, "shorten what you wrote; write down what has shrunk"


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_sentence_of_a_page_is_too_long(path: Path) -> None:
    assert long_sentences(paragraphs_of_document(path.read_text())) == []


@pytest.mark.slow
def test_no_sentence_of_a_log_line_or_error_message_is_too_long() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {sentence}"
        for path in engine_files()
        for line, text in texts(parse(path))
        for sentence in long_sentences(text.split("\n"))
        if not text.startswith(NO_SENTENCES)
    ]
    assert not found, "make two sentences of it, or say less"


@pytest.mark.slow
def test_docstrings_begin_with_one_sentence() -> None:
    unfinished = [text for _, text in docstrings() if not text.splitlines()[0].rstrip("`\"')").endswith(".")]
    assert not unfinished


def test_docstrings_say_dtype_and_shape_of_arrays() -> None:
    trees = {path: parse(path) for path in engine_files()}
    names = set[str]().union(*map(array_names, trees.values()))
    silent = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in trees.items()
        if "numpy" in source(path) or names & imported(tree)
        for name, text in functions_of_arrays(tree, names)
        if not ("shape (" in text and re.search(r"\b(u?int\d*|float\d*|bool|dtype)\b", text))
    ]
    assert not silent


def test_functions_of_arrays_are_found() -> None:
    text = 'Rows = npt.NDArray[Any]\ndef f(x: Rows | None) -> None:\n  "Doc."\ndef g(x: int) -> None:\n  "Doc."\n'
    tree = ast.parse(text)
    assert [*functions_of_arrays(tree, array_names(tree))] == [("f", "Doc.")]


def test_long_sentences_are_found() -> None:
    words = " ".join(["word"] * 26)
    assert long_sentences([f"Short. {words}."]) == [f"{words}."]
    assert long_sentences([" ".join(["word"] * 25) + "."]) == []
    assert sentences("One `a. b c` here. Two [it is](there.md).") == ["One code here.", "Two it is."]
    document = f"# {words}\n\n- {words}\n- no\n\n```\n{words}\n```\n\n| {words} | x |\n"
    assert [len(one.split()) for one in long_sentences(paragraphs_of_document(document))] == [26, 26]


def test_texts_are_found_with_their_values_as_words() -> None:
    tree = ast.parse('"""Doc."""\n_log.info("a %s",\n  x)\nraise Error(f"b {c + \'d\'} " "e")\n')
    assert [*texts(tree)] == [(2, "a %s"), (4, "b value e")]
