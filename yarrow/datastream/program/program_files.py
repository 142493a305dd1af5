"""ProgramFiles: the files that a program ships to its workers, as calls and configuration name them.

Owner: the thread that builds the program. It checks that files exist and reads none; the executor uploads
them.
"""

from __future__ import annotations

import os

import yarrow.runtime.config.options.python as options
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.executor import LocalFile

#: Kind of a file -> the keys that name files of that kind without a call.
_NAMED_BY = {
    "python_file": (options.FILES.key, "-pyfs"),
    "archive": (options.ARCHIVES.key, "-pyarch"),
    "requirements": (options.REQUIREMENTS.key, "-pyreq"),
    "requirements_cache": (options.REQUIREMENTS.key, "-pyreq"),
}


class ProgramFiles:
    """The files added so far, in order."""

    def __init__(self, are_configured: bool = False) -> None:
        """`are_configured`: settings name them, and not calls of the program."""
        self._are_configured = are_configured
        self._files: list[LocalFile] = []
        self._requirements: list[LocalFile] = []

    def add_python_file(self, path: str) -> None:
        """Add a module, package folder or zip that goes on the path of the workers."""
        self._files.append(self._local_file(path, "python_file"))

    def add_archive(self, path: str, target: str | None) -> None:
        """Add an archive to unpack; `path#target` names the target too, as configuration writes it."""
        archive, _, named = path.partition("#")
        self._files.append(self._local_file(archive, "archive", target or named or None))

    def set_requirements(self, path: str, cache_folder: str | None) -> None:
        """Set the one requirements file, and a folder of packages to install from."""
        self._requirements = [self._local_file(path, "requirements")]
        if cache_folder:
            self._requirements.append(self._local_file(cache_folder, "requirements_cache"))

    def add_cached_file(self, path: str, name: str, executable: bool) -> None:
        """Add a file that functions find under `name`."""
        if any(file.kind == "cached_file" and file.name == name for file in self._files):
            raise InvalidProgramError(
                f"A cached file named {name!r} is registered already: choose another name."
            )
        found = self._local_file(path, "cached_file")
        self._files.append(LocalFile(name=name, kind=found.kind, path=found.path, executable=executable))

    def all(self, settings: Settings) -> tuple[LocalFile, ...]:
        """Return all files to ship: the files of calls, then the files that the configuration names besides."""
        configured = ProgramFiles(are_configured=True)
        for path in settings.get(options.FILES) or ():
            configured.add_python_file(path)
        for path in settings.get(options.ARCHIVES) or ():
            configured.add_archive(path, None)
        requirements = settings.get(options.REQUIREMENTS)
        if requirements and not self._requirements:
            file, _, cache = requirements.partition("#")
            configured.set_requirements(file, cache or None)
        known = {(file.kind, file.path) for file in self._files}
        added = [file for file in configured._files if (file.kind, file.path) not in known]
        return (*self._files, *added, *(self._requirements or configured._requirements))

    def _local_file(self, path: str, kind: str, target: str | None = None) -> LocalFile:
        absolute = os.path.abspath(path)
        if not os.path.exists(absolute):
            named = f"The program ships {path!r} ({kind})"
            if self._are_configured:
                key, flag = _NAMED_BY[kind]
                named = f"{key} ({flag}) names {path!r}"
            raise InvalidProgramError(f"{named}, but there is no such file. Working directory: {os.getcwd()}")
        return LocalFile(name=os.path.basename(absolute), kind=kind, path=absolute, target=target)
