"""EndFile: tells the application's end to its next attempt, without high availability.

It is a file in the application's own folder on HDFS, which is removed with the application.

Owner: blocking. The file gets its name when it is whole: an attempt that dies while writing has recorded
nothing.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Final

import msgspec

from yarrow.am.yarn.modes.application_end import ApplicationEnd
from yarrow.runtime.common.paths import join
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.whole_files import write_whole

END_FILE: Final = "yarrow-end.json"
_log = logging.getLogger(__name__)


class EndFile:
    """The recorded end of one application; methods raise the file system's errors."""

    def __init__(self, folder: str) -> None:
        self._path = join(folder, END_FILE)

    def write(self, end: ApplicationEnd) -> None:
        """Records the end: from now on no attempt runs anything of the application.

        An end that was recorded first stays.
        """
        if exists(file_system_for(self._path), self._path):
            return
        with contextlib.suppress(FileExistsError):
            write_whole(self._path, msgspec.json.encode(end))

    def read(self) -> ApplicationEnd | None:
        """The end that a former attempt has recorded."""
        try:
            with file_system_for(self._path).open(self._path) as file:
                data = file.read()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=ApplicationEnd)
        except msgspec.DecodeError as error:
            _log.error(
                "the file with the end of the application, %s, cannot be decoded: %s", self._path, error
            )
            return None
