"""RecoveredRecords: the restored records in flight.

They are read before new input, and until then belong to new checkpoints.

Owner: the task thread. Frames are decoded one by one. After a change of parallelism, every subtask of a keyed
edge gets all channels that may hold its rows. The subtask then skips rows of other key groups. Must not know
operators.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from yarrow.container.network.channel_recording import ChannelOrigin, ChannelRecording
from yarrow.container.network.frames import HEADER, FrameHeader, FrameType, WireProtocolError, decode_header
from yarrow.container.operators.base import RestoredState
from yarrow.container.task.checkpointing.channel_origins import ChannelOrigins, Keep, rows_of_subtask
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.data.elements import ArrowBatch, Batch, RowBatch
from yarrow.runtime.snapshot.errors import SnapshotFormatError

#: The frames were within the limit when they were written.
_ANY_LENGTH = 1 << 32


class RecoveredChannel(NamedTuple):
    """One channel state and the input of its rows."""

    origin: ChannelOrigin
    input_index: int
    data: bytes
    #: Selects the rows to keep; None = all.
    keep: Keep | None


class RecoveredBatch(NamedTuple):
    """A batch and its input."""

    origin: ChannelOrigin
    input_index: int
    batch: Batch


class RecoveredRecords:
    """The remaining channel states of one task."""

    def __init__(self, channels: Iterable[RecoveredChannel] = ()) -> None:
        self._left = deque(channels)
        self._position = 0

    def __bool__(self) -> bool:
        return bool(self._left)

    def take(self) -> RecoveredBatch | None:
        """The next batch; None when none is left. Raises SnapshotFormatError for bytes that are no frames."""
        while self._left:
            channel = self._left[0]
            if self._position >= len(channel.data):
                self._left.popleft()
                self._position = 0
                continue
            header, payload, self._position = _frame(channel, self._position)
            batch = _decoded(channel, header, payload)
            if channel.keep is not None:
                batch = channel.keep(batch)
            if len(batch):
                return RecoveredBatch(channel.origin, channel.input_index, batch)
        return None

    def remaining(self, checkpoint_id: int) -> Iterator[ChannelRecording]:
        """The remaining records in order, for another checkpoint; they stay here too."""
        position = self._position
        for channel in self._left:
            recording = ChannelRecording(channel.origin, checkpoint_id)
            while position < len(channel.data):
                header, payload, position = _frame(channel, position)
                if channel.keep is None:
                    recording.add_frame(header, payload)
                else:
                    recording.add(channel.keep(_decoded(channel, header, payload)))
            position = 0
            if recording:
                yield recording


def recovered_records(
    restored: RestoredState, head: OperatorID, origins: ChannelOrigins, subtask: int
) -> RecoveredRecords:
    """The channel states with which a task begins, in reading order."""
    channels = []
    for state in restored.of(head).channels:
        edge = origins.edge(state.edge)
        origin = origins.origin(edge, state.producer, subtask)
        keep = rows_of_subtask(origins.graph, edge, subtask) if state.shared else None
        channels.append(RecoveredChannel(origin, edge.target_input, restored.read(state.handle), keep))
    return RecoveredRecords(channels)


def _frame(channel: RecoveredChannel, position: int) -> tuple[FrameHeader, memoryview, int]:
    data = channel.data
    try:
        if len(data) - position < HEADER.size:
            raise WireProtocolError("the data is cut short")
        header = decode_header(data, position, authenticated=True, max_payload=_ANY_LENGTH)
        start = position + HEADER.size
        end = start + header.length
        if end > len(data) or header.type not in (FrameType.ROWS, FrameType.ARROW):
            raise WireProtocolError(
                f"a frame {header.type.name} of {header.length} bytes does not belong there"
            )
    except WireProtocolError as error:
        raise _malformed(channel, error) from error
    return header, memoryview(data)[start:end], end


def _decoded(channel: RecoveredChannel, header: FrameHeader, payload: memoryview) -> Batch:
    try:
        batch = channel.origin.codec.decode(header.type, payload, header.rows, header.flags)
    except WireProtocolError as error:
        raise _malformed(channel, error) from error
    assert isinstance(batch, RowBatch | ArrowBatch)
    return batch


def _malformed(channel: RecoveredChannel, error: WireProtocolError) -> SnapshotFormatError:
    origin = channel.origin
    return SnapshotFormatError(
        f"records in flight of the edge {origin.edge}, from subtask {origin.producer}, cannot be read: {error}. "
        "Restore an earlier checkpoint or a savepoint."
    )
