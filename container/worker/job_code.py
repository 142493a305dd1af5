"""Makes a job's user code loadable in a worker: search path, shipped files, classes of the main program.

Owner: the task thread, before it loads the first function of a job. A worker serves one job, so nothing is undone.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import threading
import types
from collections.abc import Mapping

from yarrow.container.protocol.errors import MissingModuleError
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.config.options import python
from yarrow.runtime.data.key_classes import set_main_module
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.user_code import register_main_definitions
from yarrow.runtime.interpreters.environment import INTERPRETER_VARIABLE
from yarrow.runtime.interpreters.interpreter import is_this_interpreter
from yarrow.runtime.interpreters.job_interpreter import interpreter_of
from yarrow.runtime.yarn import layout

#: Workers in one process prepare it at the same time, but only one thread may clear the interpreter's caches.
_CACHES = threading.Lock()


def install_user_code(graph: JobGraph, file_paths: Mapping[str, str], *, own_main: bool) -> None:
    """Prepares this process. Raises InvalidProgramError with what is missing: MissingModuleError for a module.

    `own_main` False (one-process mode) leaves `__main__` alone: it is the client's and has the classes
    already.
    """
    code = graph.user_code
    if code.python_version != sys.version_info[:2]:
        wanted, have = ".".join(map(str, code.python_version)), ".".join(map(str, sys.version_info[:2]))
        raise InvalidProgramError(
            f"job '{graph.name}' was built with Python {wanted}, this worker runs {have}; "
            "use the same minor version, e.g. by pointing python.executable at it"
        )
    _check_interpreter(graph)
    if own_main and any(file.kind in ("archive", "requirements") for file in code.files):
        # Imported late: workers without archives save a megabyte.
        from yarrow.container.worker.shipped_content import install_content

        for entry in install_content(code.files, file_paths):
            sys.path.insert(0, entry)
    for shipped in reversed(code.files):
        path = file_paths.get(shipped.blob_key)
        if path is not None and shipped.kind == "python_file":
            _put_on_path(path)
    for folder in reversed(_folders(graph)):
        if os.path.isdir(folder) and folder not in sys.path:
            sys.path.insert(0, folder)
    with _CACHES:
        importlib.invalidate_caches()
    missing = [name for name in code.required_modules if not _can_import(name)]
    if missing:
        raise MissingModuleError(f"job '{graph.name}'", missing[0])
    if own_main:
        sys.modules["__main__"] = types.ModuleType("__main__")
        register_main_definitions(code.main_definitions)
    set_main_module("__main__")


def _folders(graph: JobGraph) -> tuple[str, ...]:
    """Folders for the search path: the client's if workers share its host, else those of python.pythonpath."""
    folders = graph.user_code.python_path
    if layout.RESOURCE_ID not in os.environ:
        return folders
    # A YARN node is another host than the client's, even if it has folders of the same names.
    configured = graph.configuration.get(python.PYTHON_PATH.key, "").split(os.pathsep)
    return tuple(folder for folder in folders if folder in configured)


def _check_interpreter(graph: JobGraph) -> None:
    """Refuses a job that needs another interpreter than the workers have.

    A cluster's workers run in the interpreter of its own configuration, unless the job brings one in an
    archive.
    """
    wanted = graph.configuration.get(python.EXECUTABLE.key, python.EXECUTABLE.default)
    if wanted == python.EXECUTABLE.default or interpreter_of(graph) is not None:
        return
    if not _is_this(wanted):
        raise InvalidProgramError(
            f"job '{graph.name}' asks for the interpreter {wanted}, but the workers of this cluster run"
            f" {sys.executable}. Ship the interpreter in an archive ({python.ARCHIVES.key}, -pyarch env.zip"
            f" -pyexec env.zip/bin/python). Or set {python.EXECUTABLE.key} in the configuration of the"
            " TaskExecutors, or leave the key out of the job's configuration"
        )


def _is_this(wanted: str) -> bool:
    if not os.path.isabs(wanted) and os.path.basename(wanted) != wanted:
        # The path is relative to a folder that may not be the present working directory.
        parts = [part for part in os.path.normpath(wanted).split(os.sep) if part != os.pardir]
        own = os.path.abspath(os.environ.get(INTERPRETER_VARIABLE, sys.executable))
        return own.split(os.sep)[-len(parts) :] == parts
    found = shutil.which(wanted)
    return found is not None and is_this_interpreter(os.path.abspath(found))


def _put_on_path(path: str) -> None:
    """Adds the folder of a .py file, or a zip or folder itself, to the search path."""
    import zipfile  # few jobs ship files, and all workers would hold it

    entry = path if os.path.isdir(path) or zipfile.is_zipfile(path) else os.path.dirname(path)
    if entry not in sys.path:
        sys.path.insert(0, entry)


def _can_import(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
