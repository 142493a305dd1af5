"""Every module imports, is one file, has a docstring, and is no drawer and no novel."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture.source_tree import PACKAGES, ROOT, engine_files, module_name, parse, source

LINE_LIMIT = 800

#: Modules longer than the limit, each with the reason why it is still one idea.
LONG_MODULES: dict[str, str] = {}

#: Lines of a function that still fits a screen, docstring included.
FUNCTION_LIMIT = 60

#: Longer functions, and how many lines they have: constructors that make parts one after the other. A number may only
#: become smaller.
LONG_FUNCTIONS = {
    "yarrow.container.batch.batch_task.BatchTask.__init__": 66,
    "yarrow.container.chain.operator_chain.OperatorChain.__init__": 68,
    "yarrow.container.fragment.Fragment.__init__": 77,
    "yarrow.container.task.stream_task.StreamTask.__init__": 78,
}

#: Modules with the name of a drawer because PyFlink's programs import that name.
DRAWERS_BY_NAME = {"yarrow.datastream.utils"}

#: What only a program that names it, or one component, has to load.
HEAVY = {"pandas", "polars", "pyspark", "skein", "kazoo", "hdfs", "fastapi", "grpc"}

MODULES = [module_name(path) for path in engine_files()]


def modules_by_file(modules: Iterable[ModuleType]) -> dict[Path, list[ModuleType]]:
    """The different modules that were made of each file, at its real path; not the program itself."""
    found: dict[Path, list[ModuleType]] = defaultdict(list)
    # One module may be known by several names.
    for module in {id(module): module for module in modules}.values():
        file = getattr(module, "__file__", None)
        if file and module.__name__ != "__main__":
            found[Path(os.path.realpath(file))].append(module)
    return found


def test_modules_import_as_the_files_they_are() -> None:
    modules = {name: importlib.import_module(name) for name in MODULES if not name.endswith("__main__")}
    made_of = modules_by_file(list(sys.modules.values()))
    files = {name: Path(os.path.realpath(module.__file__ or "")) for name, module in modules.items()}
    wrong = {
        name: file for name, file in files.items() if ROOT not in file.parents or module_name(file) != name
    }
    assert not wrong
    twins = {file: made_of[file] for file in files.values() if len(made_of[file]) != 1}
    assert not twins, "a file was imported by several names"


def test_a_file_that_was_imported_twice_is_found(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.touch()
    (tmp_path / "link.py").symlink_to(file)
    first, second, program = (ModuleType(name) for name in ("one", "link", "__main__"))
    first.__file__, second.__file__, program.__file__ = str(file), str(tmp_path / "link.py"), str(file)
    found = modules_by_file([first, second, first, program, ModuleType("built_in")])
    assert found == {file.resolve(): [first, second]}


@pytest.mark.parametrize("bare", [package for package in PACKAGES if package != "yarrow"])
def test_bare_import_is_refused_with_the_right_name(bare: str) -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {bare}"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    assert f"yarrow.{bare}" in finished.stderr


def test_links_into_the_package_are_relative() -> None:
    for package in PACKAGES[1:]:
        assert os.readlink(ROOT / "yarrow" / package) == f"../{package}"


def test_every_folder_with_modules_is_a_package() -> None:
    """A folder without __init__.py would be missing in the wheel."""
    bare = {path.parent for path in engine_files() if not (path.parent / "__init__.py").exists()}
    assert not bare


def test_data_files_of_the_package_are_in_the_wheel() -> None:
    """A file that no pattern of package-data names works from the checkout and is missing once installed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = [pattern for patterns in settings.values() for pattern in patterns]
    lost = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and path.resolve() == path
        if not any(path.match(pattern) for pattern in patterns)
    ]
    assert not lost, f"name these in [tool.setuptools.package-data]: {lost}"


def test_every_module_says_what_it_is() -> None:
    written = [path for path in engine_files() if path.stat().st_size]
    silent = [module_name(path) for path in written if ast.get_docstring(parse(path)) is None]
    assert not silent, f"these modules have no docstring: {silent}"


def test_no_module_is_a_drawer() -> None:
    drawers = [
        name
        for name in set(MODULES) - DRAWERS_BY_NAME
        if name.rpartition(".")[2] in {"utils", "util", "helpers", "misc"}
    ]
    assert not drawers, f"name these after what they hold: {drawers}"


def test_long_modules_are_known_and_have_a_reason() -> None:
    lengths = {module_name(path): len(source(path).splitlines()) for path in engine_files()}
    long = {name: lines for name, lines in lengths.items() if lines > LINE_LIMIT}
    assert long.keys() == LONG_MODULES.keys(), f"{long} against the list {sorted(LONG_MODULES)}"


def long_functions(node: ast.AST, name: str) -> Iterator[tuple[str, int]]:
    """Name and lines of each function of a tree that is above the limit."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}"
            lines = (child.end_lineno or child.lineno) - child.lineno + 1
            if lines > FUNCTION_LIMIT and not isinstance(child, ast.ClassDef):
                yield inner, lines
        yield from long_functions(child, inner)


@pytest.mark.slow
def test_functions_fit_a_screen() -> None:
    found = {
        name: lines
        for path in engine_files()
        for name, lines in long_functions(parse(path), module_name(path))
    }
    assert found == LONG_FUNCTIONS, "divide what has grown; write down what has shrunk"


def test_importing_the_api_loads_nothing_heavy() -> None:
    """Start-up time and the fork of workers both depend on what an import drags in."""
    program = "import sys, yarrow.datastream; print(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not HEAVY & set(finished.stdout.split())
