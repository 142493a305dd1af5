"""FileOutput: the folder of files that a sink of a data set writes, and what becomes of files that are there.

Owner: the thread that builds the program. Must not know formats.
"""

from __future__ import annotations

from enum import Enum

from yarrow.runtime.common.errors import FileSystemError, InvalidProgramError
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for


class WriteMode(Enum):
    """What a sink does if its folder has files: refuse them, or remove them when the job starts."""

    NO_OVERWRITE = "NO_OVERWRITE"
    OVERWRITE = "OVERWRITE"


class FileOutput:
    """A folder that the next job writes."""

    def __init__(self, call: str, path: str, mode: WriteMode) -> None:
        """Raises InvalidProgramError, naming `call`, if the mode does not allow what is there."""
        if not isinstance(path, str) or not path:
            raise TypeError(f"{call} takes the path of a folder, not {path!r}")
        if not isinstance(mode, WriteMode):
            raise TypeError(f"{call} takes a WriteMode, such as WriteMode.OVERWRITE, not {mode!r}")
        self._call = call
        self.path = path
        self._mode = mode
        self._check()

    def prepare(self) -> None:
        """Removes what is there before the job starts, or refuses it as the constructor does."""
        self._check()
        if self._mode is WriteMode.OVERWRITE:
            file_system_for(self.path).delete(self.path, recursive=True)

    def _check(self) -> None:
        if self._mode is WriteMode.OVERWRITE:
            return
        try:
            file_system = file_system_for(self.path)
            if not exists(file_system, self.path):
                return
            is_dir = file_system.status(self.path).is_dir
            if is_dir and not file_system.list(self.path):
                return
        except (OSError, FileSystemError) as error:
            raise InvalidProgramError(f"{self._call}: {self.path} cannot be used: {error}") from error
        there_is = "a folder with files" if is_dir else "a file"
        raise InvalidProgramError(
            f"{self._call}: {self.path} is {there_is} already. Choose another path, or allow that it is removed with "
            "WriteMode.OVERWRITE."
        )
