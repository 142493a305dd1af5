"""A job's shipped archives and requirements: unpacked and installed once on a TaskExecutor for all its workers.

Owner: the task thread of a worker process, before it loads the job's functions. For the archive with the
job's interpreter, a thread of the TaskExecutor. Concurrent callers take turns by a lock. Works beside the
files that the TaskExecutor fetched, which removes all of it with the job.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.fs.archives import UnsafeArchiveError, unpack
from yarrow.runtime.graph.job_graph import ShippedFile
from yarrow.runtime.yarn import layout

#: Most seconds of pip, which downloads and may compile.
_PIP_SECONDS = 900.0
_TAIL = 1500
#: Below the content folder: the working directory of processes with archives.
_WORK = "work"


def install_content(files: Sequence[ShippedFile], paths: Mapping[str, str]) -> list[str]:
    """Unpacks archives and installs requirements; returns further entries for the search path.

    With archives, the process changes to a folder that holds each under its target. Raises
    InvalidProgramError if one cannot be unpacked or installed.
    """
    wanted = [file for file in files if file.kind in ("archive", "requirements") and file.blob_key in paths]
    if not wanted:
        return []
    folder = _content_folder(Path(paths[wanted[0].blob_key]))
    archives = [file for file in wanted if file.kind == "archive"]
    entries = []
    with _turn(folder):
        for archive in archives:
            _unpack_once(archive, Path(paths[archive.blob_key]), folder / _WORK)
        for requirements in (file for file in wanted if file.kind == "requirements"):
            cache = next((file for file in files if file.kind == "requirements_cache"), None)
            packages = None if cache is None else Path(paths[cache.blob_key])
            entries.append(_installed(requirements, Path(paths[requirements.blob_key]), packages, folder))
        if archives:
            _link_container_files(folder / _WORK)
    if archives:
        os.chdir(folder / _WORK)
    return entries


def unpack_archive(archive: ShippedFile, path: Path) -> Path:
    """Unpacks one archive to the place where `install_content` expects it.

    Returns the folder that holds it under its target. Raises InvalidProgramError.
    """
    folder = _content_folder(path)
    with _turn(folder):
        _unpack_once(archive, path, folder / _WORK)
    return folder / _WORK


def _content_folder(fetched: Path) -> Path:
    """The content folder, beside the fetched files of the job."""
    return fetched.parent / "content"


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpack_once(archive: ShippedFile, source: Path, folder: Path) -> None:
    name = archive.target or archive.name
    place = Path(os.path.normpath(folder / name))
    if place == folder or not place.is_relative_to(folder):
        raise InvalidProgramError(
            f"archive {archive.name!r}: the target {name!r} must be a folder below the working folder"
        )
    done = place.with_name(f".{place.name}.unpacked")
    if done.exists():
        return
    place.mkdir(parents=True, exist_ok=True)
    try:
        unpack(source, place)
    except UnsafeArchiveError as error:
        raise UnsafeArchiveError(f"archive {archive.name!r} is not unpacked: {error}") from None
    except (OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InvalidProgramError(
            f"archive {archive.name!r} cannot be unpacked: {error}; ship a .zip, .tar or .tar.gz"
        ) from error
    done.touch()


def _is_installed(distribution: str) -> bool:
    """Whether a distribution has metadata here: looking for its module would trigger setuptools' import hook."""
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _installed(requirements: ShippedFile, source: Path, cache: Path | None, folder: Path) -> str:
    target, done = folder / "requirements", folder / "requirements.installed"
    if done.exists():
        return str(target)
    if not _is_installed("pip"):
        raise InvalidProgramError(
            f"requirements {requirements.name!r} cannot be installed: {sys.executable} has no pip. Install them in the"
            " environment that the client runs in, which is packed for the nodes"
        )
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    if cache is not None:
        unpack(cache, folder / "requirements-cache")
        # A folder is shipped as a zip of its content or, if it is a package, of itself.
        command += ["--no-index", "--find-links", str(folder / "requirements-cache")]
    command += ["--target", str(target), "--requirement", str(source)]
    done_by = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False)
    if done_by.returncode:
        raise InvalidProgramError(
            f"requirements {requirements.name!r} cannot be installed:\n{done_by.stderr.strip()[-_TAIL:]}\n"
            "name a folder of packages beside the file (-pyreq FILE#FOLDER), or install them in the environment"
        )
    done.touch()
    return str(target)


def _link_container_files(folder: Path) -> None:
    """On YARN, links the files of `yarn.ship-files` by their names in the container's folder."""
    if layout.RESOURCE_ID not in os.environ:
        return
    for entry in os.scandir(os.getcwd()):
        place = folder / entry.name
        if not entry.name.startswith(".") and not place.exists() and not place.is_symlink():
            place.symlink_to(entry.path)
