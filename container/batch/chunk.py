"""Chunk: encoded rows on their way between the tasks of a batch job, and what else leaves a task.

Owner: the thread of the task that makes or takes the chunk. A chunk is the row of the DataFrame by which an
engine of batch jobs moves it. Must not know who moves it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
import numpy
import numpy.typing as npt
import pyarrow as pa

#: Values of `Chunk.edge` that are no edge of the JobGraph.
COLLECTED: Final = -1
PRINTED: Final = -2
COMMITTABLES: Final = -3
FINISHED: Final = -4

#: All fields of a chunk but its payload.
_HEAD: Final = struct.Struct("<iiiqi")

#: The first byte of the payload of a chunk that tells a time: no frame has this type.
_TIME: Final = b"\xff"

#: The schema of chunks as columns.
CHUNK_SCHEMA: Final = pa.schema(
    [
        pa.field("edge", pa.int32(), nullable=False),
        pa.field("target", pa.int32(), nullable=False),
        pa.field("producer", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("rows", pa.int32(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)


class Chunk(NamedTuple):
    """Encoded rows of one edge for one target, or something else that leaves a task.

    `target` is the partition of the consumer, or the key group of a KEYED exchange. `payload` is a batch
    (`chunk_channel.decode_batch`). Chunks of no edge have these:

    - COLLECTED: part of a message of `ResultWriter`; the target is the position in `JobGraph.collect_ids`. A long
      message has several chunks, one behind the other, and `rows` is 0 in all but the last.
    - PRINTED: text in UTF-8; the target is the position of its operator in the vertex. A long text has several chunks.
    - COMMITTABLES: committables of a sink, or a part of them; the target is the position of its operator in the
      vertex. As above, `rows` is 0 in all parts but the last.
    - FINISHED: a `TaskResult` as msgpack, the last chunk of a task; the target is 0.
    """

    edge: int
    target: int
    #: The subtask that made the chunk.
    producer: int
    #: Rises by one from chunk to chunk of a task, and is the same in each of its attempts.
    sequence: int
    rows: int
    payload: bytes


class EndTime(NamedTuple):
    """The event time of a producer at the end of history, in a chunk without rows; see HistoryTime."""

    watermark: int | None
    lag: int


def encode_time(time: EndTime) -> bytes:
    """The payload of the last chunk of a producer for a partition."""
    return _TIME + msgspec.msgpack.encode(time)


def time_of(chunk: Chunk) -> EndTime | None:
    """The time that a chunk tells; None = it holds rows."""
    if chunk.rows or not chunk.payload.startswith(_TIME):
        return None
    return _END_TIME.decode(chunk.payload[1:])


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a task that has finished tells: the payload of its FINISHED chunk."""

    #: Local values of the task's accumulators.
    accumulators: dict[str, Any] = {}
    #: (operator id, rows in, rows out), in order of the chain.
    operators: tuple[tuple[str, int, int], ...] = ()
    #: Rows and encoded bytes on all edges.
    records_out: int = 0
    bytes_out: int = 0
    #: Rows read from sources or from chunks, and the encoded bytes of these chunks.
    records_in: int = 0
    bytes_in: int = 0
    #: What an operator's state became in a savepoint of history: see `kept_state.write_state`.
    states: bytes = b""
    #: Last values of the metrics of operators, by `operator.metric` (numLateRecords, ...).
    metrics: dict[str, float] = {}
    #: Pickled values of the task's aggregators, in the body of an iteration.
    aggregates: dict[str, bytes] = {}


_END_TIME = msgspec.msgpack.Decoder(EndTime)
_RESULT = msgspec.msgpack.Decoder(TaskResult)


def encode_task_result(result: TaskResult) -> bytes:
    """The payload of a FINISHED chunk."""
    return msgspec.msgpack.encode(result)


def decode_task_result(payload: bytes) -> TaskResult:
    """The result in a FINISHED chunk. Raises msgspec.ValidationError with the invalid part."""
    return _RESULT.decode(payload)


def encode_chunk(chunk: Chunk) -> bytes:
    """A chunk as it lies on disk."""
    return _HEAD.pack(*chunk[:5]) + chunk.payload


def decode_chunk(data: bytes) -> Chunk:
    """The chunk of `encode_chunk`."""
    edge, target, producer, sequence, rows = _HEAD.unpack_from(data)
    return Chunk(edge, target, producer, sequence, rows, data[_HEAD.size :])


def to_record_batch(chunks: Sequence[Chunk]) -> pa.RecordBatch:
    """Chunks as a record batch of `CHUNK_SCHEMA`, in their order."""
    return pa.RecordBatch.from_arrays(columns_of(chunks), schema=CHUNK_SCHEMA)


def columns_of(chunks: Sequence[Chunk]) -> list[pa.Array]:
    """The columns of `CHUNK_SCHEMA`.

    They are made of buffers: `pyarrow.array` would import pandas, which takes a process longer than a small task.
    """
    *numbers, payloads = list(zip(*chunks, strict=True)) or [()] * len(CHUNK_SCHEMA)
    fields = zip(numbers, CHUNK_SCHEMA, strict=False)
    columns = [numbers_column(values, field.type) for values, field in fields]
    ends = [0, *accumulate(map(len, payloads))]
    # An OverflowError of numpy, if the payloads together are larger than Arrow's offsets can say.
    buffers = [None, pa.py_buffer(numpy.array(ends, numpy.int32)), pa.py_buffer(b"".join(payloads))]
    columns.append(pa.Array.from_buffers(pa.binary(), len(chunks), buffers))
    return columns


def numbers_column(values: Sequence[int] | npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Whole numbers of that type as a column without nulls.

    `values`: a list, or an array of any int dtype and shape (rows,).
    """
    data = numpy.asarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


def from_record_batch(batch: pa.RecordBatch) -> Iterator[Chunk]:
    """The chunks of a record batch, in order; columns are found by name, and others are left out."""
    columns = [batch.column(field.name).to_pylist() for field in CHUNK_SCHEMA]
    return map(Chunk._make, zip(*columns, strict=True))
