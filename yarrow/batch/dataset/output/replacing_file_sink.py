"""ReplacingFileSink: the FileSink of a data set that takes the place of the files that are in its folder.

Owner: the client builds it; its writers belong to tasks (see replacing_file_writer, which the client does not load).
A failed job leaves the former files as they are: nothing is removed before the commits. It fits bounded jobs alone,
whose files become visible together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from yarrow.datastream.connectors.base import Committer, SinkWriterContext
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.runtime.common.ids import RandomIdFactory

if TYPE_CHECKING:
    from yarrow.batch.dataset.output.replacing_file_writer import ReplacingFileWriter


class ReplacingFileSink(FileSink):
    """A FileSink whose commits end with the removal of the files that were there before."""

    @classmethod
    def of(cls, sink: FileSink) -> ReplacingFileSink:
        """The same sink, replacing what is there."""
        return cls(sink._settings)

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> ReplacingFileWriter:
        """Return the writer of one subtask."""
        from yarrow.batch.dataset.output.replacing_file_writer import ReplacingFileWriter

        return ReplacingFileWriter(self._settings, context, restored, RandomIdFactory())

    def create_committer(self) -> Committer:
        """Return the committer, which renames whole files and removes former ones."""
        from yarrow.batch.dataset.output.replacing_file_writer import ReplacingCommitter

        return ReplacingCommitter()
