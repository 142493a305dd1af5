"""ElementCodec: encodes stream elements as frames, and decodes them.

Owner: the task thread that sends or takes the element. One codec serves one edge. Rows of a declared type use
its typed serializer, others pickle protocol 5, and record batches Arrow IPC. Must not touch sockets.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from yarrow.container.network.frames import FrameType, WireProtocolError
from yarrow.runtime.data.checkpoint_options import decode_checkpoint_options, encode_checkpoint_options
from yarrow.runtime.data.elements import (
    ArrowBatch,
    BarrierAlignment,
    Batch,
    CheckpointBarrier,
    ControlElement,
    EndOfData,
    LatencyMarker,
    LoopMarker,
    RowBatch,
    StreamElement,
    Watermark,
    WatermarkStatus,
)
from yarrow.runtime.data.errors import SerializationError
from yarrow.runtime.data.serializers.serializers import RowsSerializer, dump_timestamps, load_timestamps

if TYPE_CHECKING:
    import pyarrow as pa

Buffer = bytes | bytearray | memoryview

_I64 = struct.Struct("<q")
_BARRIER = struct.Struct("<qqB")
_LENGTH = struct.Struct("<I")
_LOOP_MARKER = struct.Struct("<IQQ")
#: Fields of a row by which its size is estimated, and the assumed bytes of a value without a known size.
_SAMPLED_FIELDS = slice(16)
_UNKNOWN_SIZE = 64
#: Classes whose size is that of the object alone, and needs no code of a program.
_PLAIN: Final = frozenset((int, float, bool, str, bytes, type(None)))
#: Header flag bits.
HAS_TIMESTAMPS = 1
HAS_KINDS = 2


class ElementCodec:
    """Frames for the elements of one edge.

    `schema` is the schema of every record batch of the edge `edge`. It is None if the producer may change it
    from batch to batch: each frame then describes its columns. `producer` is the operator that emits the
    rows.
    """

    def __init__(
        self,
        row_serializer: RowsSerializer,
        schema: pa.Schema | None = None,
        edge: str = "",
        producer: str = "",
    ) -> None:
        self._producer = producer
        self._rows = row_serializer
        self._schema = schema
        self._edge = edge

    def encode_batch(self, batch: Batch) -> tuple[FrameType, list[Buffer], int]:
        """Frame type, payload parts and header flags of a batch."""
        if isinstance(batch, RowBatch):
            return self._encode_rows(batch)
        return self._encode_arrow(batch)

    def _encode_rows(self, batch: RowBatch) -> tuple[FrameType, list[Buffer], int]:
        body: list[Buffer] = [self._dump(batch.rows)]
        if batch.timestamps is None and batch.kinds is None:
            return FrameType.ROWS, body, 0
        prefix, flags = _side_columns(
            None if batch.timestamps is None else dump_timestamps(batch.timestamps), batch.kinds
        )
        return FrameType.ROWS, [*prefix, *body], flags

    def _dump(self, rows: list[Any]) -> bytes:
        try:
            return self._rows.dump_rows(rows)
        except SerializationError as error:
            raise self._of_producer(error) from error.__cause__

    def _load(self, body: memoryview) -> list[Any]:
        # Some rows are checked by their declared type when they are read.
        try:
            return self._rows.load_rows(body)
        except SerializationError as error:
            raise self._of_producer(error) from error.__cause__

    def _of_producer(self, error: SerializationError) -> SerializationError:
        return error.for_operator(self._producer) if self._producer else error

    @property
    def pickles(self) -> bool:
        """Whether rows of the edge, or some of their fields, are pickled."""
        return self._rows.pickles

    def check_rows(self, rows: list[Any]) -> None:
        """Raises SerializationError for rows that cannot be sent to another worker."""
        self._dump(rows)

    def _encode_arrow(self, batch: ArrowBatch) -> tuple[FrameType, list[Buffer], int]:
        import pyarrow as pa  # only edges with columns load it

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.batch.schema) as writer:
            writer.write_batch(batch.batch)
        body: list[Buffer] = [memoryview(sink.getvalue())]
        if batch.timestamps is None and batch.kinds is None:
            return FrameType.ARROW, body, 0
        stamps = None if batch.timestamps is None else _dump_stamps(batch.timestamps)
        prefix, flags = _side_columns(stamps, batch.kinds)
        return FrameType.ARROW, [*prefix, *body], flags

    def decode(self, frame_type: FrameType, payload: Buffer, rows: int, flags: int) -> StreamElement:
        """The element of a frame. Raises WireProtocolError if payload and header disagree."""
        if frame_type is FrameType.ROWS:
            stamps, kinds, body = _split_columns(memoryview(payload), flags)
            values = self._load(body)
            if len(values) != rows:
                raise WireProtocolError(f"data connection: frame of {rows} rows held {len(values)}")
            return RowBatch(values, None if stamps is None else load_timestamps(stamps), kinds)
        if frame_type is FrameType.ARROW:
            return self._decode_arrow(memoryview(payload), rows, flags)
        return decode_control(frame_type, payload)

    def _decode_arrow(self, payload: memoryview, rows: int, flags: int) -> ArrowBatch:
        import pyarrow as pa  # only edges with columns load it

        stamps, kinds, body = _split_columns(payload, flags)
        try:
            with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
                batch = reader.read_next_batch()
            # Checks lengths and buffers, not each value: the peer has proved that it is a worker of this
            # application.
            batch.validate()
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise WireProtocolError(f"data connection: malformed ARROW frame: {error}") from error
        if batch.num_rows != rows:
            raise WireProtocolError(f"data connection: frame of {rows} rows held {batch.num_rows}")
        expected = self._schema
        if expected is not None and not batch.schema.equals(expected):
            self._check_columns(batch.schema, expected)
        return ArrowBatch(batch, None if stamps is None else _load_stamps(stamps, rows), kinds)

    def _check_columns(self, found: pa.Schema, expected: pa.Schema) -> None:
        """Compares names and types; other parts of schemas, such as nullability, mislead no reader."""
        if found.names != expected.names or found.types != expected.types:
            raise WireProtocolError(
                f"data connection: edge {self._edge}: expected the columns {_columns(expected)}, found "
                f"{_columns(found)}; run the same program and the same Yarrow version in all workers"
            )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "none"


def _dump_stamps(stamps: pa.Array) -> bytes:
    """Encodes timestamps: validity as a bitmap (empty if all are present), padded to 8 bytes, then the int64 values."""
    absent = stamps.is_null().to_numpy(zero_copy_only=False) if stamps.null_count else None
    numbers = (stamps if absent is None else stamps.fill_null(0)).to_numpy()
    bitmap = b"" if absent is None else np.packbits(~absent, bitorder="little").tobytes()
    padding = bytes(-len(bitmap) % 8)
    return b"".join((_LENGTH.pack(len(bitmap)), bitmap, padding, numbers.astype("<i8", copy=False).tobytes()))


def _load_stamps(data: memoryview, rows: int) -> pa.Array:
    import pyarrow as pa  # only edges with columns load it

    length = _LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else -1
    start = _LENGTH.size + length + -length % 8
    if length not in (0, (rows + 7) // 8) or len(data) != start + 8 * rows:
        raise WireProtocolError(f"data connection: the timestamps of {rows} rows took {len(data)} bytes")
    bitmap = pa.py_buffer(data[_LENGTH.size : _LENGTH.size + length]) if length else None
    return pa.Array.from_buffers(pa.int64(), rows, [bitmap, pa.py_buffer(data[start:])])


def _side_columns(timestamps: bytes | None, kinds: bytes | None) -> tuple[list[Buffer], int]:
    parts: list[Buffer] = []
    flags = 0
    if timestamps is not None:
        flags |= HAS_TIMESTAMPS
        parts += [_LENGTH.pack(len(timestamps)), timestamps]
    if kinds is not None:
        flags |= HAS_KINDS
        parts += [_LENGTH.pack(len(kinds)), kinds]
    return parts, flags


def _split_columns(payload: memoryview, flags: int) -> tuple[memoryview | None, bytes | None, memoryview]:
    columns: list[memoryview | None] = []
    for bit in (HAS_TIMESTAMPS, HAS_KINDS):
        if not flags & bit:
            columns.append(None)
            continue
        if len(payload) < _LENGTH.size:
            raise WireProtocolError("data connection: batch frame is cut short")
        (length,) = _LENGTH.unpack_from(payload)
        columns.append(payload[_LENGTH.size : _LENGTH.size + length])
        payload = payload[_LENGTH.size + length :]
    kinds = columns[1]
    return columns[0], None if kinds is None else bytes(kinds), payload


def encode_control(element: ControlElement) -> tuple[FrameType, bytes]:
    """Frame type and payload of a control element."""
    if isinstance(element, Watermark):
        return FrameType.WATERMARK, _I64.pack(element.timestamp)
    if isinstance(element, WatermarkStatus):
        return FrameType.WATERMARK_STATUS, b"\x01" if element.idle else b"\x00"
    if isinstance(element, CheckpointBarrier):
        payload = _BARRIER.pack(element.checkpoint_id, element.timestamp_ms, element.alignment)
        options = b"" if element.options is None else encode_checkpoint_options(element.options)
        return FrameType.BARRIER, payload + options
    if isinstance(element, LatencyMarker):
        head = struct.pack("<qI", element.marked_time_ms, element.subtask)
        return FrameType.LATENCY_MARKER, head + element.operator_id.encode()
    if isinstance(element, LoopMarker):
        return FrameType.LOOP_MARKER, _LOOP_MARKER.pack(element.loop, element.round, element.quiet_rounds)
    return FrameType.END_OF_DATA, b""


def barrier_overtakes(payload: Buffer) -> bool:
    """Whether a barrier's payload says that it may overtake records; decodes nothing else."""
    return len(payload) >= _BARRIER.size and _BARRIER.unpack_from(payload)[2] == BarrierAlignment.UNALIGNED


