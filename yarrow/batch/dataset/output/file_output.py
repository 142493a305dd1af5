"""FileOutput: the folder of files that a sink of a data set writes, and whether it may have files already.

Owner: the thread that builds the program. Must not know formats.
"""

from __future__ import annotations

from enum import Enum

from yarrow.runtime.common.errors import FileSystemError, InvalidProgramError
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for


class WriteMode(Enum):
    """Whether a sink refuses the files that its folder has, or replaces them when the job has finished."""

    NO_OVERWRITE = "NO_OVERWRITE"
    OVERWRITE = "OVERWRITE"


class FileOutput:
    """A folder that the next job writes. `check` looks at what is there."""

    def __init__(self, call: str, path: str, mode: WriteMode) -> None:
        """`call` is the method that errors name."""
        if not isinstance(path, str) or not path:
            raise TypeError(f"{call} takes the path of a folder, not {path!r}")
        if not isinstance(mode, WriteMode):
            raise TypeError(f"{call} takes a WriteMode, such as WriteMode.OVERWRITE, not {mode!r}")
        self._call = call
        self.path = path
        self._mode = mode

    @property
    def replaces(self) -> bool:
        """Whether the files of the job take the place of those that are there."""
        return self._mode is WriteMode.OVERWRITE

    def at(self, path: str) -> FileOutput:
        """The same output at the path that its sink has, in the default file system."""
        return FileOutput(self._call, path, self._mode)

    def check(self) -> None:
        """Raises InvalidProgramError if there is a file at the path, or files that the mode does not replace."""
        try:
            file_system = file_system_for(self.path)
            if not exists(file_system, self.path):
                return
            is_dir = file_system.status(self.path).is_dir
            if is_dir and (self.replaces or not file_system.list(self.path)):
                return
        except (OSError, FileSystemError) as error:
            raise InvalidProgramError(f"{self._call}: {self.path} cannot be used: {error}") from error
        if not is_dir:
            raise InvalidProgramError(
                f"{self._call}: {self.path} is a file, and the job writes a folder of files. Choose another path, or "
                "remove the file."
            )
        raise InvalidProgramError(
            f"{self._call}: {self.path} is a folder with files already. Choose another path, or allow that it is "
            "replaced with WriteMode.OVERWRITE."
        )
