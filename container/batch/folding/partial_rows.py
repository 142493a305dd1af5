"""PartialRows: values of keys that a producer has folded from several rows, and the codec that sends them.

Owner: the task thread. The key travels beside the value, since a key selector may give another key for a folded
value than for the rows in it. Must not know how rows are folded.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any, Final

from yarrow.container.batch.folding.kept_values import kept_test
from yarrow.container.network.element_codec import HAS_TIMESTAMPS, Buffer, ElementCodec
from yarrow.container.network.frames import FrameType, WireProtocolError
from yarrow.container.task.checkpointing.channel_origins import checking_codec_of, codec_of, edge_type
from yarrow.runtime.data.elements import Batch, RowBatch, StreamElement
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph
from yarrow.runtime.graph.operator_spec import StreamKind

#: Flag bits of a payload, beside those of ElementCodec: keys stand in front of the rows; the rows are pickled.
HAS_KEYS: Final = 4
PICKLED: Final = 8
_LENGTH: Final = struct.Struct("<I")
#: Canonical keys that are the same in every process.
_PLAIN: Final = frozenset((int, str, bytes, float, bool, type(None)))


class PartialRows(RowBatch):
    """A batch whose rows are (key, folded value); a timestamp is that of a row in the value."""

    __slots__ = ()


class PartialRowsCodec(ElementCodec):
    """The codec of an edge on which PartialRows may come between batches of rows."""

    def __init__(
        self, rows: ElementCodec, values: ElementCodec, are_kept: Callable[[list[Any]], bool]
    ) -> None:
        """`rows` encodes rows as they come; `values` does so for folded values, and blames the folding operator.

        `are_kept` tells whether `values` gives all values back as they were; any others are pickled.
        """
        self._are_kept = are_kept
        self._of_rows = rows
        self._of_values = values

    @property
    def pickles(self) -> bool:
        return True

    def check_rows(self, rows: list[Any]) -> None:
        self._of_rows.check_rows(rows)

    def encode_batch(self, batch: Batch) -> tuple[FrameType, list[Buffer], int]:
        if not isinstance(batch, PartialRows):
            return self._of_rows.encode_batch(batch)
        keys = [key for key, _ in batch.rows]
        if not _PLAIN.issuperset(map(type, keys)):
            keys = list(map(user_key, keys))
        encoded = pickle.dumps(keys, pickle.HIGHEST_PROTOCOL)
        frame_type, parts, flags = self._encode_values([value for _, value in batch.rows], batch.timestamps)
        return frame_type, [_LENGTH.pack(len(encoded)), encoded, *parts], flags | HAS_KEYS

    def _encode_values(
        self, values: list[Any], timestamps: list[int | None] | None
    ) -> tuple[FrameType, list[Buffer], int]:
        if self._are_kept(values):
            return self._of_values.encode_batch(RowBatch(values, timestamps))
        # A sum may be too large for the declared type of a row, or of another class: only rows that leave the
        # operator need to fit.
        try:
            pickled = pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
        except Exception:  # whatever a user's class raises
            return self._of_values.encode_batch(RowBatch(values, timestamps))
        stamps = pickle.dumps(timestamps, pickle.HIGHEST_PROTOCOL)
        flags = PICKLED if timestamps is None else PICKLED | HAS_TIMESTAMPS
        return FrameType.ROWS, [_LENGTH.pack(len(stamps)), stamps, pickled], flags

    def decode(self, frame_type: FrameType, payload: Buffer, rows: int, flags: int) -> StreamElement:
        if not flags & HAS_KEYS:
            return self._of_rows.decode(frame_type, payload, rows, flags)
        encoded, body = _split(memoryview(payload))
        keys = pickle.loads(encoded)
        if flags & PICKLED:
            stamps, pickled = _split(body)
            found = RowBatch(pickle.loads(pickled), pickle.loads(stamps))
        else:
            decoded = self._of_values.decode(frame_type, body, rows, flags & ~HAS_KEYS)
            assert isinstance(decoded, RowBatch), "a frame of rows"
            found = decoded
        return PartialRows(list(zip(keys, found.rows, strict=True)), found.timestamps)


def partial_codec(graph: JobGraph, edge: JobEdge) -> ElementCodec:
    """The codec of an edge on which folded values may come between rows or batches."""
    if edge.stream_kind is StreamKind.COLUMNAR:
        # Folded columns have a schema of their own.
        return codec_of(edge)
    values = ElementCodec(serializer_for(edge_type(edge)), producer=graph.vertex(edge.target).head.name)
    return PartialRowsCodec(checking_codec_of(graph, edge), values, kept_test(edge_type(edge)))


def _split(payload: memoryview) -> tuple[memoryview, memoryview]:
    """A part with its length in front, and what stands behind it."""
    if len(payload) < _LENGTH.size:
        raise WireProtocolError("a chunk of folded values is cut short")
    end = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
    return payload[_LENGTH.size : end], payload[end:]
