"""The writer and the committer of a ReplacingFileSink: which files are the former ones, and when they go.

Owner: the task's thread, then whoever commits. No file of the job is visible before the first commit. So all that a
writer sees at its end was there before, and a commit that is repeated removes no new file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from yarrow.datastream.connectors.base import SinkWriterContext
from yarrow.datastream.connectors.file_sink_files import STAGING_PREFIX
from yarrow.datastream.connectors.file_sink_policies import FileSinkSettings
from yarrow.datastream.connectors.file_sink_writer import FileCommitter, FileSinkWriter
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.fs.registry import file_system_for


@dataclass(frozen=True, slots=True)
class FormerFiles:
    """Files and folders that the files of a job replace."""

    paths: tuple[str, ...]

    def remove(self) -> None:
        """Removes those that are still there."""
        for path in self.paths:
            file_system_for(path).delete(path, recursive=True)


class ReplacingFileWriter(FileSinkWriter):
    """Writes the files of one subtask. The last subtask, whose commits come last, names the former files."""

    def __init__(
        self,
        settings: FileSinkSettings,
        context: SinkWriterContext,
        restored: Sequence[Any],
        ids: IdFactory,
    ) -> None:
        super().__init__(settings, context, restored, ids)
        self._base_path = settings.base_path
        self._names_former = context.subtask_index == context.parallelism - 1

    def prepare_commit(self) -> list[Any]:
        """The files closed since the last call, and behind the last ones of all the former files."""
        files = super().prepare_commit()
        if self._ended and self._names_former and (former := self._former()).paths:
            files.append(former)
        return files

    def _former(self) -> FormerFiles:
        found: list[str] = []
        with suppress(FileNotFoundError):
            # Another sink of the job may have its hidden files in the same folder.
            entries = file_system_for(self._base_path).list(self._base_path)
            found = [entry.path for entry in entries if not entry.name.startswith(STAGING_PREFIX)]
        return FormerFiles(tuple(found))


class ReplacingCommitter(FileCommitter):
    """Gives whole files their names, then removes the former files; a commit done already is done."""

    def commit(self, committables: Sequence[Any]) -> None:
        """Renames or removes. Raises FileSinkError for a file that is neither there nor committed."""
        for each in committables:
            if isinstance(each, FormerFiles):
                each.remove()
            else:
                super().commit([each])

    def abort(self, committables: Sequence[Any]) -> None:
        """Removes files that will not be committed. Former files stay."""
        super().abort([each for each in committables if not isinstance(each, FormerFiles)])