def barrier_id(payload: Buffer) -> int:
    """The checkpoint id in a barrier's payload; -1 for an incomplete payload, which is reported when it is taken."""
    return int(_BARRIER.unpack_from(payload)[0]) if len(payload) >= _BARRIER.size else -1


def decode_control(frame_type: FrameType, payload: Buffer) -> ControlElement:
    """The control element of a frame. Raises WireProtocolError for a payload of the wrong length."""
    try:
        if frame_type is FrameType.WATERMARK:
            return Watermark(_I64.unpack(payload)[0])
        if frame_type is FrameType.WATERMARK_STATUS:
            return WatermarkStatus(bytes(payload) == b"\x01")
        if frame_type is FrameType.BARRIER:
            checkpoint_id, timestamp, alignment = _BARRIER.unpack_from(payload)
            rest = memoryview(payload)[_BARRIER.size :]
            options = decode_checkpoint_options(rest) if rest else None
            return CheckpointBarrier(checkpoint_id, timestamp, BarrierAlignment(alignment), options)
        if frame_type is FrameType.LATENCY_MARKER:
            marked, subtask = struct.unpack_from("<qI", payload)
            return LatencyMarker(marked, bytes(payload[12:]).decode(), subtask)
        if frame_type is FrameType.END_OF_DATA:
            return EndOfData()
        if frame_type is FrameType.LOOP_MARKER:
            return LoopMarker(*_LOOP_MARKER.unpack(payload))
    except (struct.error, ValueError, msgspec.DecodeError) as error:
        raise WireProtocolError(f"data connection: malformed {frame_type.name} frame: {error}") from error
    raise WireProtocolError(f"data connection: {frame_type.name} is no stream element")


