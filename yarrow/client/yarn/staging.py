"""Staging: lays out a user's files for an application's containers: files, archives, modules and the program.

Owner: the client's thread; blocking (makes zips, lists HDFS). Local files are uploaded with the application
and removed with it; files on HDFS are used in place. Nothing of the user's is imported or run here. Files
that nodes cannot see are refused before anything is submitted.
"""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from yarrow.client.yarn.environment.environment import NO_ENVIRONMENT
from yarrow.client.yarn.environment.environment_start import ARCHIVE_SUFFIX, EDITABLE_FOLDER
from yarrow.runtime.common.errors import FileSystemError, InvalidProgramError
from yarrow.runtime.common.paths import scheme_of
from yarrow.runtime.config.options import python, web, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.option import EngineOption
from yarrow.runtime.config.web_pages import NO_PAGES, chosen_archive
from yarrow.runtime.fs.file_search import find_files
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.graph.executor import LocalFile
from yarrow.runtime.graph.shipped_files import archive_of
from yarrow.runtime.interpreters.interpreter import archive_of_interpreter, folder_of
from yarrow.runtime.yarn import layout
from yarrow.runtime.yarn.application import ProgramDescription
from yarrow.runtime.yarn.gateways import Resource, YarnError
from yarrow.runtime.yarn.shared_places import check_shared_places, local_path
from yarrow.runtime.yarn.staging_root import absolute_hdfs_path

#: Folders below USER_FOLDER for the files of flags, each file in its own folder: names may repeat.
PYTHON_FILES: Final = f"{layout.USER_FOLDER}/python-files"
ARCHIVES: Final = f"{layout.USER_FOLDER}/archives"
REQUIREMENTS: Final = f"{layout.USER_FOLDER}/requirements"

_ARCHIVE_ENDINGS: Final = (".tar.gz", ".tgz", ".tar", ".zip", ".jar")
#: Names in a container's folder that the user must not use.
_RESERVED: Final = frozenset(
    {
        layout.DESCRIPTION_FILE,
        layout.MASTER_SECRETS_FILE,
        layout.TASK_EXECUTOR_SECRETS_FILE,
        layout.SPARK_DRIVER_SECRETS_FILE,
        layout.JOB_GRAPH_FILE,
        layout.WEB_PAGES_FILE,
        layout.ENVIRONMENT_FOLDER,
        layout.ENVIRONMENT_FOLDER + ARCHIVE_SUFFIX,
        layout.USER_FOLDER,
        EDITABLE_FOLDER,
        EDITABLE_FOLDER + ARCHIVE_SUFFIX,
        layout.SPARK_JARS_FOLDER,
        layout.SPARK_JARS_FOLDER + ARCHIVE_SUFFIX,
        layout.START_FILE,
        "tmp",
    }
)


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """The files of containers, besides those of every application."""

    #: For master and TaskExecutors.
    both: tuple[Resource, ...]
    #: For the master's container alone: pages, and the program, which ships to workers what they need.
    master: tuple[Resource, ...] = ()
    #: The program with its paths in the container.
    program: ProgramDescription | None = None
    #: The configuration with paths in the container.
    configuration: Settings = Settings()  # noqa: RUF009 (immutable)


def check_places(config: Settings) -> None:
    """Raises YarnError for a shared place of processes on several nodes that is on the client's disk."""
    check_shared_places(config)
    user_files = config.get(yarn.PROVIDED_USER_LIB_DIR)
    provided = [(yarn.PROVIDED_LIB_DIRS.key, value) for value in config.get(yarn.PROVIDED_LIB_DIRS) or ()]
    if user_files:
        provided.append((yarn.PROVIDED_USER_LIB_DIR.key, user_files))
    for key, value in provided:
        if scheme_of(value) != "hdfs":
            raise YarnError(
                f"{key} names {value}, which nodes cannot see: upload it and name hdfs://host:port/..., or ship it"
                f" with every application by {yarn.SHIP_FILES.key}."
            )
    _check_interpreter(config, python.EXECUTABLE)


def check_local_files(config: Settings) -> None:
    """Raises InvalidProgramError for a missing local file that must go into containers.

    `stage` finds it too: this is for clients that check before the program's main() has run.
    """
    for option in (yarn.SHIP_FILES, yarn.SHIP_ARCHIVES):
        for value in config.get(option) or ():
            if scheme_of(value) == "file":
                _existing(value, option.key)


