"""The Python environment of an application's containers: its interpreter, and the archives with it.

Owner: the client's thread; blocking (packs and uploads). A cluster descriptor only needs `prepare`. Must not
know how containers are started: it names an archive, its interpreter and the variables of processes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from yarrow.client.yarn.environment.environment_archive import START_SCRIPTS, PackedArchive, write_archive
from yarrow.client.yarn.environment.environment_files import (
    EnvironmentFile,
    EnvironmentPart,
    environment_files,
    is_object,
    system_libraries,
)
from yarrow.client.yarn.environment.environment_start import (
    ARCHIVE_SUFFIX,
    EDITABLE_FOLDER,
    INTERPRETER,
    START_SCRIPT,
)
from yarrow.client.yarn.environment.environment_store import EnvironmentMemory, EnvironmentStore, fingerprint
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.options import yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.yarn.gateways import Resource, YarnError
from yarrow.runtime.yarn.layout import ENVIRONMENT_FOLDER, SPARK_JARS_FOLDER, START_FILE
from yarrow.runtime.yarn.staging_root import absolute_hdfs_path, staging_root

#: Values of `yarn.environment`: pack the active environment; nodes have the client's interpreter.
AUTO = "auto"
NO_ENVIRONMENT = "none"

_SCRIPT_SUFFIX = ".sh"
#: The start script unpacks these; YARN unpacks others, which took more than 45 s for an environment of 800
#: MB.
_BY_SCRIPT = (".tar.gz", ".tgz")
_ARCHIVES = (*_BY_SCRIPT, ".tar", ".zip")
#: Marks by which an archive is recognised: end of its name -> place of the mark, mark.
_MARKS = {
    ".tar.gz": (0, b"\x1f\x8b"),
    ".tgz": (0, b"\x1f\x8b"),
    ".tar": (257, b"ustar"),
    ".zip": (0, b"PK"),
}
#: Modules in a container's working directory never precede the engine's own.
_VARIABLES: Mapping[str, str] = {"PYTHONSAFEPATH": "1"}

Say = Callable[[str], None]
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class PreparedEnvironment:
    """The resources and variables by which containers run Python."""

    #: For every container; a node caches and unpacks each once. Empty = the nodes have the interpreter.
    archives: tuple[Resource, ...]
    #: Absolute, or relative to the container's working directory.
    interpreter: str
    #: Variables of master and TaskExecutors; no value depends on the container.
    variables: Mapping[str, str] = field(default_factory=dict)


def prepare(config: Settings, say: Say) -> PreparedEnvironment:
    """The environment that `yarn.environment` names, on HDFS and ready to use.

    `say` gets a sentence whenever something takes more than a moment. Raises YarnError for a missing archive
    or an invalid value, FileSystemError if HDFS cannot be used.
    """
    wanted = config.get(yarn.ENVIRONMENT).strip()
    if wanted.lower() == NO_ENVIRONMENT:
        return PreparedEnvironment((), sys.executable, dict(_VARIABLES))
    if wanted.lower() == AUTO:
        packed = packed_archives(store_of(config), EnvironmentMemory.of_user(), say)
        return PreparedEnvironment(packed, INTERPRETER, dict(_VARIABLES))
    address = _existing(wanted)
    if wanted.endswith(_BY_SCRIPT):
        start = _kept(START_FILE, _start_script(store_of(config)))
        given = _kept(ENVIRONMENT_FOLDER + ARCHIVE_SUFFIX, address)
        return PreparedEnvironment((start, given), INTERPRETER, dict(_VARIABLES))
    archive = Resource(ENVIRONMENT_FOLDER, address, is_archive=True, shared=True)
    return PreparedEnvironment((archive,), f"{ENVIRONMENT_FOLDER}/{START_SCRIPTS[0]}", dict(_VARIABLES))


def spark_jars(config: Settings, say: Say) -> tuple[Resource, ...]:
    """The archive of Spark's jars on HDFS, for containers of SparkDrivers; uploaded once, until PySpark changes.

    Empty if the environment has its own, or if there is no PySpark: then a SparkDriver says so. Raises as `prepare`.
    """
    if config.get(yarn.ENVIRONMENT).strip().lower() != AUTO:
        return ()
    jars = environment_files(EnvironmentPart.SPARK_JARS)
    if not jars:
        return ()
    store, memory, key = store_of(config), EnvironmentMemory.of_user(), fingerprint(jars)
    address = _known(store, memory, key)
    if address is None:
        size = sum(file.size for file in jars)
        say(
            f"Uploading Spark's jars ({_megabytes(size)} MB) for jobs in BATCH mode: once, until they change."
        )
        address = _add(store, memory, key, jars, None, say)
    return (_kept(SPARK_JARS_FOLDER + ARCHIVE_SUFFIX, address),)


def demands(config: Settings) -> str:
    """The requirements of an already packed environment, for the error when it does not start; else empty."""
    wanted = config.get(yarn.ENVIRONMENT).strip()
    if wanted.lower() in (AUTO, NO_ENVIRONMENT):
        return ""
    return (
        f" Its containers run {wanted} ({yarn.ENVIRONMENT.key}): {START_SCRIPTS[0]} in it must start from"
        " any folder, in a Python of this client's version, with Yarrow and its dependencies."
    )


def store_of(config: Settings) -> EnvironmentStore:
    """The store of this user's environments."""
    replication = max(0, config.get(yarn.FILE_REPLICATION))
    return EnvironmentStore(
        join(staging_root(config), "environments"), RandomIdFactory(), _CLOCK, replication
    )


