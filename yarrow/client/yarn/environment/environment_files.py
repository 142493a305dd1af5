"""Which files make up the active Python environment, and where each stands in the one that containers get.

Owner: the client's thread; blocking (lists folders, reads no content but `.pth` files and metadata). The
result is one self-contained installation. It holds the interpreter, the standard library and shared
libraries. Its site-packages hold the packages of the virtual environment. Editable installs become the files
of their wheels. Must not pack files that belong to no installation, such as those of a checkout.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

from yarrow.client.yarn.environment.environment_libraries import libraries_outside


class EnvironmentPart(Enum):
    """The archives of an environment."""

    #: Interpreter, shared libraries and installed packages, the engine and the user's: changes seldom.
    PACKAGES = "packages"
    #: Editable installs in the form of their wheels: small, changes with every edit.
    EDITABLE = "editable"
    #: The jars of PySpark: large, the same for every environment, needed by SparkDrivers only. Spark wants them at
    #: the root of their archive.
    SPARK_JARS = "spark-jars"


@dataclass(frozen=True, slots=True)
class EnvironmentFile:
    """One regular file; links are packed as their targets."""

    #: Path in the environment, with `/`.
    target: str
    source: str
    size: int
    mtime_ns: int
    executable: bool


PYTHON_NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
#: Place of the standard library, with packages below it; on some systems in `lib64`, which the interpreter
#: knows.
STANDARD_LIBRARY = f"{sys.platlibdir}/{PYTHON_NAME}"
PACKAGES = f"{STANDARD_LIBRARY}/site-packages"
#: Folder of the system's libraries.
LIBRARIES = "lib"

#: Excluded from the standard library: its tests, builders of extensions, and modules that need a screen.
_UNUSED_STANDARD = (
    "test", "idlelib", "tkinter", "turtledemo", "turtle.py", "ensurepip", "lib2to3/tests", "unittest/test",
    "distutils/tests", "ctypes/test", "sqlite3/test", "site-packages", "dist-packages", "config-*",
    "lib-dynload/_tkinter.*", "lib-dynload/_test*",
)  # fmt: skip
#: Excluded from packages: builders (pip stays, for requirements of a job), and folders that nothing imports.
_UNUSED_PACKAGES = (
    "setuptools", "setuptools-*.dist-info", "pkg_resources", "_distutils_hack",
    "distutils-precedence.pth", "__editable__*.pth", "__editable___*_finder.py", "*.egg-link", "easy-install.pth",
    "numpy/tests", "numpy/*/tests", "numpy/_core/include", "pandas/tests", "pyarrow/tests", "pyarrow/include",
    "pyarrow/*.a", "pyspark/examples", "pyspark/tests", "kazoo/tests", "py4j/tests",
)  # fmt: skip
#: setuptools stays if a distribution needs it.
_SETUPTOOLS = (
    "setuptools",
    "setuptools-*.dist-info",
    "pkg_resources",
    "_distutils_hack",
    "distutils-precedence.pth",
)
_REQUIRES_SETUPTOOLS = re.compile(rb"^Requires-Dist: setuptools\b(?!.*extra ==)", re.MULTILINE)
_JARS = "pyspark/jars"
#: Excluded everywhere: caches, version control, other tools' output.
_NEVER = frozenset(
    {"__pycache__", ".git", ".hg", ".svn", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".venv"}
)
#: Data files of the engine's wheel; pyproject.toml says the same.
_ENGINE_DATA = ("py.typed", "*.yaml", "*.json", "*.html", "*.css", "*.js", "*.svg")
_SHARED_OBJECT = re.compile(r".*\.so(\.\d+)*")
#: An installed distribution's origin: a path of the client.
_ORIGIN_FILES = ("direct_url.json", "RECORD")


def environment_files(part: EnvironmentPart) -> list[EnvironmentFile]:
    """The files of one part of the active environment, by target, without shared libraries of the system."""
    folders = package_folders()
    found: list[EnvironmentFile] = []
    match part:
        case EnvironmentPart.PACKAGES:
            found = [*_interpreter(), *_standard_library()]
            unused = _unused_packages(folders)
            for folder in folders:
                # Their own folders for the search path are not in the container.
                outside = {name for name, _ in _path_lines(folder)}
                found += _below(folder, PACKAGES, (*unused, *outside))
        case EnvironmentPart.EDITABLE:
            for folder in folders:
                found += _editable(folder)
        case EnvironmentPart.SPARK_JARS:
            for folder in folders:
                found += _below(os.path.join(folder, _JARS), "")
    first: dict[str, EnvironmentFile] = {}
    for file in found:
        # As on a search path: the first one is imported.
        first.setdefault(file.target, file)
    return sorted(first.values(), key=lambda file: file.target)


def system_libraries(files: Sequence[EnvironmentFile]) -> list[EnvironmentFile]:
    """The shared libraries outside the C runtime that `files` need and do not contain."""
    objects = [file.source for file in files if is_object(file)]
    inside = [os.path.dirname(os.__file__), *package_folders()]
    found = libraries_outside(objects, inside)
    return [_file(f"{LIBRARIES}/{name}", path) for name, path in sorted(found.items())]


def package_folders() -> list[str]:
    """Folders of installed packages that this process imports from, in the order of its search path."""
    paths = sysconfig.get_paths()
    known = {paths["purelib"], paths["platlib"], *site.getsitepackages()}
    if site.ENABLE_USER_SITE:
        known.add(site.getusersitepackages())
    real = {os.path.realpath(folder) for folder in known}
    return list(
        dict.fromkeys(os.path.realpath(entry) for entry in sys.path if os.path.realpath(entry) in real)
    )


def is_object(file: EnvironmentFile) -> bool:
    """Whether the loader opens it: interpreter, extension module, shared library."""
    return (
        file.target.startswith("bin/") or _SHARED_OBJECT.fullmatch(os.path.basename(file.target)) is not None
    )


def _interpreter() -> Iterator[EnvironmentFile]:
    # The file itself: in a virtual environment sys.executable is a link to it, or a copy that finds its
    # library.
    base = getattr(sys, "_base_executable", None) or sys.executable
    yield _file(f"bin/{PYTHON_NAME}", os.path.realpath(base), executable=True)


def _standard_library() -> Iterator[EnvironmentFile]:
    folder = os.path.dirname(os.path.realpath(os.__file__))
    yield from _below(folder, STANDARD_LIBRARY, _UNUSED_STANDARD)
    # Some systems keep extension modules apart.
    for entry in sys.path:
        if os.path.basename(entry) == "lib-dynload" and not os.path.realpath(entry).startswith(
            folder + os.sep
        ):
            yield from _below(entry, f"{STANDARD_LIBRARY}/lib-dynload", ("_tkinter.*", "_test*"))


def _unused_packages(folders: Sequence[str]) -> tuple[str, ...]:
    if any(_needs_setuptools(Path(folder)) for folder in folders):
        return (*(pattern for pattern in _UNUSED_PACKAGES if pattern not in _SETUPTOOLS), _JARS)
    return (*_UNUSED_PACKAGES, _JARS)


def _needs_setuptools(folder: Path) -> bool:
    return any(
        _REQUIRES_SETUPTOOLS.search(metadata.read_bytes()) for metadata in folder.glob("*.dist-info/METADATA")
    )


def _editable(folder: str) -> Iterator[EnvironmentFile]:
    """Editable installs of a folder of packages, in the places of their wheels."""
    for finder in sorted(Path(folder).glob("__editable___*_finder.py")):
        yield from _mapped(finder)
    own = _engine_folder()
    if not own.startswith(folder + os.sep):
        yield from _engine(own)
    for _, entry in _path_lines(folder):
        yield from _path_entry(entry)


def _engine_folder() -> str:
    import yarrow

    return os.path.dirname(os.path.realpath(yarrow.__file__))


def _engine(folder: str) -> Iterator[EnvironmentFile]:
    """The content of the engine's wheel: packages with their modules and declared data, links followed."""
    for entry in _walk(folder):
        relative = os.path.relpath(entry, folder)
        package = os.path.dirname(entry)
        data = any(fnmatchcase(os.path.basename(entry), pattern) for pattern in _ENGINE_DATA)
        if os.path.exists(os.path.join(package, "__init__.py")) and (entry.endswith(".py") or data):
            yield _file(f"yarrow/{relative}", entry)


