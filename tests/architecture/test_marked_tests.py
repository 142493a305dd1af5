"""No test is left out of the suite: every part of scripts/test finds the tests that are marked for it.

The part with clusters collects only files that name their marker. So a marker is written in the file of its test, and
tests of YARN lie in the folder whose conftest marks all of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.architecture.source_tree import ROOT

SCRIPT = (ROOT / "scripts" / "test").read_text()
YARN = PurePosixPath("tests/yarn")
SPARK = PurePosixPath("tests/spark")


def in_script(pattern: str) -> re.Match[str]:
    """The one place of scripts/test that the tests below rely on."""
    found = re.findall(pattern, SCRIPT)
    assert len(found) == 1, f"scripts/test has {len(found)} places of {pattern!r}: adapt this test"
    match = re.search(pattern, SCRIPT)
    assert match is not None
    return match


#: Markers of tests that the first part of the suite leaves to the others.
APART = frozenset(in_script(r'apart="([a-z ]+)"')[1].split(" or "))
#: What a file must contain for the part with clusters to collect it; `\>` of grep is `\b` here.
WANTED = re.compile(in_script(r"grep -rlE --include='test_\*\.py' '([^']+)' tests")[1].replace(r"\>", r"\b"))


def faults(path: PurePosixPath, text: str) -> Iterator[str]:
    """Why tests of a file below tests/ may be run by no part of the suite."""
    tree = ast.parse(text)
    inside_yarn = YARN in path.parents
    is_test = path.name.startswith("test_")
    if SPARK in path.parents and is_test and not re.search(r"mark\.spark\b", text):
        yield "tests that start Spark are marked for it: they are slow, and their number at a time is limited"
    nodes = list(ast.walk(tree))
    named = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if re.match("test_|Test[A-Z]", name) and _is_collected(node, tree) and not is_test:
                    yield f"{name} is collected from files named test_*.py alone"
            case ast.Attribute(value=ast.Attribute(attr="mark"), attr=marker) if marker in APART:
                if inside_yarn:
                    continue
                if marker == "yarn":
                    yield "tests with the marker yarn are run in tests/yarn alone"
                elif not is_test or not WANTED.search(text):
                    yield f"scripts/test looks for the marker {marker} in files named test_*.py alone"
            case ast.Attribute(value=ast.Name("pytest"), attr="mark") if id(node) not in named:
                yield "pytest.mark is to be followed by the marker, which scripts/test looks for"
            case ast.ImportFrom(module="pytest", names=names) if any(each.name == "mark" for each in names):
                yield "markers are written as pytest.mark.…"
            case ast.ImportFrom(names=names) if any(each.name == "pytestmark" for each in names):
                yield "markers are written in the file of their tests"
            case ast.Attribute(attr="add_marker") if not inside_yarn:
                yield "add_marker marks tests whose files do not tell of it"
            case _:
                pass


def _is_collected(node: ast.AST, tree: ast.Module) -> bool:
    """Whether it stands at the top of its module; methods are collected with their class."""
    return node in tree.body


@pytest.mark.slow
def test_no_test_is_left_out_of_the_suite() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {fault}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for fault in faults(PurePosixPath(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_parts_of_the_suite_have_all_markers() -> None:
    looked_for = set(re.findall("[a-z]+", WANTED.pattern.partition("(")[2].partition(")")[0]))
    assert looked_for | {"yarn"} == APART
    # Whatever is no part of its own is run by the first.
    in_script(r'part units -n \d --dist worksteal -m "not \(\$apart\)" tests\n')
    in_script(r'-m "\(\$apart\) and not yarn" \$marked\n')
    in_script(r"part yarn \$yarn -m yarn tests/yarn\n")


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("tests/support/shared.py", "import pytest\nREAL = pytest.mark.cluster", "named test_*.py alone"),
        ("tests/cluster/conftest.py", "item.add_marker(pytest.mark.slow)", "add_marker"),
        (
            "tests/cluster/test_a.py",
            "from tests.support.shared import pytestmark",
            "in the file of their tests",
        ),
        ("tests/cluster/test_a.py", "from pytest import mark", "pytest.mark.…"),
        ("tests/cluster/test_a.py", "m = pytest.mark\npytestmark = m.cluster", "followed by the marker"),
        ("tests/cluster/test_a.py", "pytestmark = [pytest.mark.yarn]", "in tests/yarn alone"),
        ("tests/unit/checks.py", "def test_it() -> None: ...", "named test_*.py alone"),
        ("tests/unit/checks.py", "class TestIt: ...", "named test_*.py alone"),
        ("tests/cluster/test_a.py", "pytestmark = [\n    pytest.mark.slow,\n    pytest.mark.fault,\n]", None),
        (
            "tests/cluster/test_a.py",
            "pytestmark = (\n    pytest\n    .mark\n    .fault\n)",
            "named test_*.py",
        ),
        ("tests/spark/test_a.py", "def test_it() -> None: ...", "are marked for it"),
        ("tests/yarn/conftest.py", "item.add_marker(pytest.mark.yarn)", None),
    ],
)
def test_each_way_to_leave_a_test_out_is_found(path: str, text: str, fault: str | None) -> None:
    found = list(faults(PurePosixPath(path), text))
    if fault is None:
        assert found == []
    else:
        assert any(fault in each for each in found), found