def packed_archives(store: EnvironmentStore, memory: EnvironmentMemory, say: Say) -> tuple[Resource, ...]:
    """The active environment in the store, packed and uploaded if it is missing.

    Editable installs have their own archive, so that an edit costs few files and not the whole environment.
    """
    packages = environment_files(EnvironmentPart.PACKAGES)
    editable = environment_files(EnvironmentPart.EDITABLE)
    # Extension modules of editable installs need libraries too, which go into the other archive.
    objects = [file for file in editable if is_object(file)]
    key = fingerprint((*packages, *objects))
    address = _known(store, memory, key)
    if address is None:
        libraries = system_libraries((*packages, *objects))
        size = sum(file.size for file in (*packages, *libraries))
        say(
            f"Packing the Python environment {sys.prefix} ({_megabytes(size)} MB) and uploading it: once, until it"
            " changes."
        )
        address = _add(store, memory, key, packages, libraries, say)
    found = [_kept(START_FILE, _start_script(store)), _kept(ENVIRONMENT_FOLDER + ARCHIVE_SUFFIX, address)]
    if editable:
        key = fingerprint(editable)
        address = _known(store, memory, key) or _add(store, memory, key, editable, None, say)
        found.append(_kept(EDITABLE_FOLDER + ARCHIVE_SUFFIX, address))
    return tuple(found)


def _known(store: EnvironmentStore, memory: EnvironmentMemory, key: str) -> str | None:
    known = memory.find(key)
    held = known is not None and store.holds(known.digest, known.size)
    return store.path_of(known.digest) if known is not None and held else None


def _add(
    store: EnvironmentStore,
    memory: EnvironmentMemory,
    key: str,
    files: Sequence[EnvironmentFile],
    libraries: Sequence[EnvironmentFile] | None,
    say: Say,
) -> str:
    """Packs `files`; with `libraries` the archive can start an interpreter."""
    begin = _CLOCK.monotonic()

    def write(output: BinaryIO) -> PackedArchive:
        return write_archive((*files, *(libraries or ())), output, starts=libraries is not None)

    packed = store.add(write)
    memory.remember(key, packed, libraries or ())
    path = store.path_of(packed.digest)
    say(f"Packed {packed.size / 1e6:.1f} MB into {path} in {_CLOCK.monotonic() - begin:.1f} s.")
    return path


def _start_script(store: EnvironmentStore) -> str:
    content = START_SCRIPT.encode()
    script = PackedArchive(hashlib.sha256(content).hexdigest(), len(content))

    def write(output: BinaryIO) -> PackedArchive:
        output.write(content)
        return script

    if not store.holds(script.digest, script.size, _SCRIPT_SUFFIX):
        store.add(write, _SCRIPT_SUFFIX)
    return store.path_of(script.digest, _SCRIPT_SUFFIX)


def _kept(target: str, address: str) -> Resource:
    return Resource(target, address, shared=True)


def _existing(wanted: str) -> str:
    if not wanted.startswith("hdfs://"):
        raise YarnError(
            f"{yarn.ENVIRONMENT.key} is {wanted!r}, which nodes cannot see: use `{AUTO}` (the active environment is"
            f" packed), `{NO_ENVIRONMENT}` (nodes have {sys.executable}), or an archive on HDFS, hdfs://host:port/env.tar.gz."
        )
    if not wanted.endswith(_ARCHIVES):
        raise YarnError(
            f"{yarn.ENVIRONMENT.key} is {wanted!r}, which YARN does not unpack: the name of an archive ends in"
            f" {', '.join(_ARCHIVES)}."
        )
    address = absolute_hdfs_path(wanted)
    try:
        is_archive = _is_archive(address)
    except FileNotFoundError:
        raise YarnError(
            f"{yarn.ENVIRONMENT.key} names {address}, and there is no such file: pack an environment whose"
            f" {START_SCRIPTS[0]} starts from any folder, upload it, or use `{AUTO}`."
        ) from None
    except FileSystemError as error:
        raise YarnError(f"{yarn.ENVIRONMENT.key} names {address}, which cannot be read: {error}") from error
    if not is_archive:
        raise YarnError(
            f"{yarn.ENVIRONMENT.key} names {address}, which is no {_suffix(address)} archive: pack an environment"
            f" whose {START_SCRIPTS[0]} starts from any folder, upload it, or use `{AUTO}`."
        )
    return address


def _is_archive(address: str) -> bool:
    """Whether the file begins as its name says; the rest is checked when it is unpacked."""
    file_system = file_system_for(address)
    if file_system.status(address).is_dir:
        return False
    place, mark = _MARKS[_suffix(address)]
    with file_system.open(address) as file:
        return file.read(place + len(mark))[place:] == mark


def _suffix(address: str) -> str:
    return next(suffix for suffix in _ARCHIVES if address.endswith(suffix))


def _megabytes(size: int) -> int:
    return round(size / 1e6)