def _mapped(finder: Path) -> Iterator[EnvironmentFile]:
    """setuptools' editable installs name each top-level module and its place."""
    specification = importlib.util.spec_from_file_location(finder.stem, finder)
    if specification is None or specification.loader is None:
        return
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    for name, place in getattr(module, "MAPPING", {}).items():
        if os.path.realpath(place) == _engine_folder():
            continue
        target = name.replace(".", "/")
        if os.path.isdir(place):
            yield from _below(place, target)
        else:
            for suffix in (".py", *importlib.machinery.EXTENSION_SUFFIXES):
                if os.path.exists(place + suffix):
                    yield _file(target + suffix, place + suffix)


def _path_lines(folder: str) -> Iterator[tuple[str, str]]:
    """(name, folder) for each outside folder that a `.pth` file of a folder of packages puts on the path."""
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".pth"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as lines:
            for line in map(str.strip, lines):
                path = os.path.realpath(os.path.join(folder, line))
                own = path.startswith(folder + os.sep)
                if (
                    line
                    and not line.startswith(("#", "import ", "import\t"))
                    and os.path.isdir(path)
                    and not own
                ):
                    yield name, path


def _path_entry(folder: str) -> Iterator[EnvironmentFile]:
    """Importable packages and modules of a folder on the search path, without other files beside them."""
    if folder == os.path.dirname(_engine_folder()):
        return
    for entry in sorted(os.scandir(folder), key=lambda found: found.name):
        path = os.path.join(folder, entry.name)
        if entry.is_dir() and os.path.exists(os.path.join(path, "__init__.py")):
            if entry.name not in ("tests", "test"):
                yield from _below(path, entry.name)
        elif (
            entry.name.endswith((".py", *importlib.machinery.EXTENSION_SUFFIXES)) and entry.name != "setup.py"
        ):
            yield _file(entry.name, path)


