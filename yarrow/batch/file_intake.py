"""FileIntake: files that each run of a scheduled pipeline takes up once, as one of its stages' inputs.

Owner: the thread that builds the pipeline, then that of a stage. What was taken is an output of the stage, a folder of
records. It replaces the former one when the stage's other outputs get into place. So a stage that fails takes nothing.
"""

from __future__ import annotations

from yarrow.batch.file_ledger import FileLedger, checked_name
from yarrow.common.pipelines.stage_data import IfExists, StageFiles
from yarrow.runtime.common.errors import InvalidProgramError


class FileIntake:
    """The files below a folder that no earlier run of a name has taken; a stage's function holds it."""

    def __init__(self, path: str, name: str) -> None:
        """Raises InvalidProgramError for a path that is none, and for a name that cannot be part of a folder's."""
        if not isinstance(path, str) or not path:
            raise InvalidProgramError(f"FileIntake: expected the path of a folder, not {path!r}")
        self._ledger = FileLedger(path, checked_name(name, "FileIntake"))

    def output(self, name: str) -> StageFiles:
        """The output in which the stage records what it has taken; the function gets its folder under this name."""
        return StageFiles(name, path=self._ledger.folder, if_exists=IfExists.REPLACE)

    def take(self, folder: str) -> list[str]:
        """Paths of the files that no run has taken, by name. `folder` is that of `output`, where they are recorded.

        Call it once in a stage. Raises FileNotFoundError if the folder of the files is missing.
        """
        files = self._ledger.untaken()
        self._ledger.write_successor(folder, (self._ledger.name_of(file.path) for file in files))
        return [file.path for file in files]
