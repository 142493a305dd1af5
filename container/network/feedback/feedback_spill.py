"""FeedbackSpill: a file for the feedback that finds no room in memory.

Owner: whoever holds the lock of the FeedbackChannel. The file has no name once it is open, so it ends with the task.
Must not know loops: it keeps batches and gives them back.
"""

from __future__ import annotations

import os
import tempfile
from typing import BinaryIO, NamedTuple

from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.frames import FrameType
from yarrow.runtime.data.elements import RowBatch


class SpilledBatch(NamedTuple):
    """A batch in the file."""

    offset: int
    length: int
    rows: int
    flags: int


class FeedbackSpill:
    """The file of one subtask; made when the first batch comes."""

    def __init__(self, directory: str, codec: ElementCodec) -> None:
        self._directory = directory
        self._codec = codec
        self._file: BinaryIO | None = None
        self._end = 0

    def write(self, batch: RowBatch) -> SpilledBatch:
        """Adds a batch. Raises SerializationError for rows that cannot be written, OSError for a full disk."""
        _, parts, flags = self._codec.encode_batch(batch)
        payload = b"".join(parts)
        if self._file is None:
            os.makedirs(self._directory, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._directory, prefix="feedback-")  # noqa: SIM115
        self._file.seek(self._end)
        self._file.write(payload)
        place = SpilledBatch(self._end, len(payload), len(batch), flags)
        self._end += len(payload)
        return place

    def read(self, place: SpilledBatch) -> RowBatch:
        """A batch of the file."""
        assert self._file is not None
        self._file.seek(place.offset)
        payload = self._file.read(place.length)
        batch = self._codec.decode(FrameType.ROWS, payload, place.rows, place.flags)
        assert isinstance(batch, RowBatch)
        return batch

    def clear(self) -> None:
        """Empties the file: all its batches have been read."""
        if self._file is not None:
            self._file.truncate(0)
            self._end = 0

    def close(self) -> None:
        """Removes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