def _below(folder: str, target: str, unused: Sequence[str] = ()) -> Iterator[EnvironmentFile]:
    """Every file below `folder`, except those that match a pattern of `unused` (relative to it, level by level)."""
    pattern = re.compile("|".join(re.escape(one).replace(r"\*", "[^/]*") for one in unused) or r"(?!)")

    def scan(path: str, prefix: str) -> Iterator[EnvironmentFile]:
        with os.scandir(path) as entries:
            for entry in entries:
                relative = prefix + entry.name
                if entry.name in _NEVER or pattern.fullmatch(relative):
                    continue
                if entry.is_dir():
                    yield from scan(entry.path, f"{relative}/")
                elif entry.is_file() and not (prefix.endswith(".dist-info/") and entry.name in _ORIGIN_FILES):
                    found = entry.stat()
                    executable = bool(found.st_mode & 0o100)
                    yield EnvironmentFile(
                        f"{target}/{relative}" if target else relative,
                        entry.path,
                        found.st_size,
                        found.st_mtime_ns,
                        executable,
                    )

    if os.path.isdir(folder):
        yield from scan(folder, "")


def _walk(folder: str) -> Iterator[str]:
    for path, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if name not in _NEVER)
        yield from (os.path.join(path, name) for name in sorted(files))


def _file(target: str, source: str, executable: bool = False) -> EnvironmentFile:
    found = os.stat(source)
    return EnvironmentFile(target, source, found.st_size, found.st_mtime_ns, executable)
