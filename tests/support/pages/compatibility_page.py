"""docs/compatibility.md: each method of PyFlink's DataStream API, and a test that calls it.

Owner: none (pure). A test that the page names stays there as long as it calls the method: other tests may come and go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.compat.api_calls import api_classes, find_calls, tests_of
from tests.compat.differences import all_marks, by_method, differences
from tests.compat.exclusions import JAVA_ONLY, NOT_BUILT_YET
from tests.compat.test_pyflink_api import recorded_modules

_PYFLINK_PAGE = Path(__file__).resolve().parents[3] / "docs" / "pyflink.md"
#: Tests of whole jobs come first.
_PREFERRED: Final = ("cluster/embedded/", "spark/", "harness/", "fault/", "cluster/", "unit/")
_INTRODUCTION: Final = """\
# Compatibility with PyFlink, method by method

`python -m tests.support.pages` writes this page from the recorded names of PyFlink 2.3, from the tests and from
[pyflink.md](pyflink.md). Do not edit it. `tests/compat` compares all names and parameters. A method counts here only if
a test of behaviour uses it:

- *called*: the test calls the method on an object of this class;
- *implemented*: the test has a class of its own with this method;
- *by the engine*: the test uses the class, and the engine calls its methods.

The result is *no difference known*, or it names the [differences](#differences) of the method by their numbers. A test
shows each difference and is marked so, and the row names that test. *No difference known* says that no test shows one.
All of these tests are part of the suite, which has to pass.

The script finds calls in the text of the tests, by the types of expressions. It names one test of each method. A call
on an object whose type the text does not show counts only for a name that no other class has.
"""
_MISSING = re.compile(r"^- `(\w+\.\w+)`$", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)\.(\w+)` \| [\w ]+ \| [\w ,:]+ \| tests/([\w/.]+) \|$", re.MULTILINE)


def rendered(present: str, *, keeps_missing: bool = False) -> str:
    """The whole page; tests that the `present` page names stay where they still fit.

    With `keeps_missing` the methods for which it names no test have none, although one may have come since.
    """
    named = {(name, method): file for name, method, file in _ROW.findall(present)}
    missing = set(_MISSING.findall(present)) if keeps_missing else set()
    return "\n".join(_lines(named, missing)) + "\n"


def _lines(named: dict[tuple[str, str], str], without: set[str]) -> Iterator[str]:
    classes = api_classes(recorded_modules(), {**JAVA_ONLY, **NOT_BUILT_YET})
    found = find_calls(classes)
    told = differences(_told_differences(), all_marks())
    differing = by_method(told)
    tables: dict[str, list[str]] = {}
    missing: list[str] = []
    for api in classes:
        for method in api.methods:
            how, files = tests_of(api, method, classes, found)
            if not files or f"{api.name}.{method}" in without:
                missing.append(f"- `{api.name}.{method}`")
                continue
            file = _chosen(files, named.get((api.name, method)))
            result = "no difference known"
            if own := differing.pop(f"{api.name}.{method}", None):
                result, file = f"differs: {', '.join(map(str, own))}", next(iter(own.values()))
            row = f"| `{api.name}.{method}` | {how} | {result} | tests/{file} |"
            tables.setdefault(api.module, []).append(row)
    if differing:
        raise ValueError(
            f"tests are marked as ones that show differences of {sorted(differing)}: no such method"
        )
    total = len(missing) + sum(map(len, tables.values()))
    yield _INTRODUCTION
    yield f"Of {total} methods, tests use {total - len(missing)}.\n"
    for module, rows in tables.items():
        yield f"## {module.replace('pyflink', 'yarrow', 1)}\n"
        yield "| method | how | result | test |\n| --- | --- | --- | --- |"
        yield from rows
        yield ""
    yield "## No test found\n"
    if missing:
        yield "These exist with PyFlink's parameters, and the script finds no call of them in a test of behaviour:\n"
        yield from missing
    else:
        yield "The script finds a test of each method that exists."
    yield "\n## Not there\n"
    yield from (f"- `{name}`: {reason}" for name, reason in _excluded())
    yield "\n## Differences\n"
    for number, difference in enumerate(told, 1):
        shown = ", ".join(dict.fromkeys(f"tests/{mark.file}" for mark in difference.marks))
        yield f"{number}. {difference.text} Shown by: {shown}."


def _chosen(files: set[str], present: str | None) -> str:
    if present in files:
        return str(present)
    return min(files, key=lambda file: (_preference(file), file))


def _preference(file: str) -> int:
    return next((i for i, prefix in enumerate(_PREFERRED) if file.startswith(prefix)), len(_PREFERRED))


def _excluded() -> list[tuple[str, str]]:
    return sorted(
        (name, reason)
        for name, reason in {**JAVA_ONLY, **NOT_BUILT_YET}.items()
        if name.startswith("pyflink.datastream")
    )


def _told_differences() -> str:
    """The part of docs/pyflink.md on streams, state and files."""
    text = _PYFLINK_PAGE.read_text(encoding="utf-8").partition("## Different on purpose")[2]
    return text[text.index("Streams and state:") : text.index("`JobStatus.RUNNING.value`")].rstrip()
