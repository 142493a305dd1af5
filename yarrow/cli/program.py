"""Runs a user's program inside the command's process, as `python job.py` would.

Owner: the main thread. The program is `__main__`: its classes are `__main__` classes. `sys.argv` and the
first entry of `sys.path` are as the interpreter would set them. They stay so: a process runs one program.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from yarrow.cli.errors import ProgramFailedError
from yarrow.client.errors import CommandError


@dataclass(frozen=True, slots=True)
class Program:
    """The program to run: a script, or a module (in an archive, or found on the path)."""

    #: A .py file, or a zip or folder with `module` or a `__main__.py`.
    path: str | None = None
    module: str | None = None
    arguments: tuple[str, ...] = ()
    #: Also added to the search path, for the client and for the workers.
    python_files: tuple[str, ...] = ()

    @property
    def archive(self) -> str | None:
        """The zip or folder of the program, which its workers need as well."""
        return self.path if self.path is not None and _is_container(self.path) else None

    def check(self) -> None:
        """Raises CommandError if there is nothing to run or no such file."""
        if self.path is None and self.module is None:
            raise CommandError("No program: give a file, `yarrow run job.py`, or a module with -pym.")
        if self.path is not None and not os.path.exists(self.path):
            raise CommandError(f"There is no program {self.path!r}. Working directory: {os.getcwd()}")


def run_program(program: Program) -> None:
    """Runs it to its end. Raises ProgramFailedError for its exceptions, but lets SystemExit pass."""
    program.check()
    for entry in reversed(program.python_files):
        sys.path.insert(1, _search_path(entry))
    code, main = _load(program)
    sys.modules["__main__"] = main
    try:
        exec(code, main.__dict__)
    except Exception as error:
        raise ProgramFailedError(str(error)) from error


def _load(program: Program) -> tuple[CodeType, ModuleType]:
    path = program.path
    if path is not None and program.module is None and not _is_container(path):
        script = Path(path)
        _set_start(os.path.dirname(os.path.abspath(path)), path, program.arguments)
        return _script(script)
    if path is not None:
        sys.path[0] = os.path.abspath(path)
    else:
        sys.path[0] = os.getcwd()
    return _module(program.module or "__main__", program.arguments)


def _search_path(python_file: str) -> str:
    """The folder from which shipped files are imported, as on the workers."""
    path = Path(python_file).absolute()
    if path.is_dir():
        return str(path.parent if (path / "__init__.py").exists() else path)
    return str(path if zipfile.is_zipfile(path) else path.parent)


def _is_container(path: str) -> bool:
    """Whether it is a folder, or a zip of any name, instead of a script."""
    return os.path.isdir(path) or (not path.endswith(".py") and zipfile.is_zipfile(path))


def _set_start(folder: str, argv0: str, arguments: Sequence[str]) -> None:
    sys.path[0] = folder
    sys.argv = [argv0, *arguments]


def _script(script: Path) -> tuple[CodeType, ModuleType]:
    main = _new_main({"__file__": str(script), "__spec__": None, "__package__": None})
    source = script.read_bytes()
    try:
        # Without the __future__ imports of this module, which would make its annotations texts.
        return compile(source, str(script), "exec", dont_inherit=True), main
    except SyntaxError as error:
        raise ProgramFailedError(str(error)) from error.with_traceback(None)


def _module(name: str, arguments: Sequence[str]) -> tuple[CodeType, ModuleType]:
    try:
        # Our own module of that name is loaded already: only the archive's is wanted.
        spec = (
            PathFinder.find_spec(name, sys.path[:1]) if name == "__main__" else importlib.util.find_spec(name)
        )
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise CommandError(f"Cannot find the module {name!r}: {error}.") from error
    loader: Any = None if spec is None else spec.loader
    code = loader.get_code(spec.name) if spec is not None and hasattr(loader, "get_code") else None
    if spec is None or code is None:
        raise CommandError(
            f"There is no module {name!r} to run: put it into the working directory, or name the file or"
            " archive that holds it with -pyfs."
        )
    sys.argv = [spec.origin or name, *arguments]
    return code, _new_main(
        {"__file__": spec.origin, "__spec__": spec, "__package__": spec.parent, "__loader__": loader}
    )


def _new_main(names: dict[str, Any]) -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__.update({"__builtins__": builtins, **names})
    return main