def estimated_bytes(rows: Sequence[Any]) -> int:
    """A sampled size in bytes of rows passed by reference: the size of one row, one level deep, times their number.

    Never raises, even if the row's class fails on its size or items: a default value then replaces the
    estimate.
    """
    if not rows:
        return 0
    row = rows[len(rows) // 2]
    size, kind = _size_of(row), type(row)
    if issubclass(kind, tuple):
        size += sum(map(_size_of, tuple.__getitem__(row, _SAMPLED_FIELDS)))
    elif issubclass(kind, list):
        size += sum(map(_size_of, list.__getitem__(row, _SAMPLED_FIELDS)))
    elif issubclass(kind, dict):
        size += _UNKNOWN_SIZE * dict.__len__(row)
    return size * len(rows)


def estimated_bytes_of_each(rows: Sequence[Any]) -> int:
    """The sum of the sizes that `estimated_bytes` gives for each row alone. Never raises."""
    try:
        are_plain = _PLAIN.issuperset(map(type, rows))
    except Exception:  # a class whose own class gives no hash
        are_plain = False
    if are_plain:
        return sum(map(sys.getsizeof, rows))
    return sum([estimated_bytes((row,)) for row in rows])


def _size_of(value: Any) -> int:
    # By the type: a class among the values has a __sizeof__ that is meant for its instances.
    try:
        return sys.getsizeof(value, _UNKNOWN_SIZE)
    except Exception:  # a user's __sizeof__
        return _UNKNOWN_SIZE
