"""The elements of a stream: batches of rows or columns, and the control elements between them.

Owner: the task thread that made an element, then the one that consumes it; elements are never changed after they
were handed on. Must not know operators or transport, nor load pyarrow for a job without columns.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

# Watermarks bear them: whoever takes elements finds them here.
from yarrow.common.watermark_strategy import MAX_TIMESTAMP as MAX_TIMESTAMP
from yarrow.common.watermark_strategy import MIN_TIMESTAMP as MIN_TIMESTAMP
from yarrow.runtime.data.checkpoint_options import CheckpointOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeIs


class RowBatch:
    """A list of Python objects with an optional timestamp (int64 ms UTC) and row kind a row.

    `timestamps` is None or as long as `rows` (None where a row has none); `kinds` is None (all INSERT) or one
    byte a row.
    """

    __slots__ = ("kinds", "rows", "timestamps")

    def __init__(
        self, rows: list[Any], timestamps: list[int | None] | None = None, kinds: bytes | None = None
    ) -> None:
        self.rows = rows
        self.timestamps = timestamps
        self.kinds = kinds

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"RowBatch({len(self.rows)} rows)"


class ArrowBatch:
    """A pyarrow RecordBatch with an optional int64 timestamp array and row kinds, one a row."""

    __slots__ = ("batch", "kinds", "timestamps")

    def __init__(
        self, batch: pa.RecordBatch, timestamps: pa.Array | None = None, kinds: bytes | None = None
    ) -> None:
        self.batch = batch
        self.timestamps = timestamps
        self.kinds = kinds

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __repr__(self) -> str:
        return f"ArrowBatch({self.batch.num_rows} rows)"

    def sliced(self, start: int, end: int) -> ArrowBatch:
        """Rows `start` to `end`, which share the memory of the batch."""
        if start == 0 and end == len(self):
            return self
        stamps, kinds = self.timestamps, self.kinds
        return ArrowBatch(
            self.batch.slice(start, end - start),
            None if stamps is None else stamps.slice(start, end - start),
            None if kinds is None else kinds[start:end],
        )

    @property
    def side_output(self) -> str | None:
        """Id of the side output to which an operator emits the batch; None = the main output."""
        return None


class SideBatch(ArrowBatch):
    """A record batch that an operator emits to a side output; consumers get an ArrowBatch."""

    __slots__ = ("_tag_id",)

    def __init__(self, tag_id: str, batch: ArrowBatch) -> None:
        super().__init__(batch.batch, batch.timestamps, batch.kinds)
        self._tag_id = tag_id

    @property
    def side_output(self) -> str:
        return self._tag_id


def stamps_column(timestamps: Sequence[int | None] | None) -> pa.Array | None:
    """Timestamps as an ArrowBatch has them."""
    if timestamps is None:
        return None
    import pyarrow as pa  # only jobs with columns load it

    return pa.array(timestamps, pa.int64())


def is_record_batch(rows: object) -> TypeIs[pa.RecordBatch]:
    """Whether `rows` is a pyarrow RecordBatch. It does not load pyarrow: who has a batch has loaded it."""
    # While another thread imports it, the module is there and has no such class yet.
    kind = None if type(rows) is list else getattr(sys.modules.get("pyarrow"), "RecordBatch", None)
    return kind is not None and isinstance(rows, kind)


class Watermark:
    """No later element of this stream has a timestamp at or below `timestamp`."""

    __slots__ = ("timestamp",)

    def __init__(self, timestamp: int) -> None:
        self.timestamp = timestamp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Watermark) and other.timestamp == self.timestamp

    def __hash__(self) -> int:
        return hash(self.timestamp)

    def __repr__(self) -> str:
        return f"Watermark({self.timestamp})"


class WatermarkStatus:
    """Tells consumers to leave this channel out of the minimum (idle) or to count it again (active)."""

    __slots__ = ("idle",)

    def __init__(self, idle: bool) -> None:
        self.idle = idle

    def __repr__(self) -> str:
        return f"WatermarkStatus({'idle' if self.idle else 'active'})"


class LatencyMarker:
    """Stamped at a source every `metrics.latency.interval`; never overtakes records."""

    __slots__ = ("marked_time_ms", "operator_id", "subtask")

    def __init__(self, marked_time_ms: int, operator_id: str, subtask: int) -> None:
        self.marked_time_ms = marked_time_ms
        self.operator_id = operator_id
        self.subtask = subtask


class BarrierAlignment(IntEnum):
    """The treatment of records in flight by a barrier."""

    ALIGNED = 0
    UNALIGNED = 1
    AT_LEAST_ONCE = 2


class CheckpointBarrier:
    """An element that separates the records before a checkpoint from those after it."""

    __slots__ = ("alignment", "checkpoint_id", "options", "timestamp_ms")

    def __init__(
        self,
        checkpoint_id: int,
        timestamp_ms: int,
        alignment: BarrierAlignment = BarrierAlignment.ALIGNED,
        options: CheckpointOptions | None = None,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.timestamp_ms = timestamp_ms
        self.alignment = alignment
        self.options = options

    def __repr__(self) -> str:
        return f"CheckpointBarrier({self.checkpoint_id})"


class EndOfData:
    """The last element of a channel: no record follows."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "EndOfData()"


class LoopMarker:
    """Goes once round a loop, behind all rows that its head sent before, and shows whether the loop is empty.

    `quiet_rounds` is the number of rounds in a row in which no head that it comes from has had feedback. Tasks of the
    loop align it like a barrier and pass the least number on.
    """

    __slots__ = ("loop", "quiet_rounds", "round")

    def __init__(self, loop: int, round: int, quiet_rounds: int) -> None:
        self.loop = loop
        self.round = round
        self.quiet_rounds = quiet_rounds

    def __repr__(self) -> str:
        return f"LoopMarker(loop {self.loop}, round {self.round}, quiet {self.quiet_rounds})"


Batch = RowBatch | ArrowBatch
ControlElement = Watermark | WatermarkStatus | LatencyMarker | CheckpointBarrier | EndOfData | LoopMarker
StreamElement = Batch | ControlElement
