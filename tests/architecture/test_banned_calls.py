"""Clocks, random numbers and ids come from runtime/common, so that tests can drive them by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import ROOT, engine_files, parse, walk

#: Dotted names of calls that only runtime/common may make; a trailing dot bans the whole module.
BANNED = (
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "uuid.uuid1",
    "uuid.uuid4",
    "random.",
    "numpy.random.",
)

#: Seeding after a fork and generators that are given their seed stay reproducible.
ALLOWED = frozenset({"random.seed", "random.Random", "numpy.random.seed", "numpy.random.default_rng"})


#: Modules that give a file the name of another one. All others do it by `write_whole` or `replace_whole`.
RENAMING = {
    # They hold the way of all others.
    "runtime/fs/local.py",
    "runtime/fs/whole_files.py",
    # Files of many megabytes, which are copied piece by piece, or which another process has written.
    "container/batch/spark/java/class_archive.py",
    "yarrow/cli/dashboard_command.py",
    "yarrow/cli/verification/captured_rows.py",
}


def banned_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of every mention of a banned name, whatever it was imported as."""
    return ((line, name) for line, name in names_used(tree) if _is_banned(name))


def names_used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of what a module mentions of its imports."""
    names: dict[str, str] = {}
    for node in walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                full = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or full] = full
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            full_name = _full_name(node, names)
            if full_name is not None:
                yield node.lineno, full_name


def _full_name(node: ast.expr, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _full_name(node.value, names)
        return f"{owner}.{node.attr}" if owner else None
    return None


def _is_banned(name: str) -> bool:
    return name not in ALLOWED and any(
        name.startswith(entry) if entry.endswith(".") else name == entry for entry in BANNED
    )


@pytest.mark.slow
def test_nobody_has_a_clock_random_or_id_of_its_own() -> None:
    uses = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in engine_files()
        if ROOT / "runtime" / "common" not in path.parents
        for line, name in banned_uses(parse(path))
    ]
    assert not uses, "take these from yarrow.runtime.common (clock, ids)"


@pytest.mark.slow
def test_files_are_replaced_in_one_way() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in engine_files()
        for _, name in names_used(parse(path))
        if name in ("os.replace", "os.rename", "shutil.move")
    }
    assert found == RENAMING


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\ntime.time()", ["time.time"]),
        ("from time import monotonic as now\nnow()", ["time.monotonic"]),
        ("import datetime as d\nd.datetime.now()", ["datetime.datetime.now"]),
        ("from datetime import datetime\ndatetime.now()", ["datetime.datetime.now"]),
        ("import numpy as np\nnp.random.random()", ["numpy.random.random"]),
        ("import random\nrandom.choice([1])", ["random.choice"]),
        ("import random\nrandom.seed(1)", []),
        ("import time\ntime.perf_counter_ns()", []),
        ("def time() -> int: ...\ntime()", []),
    ],
)
def test_the_search_finds_what_it_should(source: str, found: list[str]) -> None:
    assert [name for _, name in banned_uses(ast.parse(source))] == found
