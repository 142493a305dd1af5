"""FilesAsInput and FilesAsOutput: the other end of a connector that a test has one end of. Together: files to files.

Owner: the test's thread. The folders must be seen by all workers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from yarrow.common.serialization import Encoder
from yarrow.datastream.connectors.base import Sink, Source
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import RollingPolicy
from yarrow.datastream.connectors.file_system import FileSource, StreamFormat
from yarrow.testing.connectors.connector_under_test import ConnectorUnderTest

#: How often the source looks for new files.
_DISCOVERY = timedelta(milliseconds=50)


class FilesAsInput(ConnectorUnderTest):
    """A FileSource of a folder: for connectors that have a sink alone."""

    #: The folder of the rows; it may be missing.
    input_folder: Path

    def source(self) -> Source[str, Any]:
        """Return a source that looks for new files."""
        self.input_folder.mkdir(parents=True, exist_ok=True)
        lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(self.input_folder))
        return lines.monitor_continuously(_DISCOVERY).build()

    def fill(self, rows: Sequence[str]) -> None:
        """Writes one file, which gets its name when it is whole."""
        self.input_folder.mkdir(parents=True, exist_ok=True)
        name = f"{len(os.listdir(self.input_folder)):06}.txt"
        hidden = self.input_folder / f".{name}"
        hidden.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        hidden.rename(self.input_folder / name)


class FilesAsOutput(ConnectorUnderTest):
    """A FileSink into a folder: for connectors that have a source alone."""

    #: The folder of the rows; it may be missing.
    output_folder: Path

    def sink(self) -> Sink[str]:
        """Return a sink that rolls its files at each checkpoint."""
        return (
            FileSink.for_row_format(str(self.output_folder), Encoder.simple_string_encoder())
            .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
            .build()
        )

    def read_all(self) -> Sequence[str]:
        """Return the rows of all finished files."""
        return [
            row
            for file in self._files()
            if _is_finished(file)
            for row in file.read_text("utf-8").splitlines()
        ]

    def leftovers(self) -> Sequence[str]:
        """Return files that are not finished."""
        return [str(file) for file in self._files() if not _is_finished(file)]

    def _files(self) -> list[Path]:
        # Folders of staged files come and go meanwhile: os.walk passes by those that have gone.
        walked = os.walk(self.output_folder)
        return sorted(Path(folder, name) for folder, _folders, names in walked for name in names)


def _is_finished(file: Path) -> bool:
    return not file.name.startswith((".", "_")) and not re.search("inprogress|pending", file.name)
