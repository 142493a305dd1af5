"""The interpreter of main(): python.client.executable, resolved and tried; an archive that contains it is unpacked.

Owner: the thread that is about to start a program; blocking. The caller chooses the folder of the unpacked
archive and its lifetime.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.config.options import python
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.archives import UnsafeArchiveError, unpack
from yarrow.runtime.interpreters.interpreter import (
    NO_SUCH_PROGRAM,
    archive_folder,
    archive_of_interpreter,
    is_this_interpreter,
    refused_interpreter,
    unfit,
)


def client_interpreter(config: Settings, folder: Callable[[], Path]) -> str:
    """The absolute path of the interpreter of main(); by default this process's own.

    `folder` returns the place for an archive of python.archives, and is called only if one contains the
    interpreter. Raises ConfigError for an unsuitable interpreter, InvalidProgramError for an archive that
    cannot be unpacked.
    """
    option = python.CLIENT_EXECUTABLE
    value = config.get(option)
    if not config.is_set(option) or value == option.default:
        return sys.executable
    archive = archive_of_interpreter(config, option)
    found = _unpacked(archive, value, folder()) if archive else shutil.which(value)
    reason = NO_SUCH_PROGRAM
    if found is not None:
        path = os.path.abspath(found)
        if is_this_interpreter(path):
            return sys.executable
        reason = unfit(path, os.environ)
        if not reason:
            return path
    raise refused_interpreter(option.key, value, reason, config.origin_of(option.key))


def _unpacked(archive: str, executable: str, folder: Path) -> str:
    source = Path(archive.partition("#")[0])
    place = folder / archive_folder(archive)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        unpack(source, place)
    except UnsafeArchiveError as error:
        raise UnsafeArchiveError(f"archive {source} is not unpacked: {error}") from None
    except (OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InvalidProgramError(
            f"archive {source}, which holds {python.CLIENT_EXECUTABLE.key} {executable}, cannot be unpacked: {error};"
            " name a local .zip, .tar or .tar.gz"
        ) from error
    return os.path.join(folder, os.path.normpath(executable))