def _check_interpreter(config: Settings, option: EngineOption[str]) -> None:
    """Refuses an interpreter that containers would not have."""
    executable = config.get(option)
    packed = config.get(yarn.ENVIRONMENT).strip().lower() != NO_ENVIRONMENT
    if packed and config.is_set(option) and os.path.isabs(executable):
        raise YarnError(
            f"{option.key} is {executable}, a path of this machine; containers run the environment that"
            f" {yarn.ENVIRONMENT.key} names. Leave the key out, or name an interpreter in an archive of"
            f" {python.ARCHIVES.key} or {yarn.SHIP_ARCHIVES.key} by its path there (venv.zip/bin/python)."
            f" Where every node has the interpreter, set {yarn.ENVIRONMENT.key}: {NO_ENVIRONMENT}."
        )
    if not config.is_set(option) or os.path.isabs(executable) or os.sep not in executable:
        return
    shipped = [
        posixpath.basename(value.rstrip("/"))
        for option in (yarn.SHIP_ARCHIVES, yarn.SHIP_FILES, yarn.PROVIDED_LIB_DIRS)
        for value in config.get(option) or ()
    ]
    shipped += [layout.ENVIRONMENT_FOLDER, layout.USER_FOLDER]
    if not archive_of_interpreter(config, option) and not folder_of(executable, shipped):
        raise YarnError(
            f"{option.key} is {executable}, which the containers do not have. Ship the archive that holds it"
            f" with the job ({python.ARCHIVES.key}, -pyarch env.zip -pyexec env.zip/bin/python) or with every"
            f" container ({yarn.SHIP_ARCHIVES.key})."
        )


def stage(config: Settings, folder: Path, program: ProgramDescription | None = None) -> StagedFiles:
    """The shipped files of `config`, and the program (with paths of the client) of application mode.

    `folder` is a temporary one of the caller that lasts until the application was submitted; made archives go there.
    Raises YarnError for what nodes cannot see or HDFS does not have, InvalidProgramError for a local file that is not
    there.
    """
    check_places(config)
    if program is not None:
        _check_interpreter(config, python.CLIENT_EXECUTABLE)
    made = _Made(folder)
    both = [*_shipped(config, made), *_provided(config)]
    pages = tuple(_pages(config))
    config = config.overlay({web.PAGES.key: pages[0].target if pages else NO_PAGES})
    if program is None:
        return StagedFiles(_distinct(both), pages, None, config)
    master = _Master(made)
    staged = master.program(program)
    configuration = master.configuration(config)
    return StagedFiles(_distinct(both), _distinct([*master.resources, *pages]), staged, configuration)


def _pages(config: Settings) -> Iterator[Resource]:
    """The archive of pages for REST: the client's file, not one on the master's node."""
    archive = chosen_archive(config)
    if archive is not None:
        yield Resource(layout.WEB_PAGES_FILE, str(archive.absolute()))


class _Made:
    """Archives that were made for shipping."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def path(self, name: str) -> Path:
        """A new path with `name` at its end."""
        self._count += 1
        return self._folder / f"shipped-{self._count}-{name}"


class _Master:
    """Collects the user's files for the master's container, with their places there."""

    def __init__(self, made: _Made) -> None:
        self._made = made
        self.resources: list[Resource] = []
        #: (path of the client, folder in the container) -> place in the container.
        self._places: dict[tuple[str, str], str] = {}

    def program(self, program: ProgramDescription) -> ProgramDescription:
        path = self._place(program.path, layout.USER_FOLDER, "archive of modules") if program.path else ""
        files = [self._numbered(file, PYTHON_FILES, n) for n, file in enumerate(program.python_files)]
        return msgspec.structs.replace(program, path=path, python_files=tuple(files))

    def configuration(self, config: Settings) -> Settings:
        changed: dict[str, object] = {}
        files = config.get(python.FILES)
        if files:
            # A file of -pyfs is in both lists, and has one place.
            changed[python.FILES.key] = [self._numbered(f, PYTHON_FILES, n) for n, f in enumerate(files)]
        archives = config.get(python.ARCHIVES)
        if archives:
            changed[python.ARCHIVES.key] = [self._archive(value, n) for n, value in enumerate(archives)]
        requirements = config.get(python.REQUIREMENTS)
        if requirements:
            file, _, cache = requirements.partition("#")
            places = [self._place(file, REQUIREMENTS, "requirements")]
            if cache:
                places.append(self._folder(cache, f"{REQUIREMENTS}/cache"))
            changed[python.REQUIREMENTS.key] = "#".join(places)
        return config.overlay(changed)

    def _archive(self, value: str, number: int) -> str:
        path, mark, name = value.partition("#")
        # Without a name an archive is unpacked under its own, which its place in the container keeps.
        return self._numbered(path, ARCHIVES, number) + mark + name

    def _numbered(self, path: str, folder: str, number: int) -> str:
        return self._place(path, f"{folder}/{number}", "python_file")

    def _place(self, path: str, folder: str, kind: str) -> str:
        known = self._places.get((path, folder))
        if known is None:
            known = self._places[path, folder] = self._bring(path, folder, kind)
        return known

    def _bring(self, path: str, folder: str, kind: str) -> str:
        if scheme_of(path) != "file":
            return self._add(f"{folder}/{posixpath.basename(path)}", _remote(path))
        source = _existing(path, kind)
        name = os.path.basename(source)
        if os.path.isdir(source):
            made = self._made.path(f"{name}.zip")
            content = archive_of(LocalFile(name=name, kind="python_file", path=source))
            made.write_bytes(content or b"")
            return self._add(f"{folder}/{name}.zip", str(made))
        return self._add(f"{folder}/{name}", source)

    def _folder(self, path: str, target: str) -> str:
        """A folder that stays one: unpacked from an archive."""
        source = _existing(path, "requirements_cache")
        self._add(target, str(_packed(source, self._made)), is_archive=True)
        return target

    def _add(self, target: str, source: str, is_archive: bool = False) -> str:
        self.resources.append(Resource(target, source, is_archive=is_archive))
        return target


def _shipped(config: Settings, made: _Made) -> Iterator[Resource]:
    for value in config.get(yarn.SHIP_FILES) or ():
        if scheme_of(value) != "file":
            yield from _remote_files(value)
            continue
        source = _existing(value, yarn.SHIP_FILES.key)
        name = _free_name(os.path.basename(source), yarn.SHIP_FILES.key)
        if os.path.isdir(source):
            yield Resource(name, str(_packed(source, made)), is_archive=True)
        else:
            yield Resource(name, source)
    for value in config.get(yarn.SHIP_ARCHIVES) or ():
        name = _free_name(posixpath.basename(value.rstrip("/")), yarn.SHIP_ARCHIVES.key)
        if not name.endswith(_ARCHIVE_ENDINGS):
            raise YarnError(
                f"{yarn.SHIP_ARCHIVES.key} names {value}, which YARN does not unpack: the name of an archive ends in"
                f" {', '.join(_ARCHIVE_ENDINGS)}. {yarn.SHIP_FILES.key} ships files as they are."
            )
        source = _existing(value, yarn.SHIP_ARCHIVES.key) if scheme_of(value) == "file" else _remote(value)
        yield Resource(name, source, is_archive=True)


def _provided(config: Settings) -> Iterator[Resource]:
    for value in config.get(yarn.PROVIDED_LIB_DIRS) or ():
        base = _free_name(posixpath.basename(value.rstrip("/")), yarn.PROVIDED_LIB_DIRS.key)
        yield from _below(value, base, yarn.PROVIDED_LIB_DIRS.key)
    user_files = config.get(yarn.PROVIDED_USER_LIB_DIR)
    if user_files:
        yield from _below(user_files, layout.USER_FOLDER, yarn.PROVIDED_USER_LIB_DIR.key)


def _below(folder: str, target: str, key: str) -> Iterator[Resource]:
    address = absolute_hdfs_path(folder).rstrip("/")
    try:
        if not file_system_for(address).status(address).is_dir:
            raise YarnError(f"{key} names {address}, which is a file: name the directory that holds it.")
        for file in find_files(address):
            yield Resource(f"{target}/{file.path[len(address) + 1 :]}", file.path, shared=True)
    except FileNotFoundError:
        raise YarnError(f"{key} names {address}, and there is no such directory: upload it first.") from None
    except FileSystemError as error:
        raise YarnError(f"{key} names {address}, which cannot be listed: {error}") from error


def _remote_files(value: str) -> Iterator[Resource]:
    """A file on HDFS, or a folder with all its files."""
    address = _remote(value)
    name = _free_name(posixpath.basename(address.rstrip("/")), yarn.SHIP_FILES.key)
    if file_system_for(address).status(address).is_dir:
        yield from _below(address, name, yarn.SHIP_FILES.key)
    else:
        yield Resource(name, address)


def _remote(path: str) -> str:
    if scheme_of(path) != "hdfs":
        raise YarnError(f"{path} cannot be shipped: only local files and hdfs:// URLs can be.")
    address = absolute_hdfs_path(path)
    try:
        file_system_for(address).status(address)
    except FileNotFoundError:
        raise YarnError(f"{address} is to be shipped, and there is no such file: upload it first.") from None
    return address


def _existing(path: str, what: str) -> str:
    absolute = os.path.abspath(local_path(path))
    if not os.path.exists(absolute):
        raise InvalidProgramError(
            f"{path} is to be shipped ({what}), and there is no such file. Working directory: {os.getcwd()}"
        )
    return absolute


def _packed(folder: str, made: _Made) -> Path:
    """A folder's content as an archive that YARN unpacks; links to files are followed, caches are left out."""
    target = made.path(f"{os.path.basename(folder)}.tar.gz")
    with tarfile.open(target, "w:gz", compresslevel=1, dereference=True) as archive:
        for path, folders, files in os.walk(folder, followlinks=True):
            folders[:] = sorted(name for name in folders if name not in ("__pycache__", ".git"))
            for name in sorted(files):
                full = os.path.join(path, name)
                archive.add(full, os.path.relpath(full, folder), recursive=False)
    return target


def _free_name(name: str, key: str) -> str:
    if not name or name in _RESERVED or name.startswith(".skein"):
        raise YarnError(
            f"{key} ships {name or 'something without a name'}, a name that Yarrow needs in a container's folder:"
            " rename it."
        )
    return name


def _distinct(resources: Iterable[Resource]) -> tuple[Resource, ...]:
    """Raises YarnError if two files would have one name in the container."""
    found: dict[str, Resource] = {}
    for resource in resources:
        other = found.setdefault(resource.target, resource)
        if other.source != resource.source:
            raise YarnError(
                f"{other.source} and {resource.source} would both be {resource.target} in the containers: rename one."
            )
    return tuple(found.values())
