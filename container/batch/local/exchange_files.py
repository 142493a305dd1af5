"""ExchangeFile: what one task of a local batch job has put out, in one file with an index of its readers.

Owner: the thread of the task that writes, then those of the tasks that read; a file is complete before anybody reads
it. Chunks wait in memory up to a budget, and are written together for each reader, so that a reader finds few pieces.
Chunks of one reader keep their order. Must not look into payloads.
"""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple

import msgspec

from yarrow.container.batch.chunk import Chunk
from yarrow.container.batch.full_disks import full_disk, means_full
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, BatchStage

#: Edge, target, producer, sequence, rows, length of the payload.
_HEAD: Final = struct.Struct("<iiiqiI")
#: Offset of the index, and its length; the last bytes of a file.
_TAIL: Final = struct.Struct("<QI")
#: Bytes of chunks that wait in memory.
_BUDGET: Final = 16 << 20
#: Bytes of a chunk in memory besides its payload.
_OVERHEAD: Final = 200

#: The edge and the reader of what is no row of an exchange: rows for the client, text, committables, the task's result.
RESULTS: Final = (-1, 0)

#: Who reads a chunk: the edge, and the partition of the stage behind it.
Reader = tuple[int, int]


class ExchangeFileError(YarrowError):
    """A file of an exchange cannot be written or read; the message names it."""


class _Piece(NamedTuple):
    """Neighbouring chunks of one reader."""

    edge: int
    partition: int
    offset: int
    length: int
    checksum: int


_INDEX: Final = msgspec.msgpack.Decoder(list[tuple[int, int, int, int, int]])


class ExchangeWriter:
    """Writes the file of one attempt; leave its block without an error to complete the file."""

    def __init__(self, path: Path, plan: BatchPlan, stage: BatchStage, budget: int = _BUDGET) -> None:
        """`stage` is that of the task. Raises ExchangeFileError if the file cannot be made."""
        self._path = path
        self._exchanges = {exchange.edge: exchange for exchange in stage.outputs}
        self._stages = {exchange.edge: plan.stage(exchange.target) for exchange in stage.outputs}
        self._budget = budget
        self._waiting: dict[Reader, list[Chunk]] = defaultdict(list)
        self._size = 0
        self._index: list[_Piece] = []
        self._offset = 0
        try:
            self._file: BinaryIO = path.open("xb", buffering=0)
        except OSError as error:
            raise ExchangeFileError(f"the file {path} of an exchange cannot be made: {error}") from error

    def add(self, chunk: Chunk) -> None:
        """Takes the next chunk of the task. Raises ExchangeFileError if the disk does not take it."""
        self._waiting[self._reader(chunk)].append(chunk)
        self._size += len(chunk.payload) + _OVERHEAD
        if self._size > self._budget:
            self._write_waiting()

    def _reader(self, chunk: Chunk) -> Reader:
        exchange = self._exchanges.get(chunk.edge)
        if exchange is None:
            return RESULTS
        return chunk.edge, self._stages[chunk.edge].partition_of(exchange, chunk.target)

    def _write_waiting(self) -> None:
        waiting, self._waiting, self._size = self._waiting, defaultdict(list), 0
        for (edge, partition), chunks in waiting.items():
            data = b"".join(
                part
                for chunk in chunks
                for part in (_HEAD.pack(*chunk[:5], len(chunk.payload)), chunk.payload)
            )
            self._index.append(_Piece(edge, partition, self._offset, len(data), zlib.crc32(data)))
            self._write(data)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            why = full_disk(self._path.parent) if means_full(error) else str(error)
            raise ExchangeFileError(
                f"the file {self._path} of an exchange cannot be written: {why}"
            ) from error
        self._offset += len(data)

    def __enter__(self) -> ExchangeWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._write_waiting()
                begin, index = self._offset, msgspec.msgpack.encode(self._index)
                self._write(index + _TAIL.pack(begin, len(index)))
        finally:
            self._file.close()


def read_chunks(path: Path, readers: Collection[Reader]) -> Iterator[Chunk]:
    """The chunks of those readers, in the order in which the task made them for each. Raises ExchangeFileError."""
    try:
        with path.open("rb", buffering=0) as file:
            for piece in _index_of(file):
                if (piece.edge, piece.partition) in readers:
                    yield from _chunks(_checked(file, piece, path))
    except OSError as error:
        raise ExchangeFileError(f"the file {path} of an exchange cannot be read: {error}") from error


def _index_of(file: BinaryIO) -> list[_Piece]:
    file.seek(-_TAIL.size, 2)
    begin, length = _TAIL.unpack(file.read(_TAIL.size))
    file.seek(begin)
    return [_Piece(*piece) for piece in _INDEX.decode(_whole(file, length))]


def _checked(file: BinaryIO, piece: _Piece, path: Path) -> bytes:
    file.seek(piece.offset)
    data = _whole(file, piece.length)
    if len(data) != piece.length or zlib.crc32(data) != piece.checksum:
        raise ExchangeFileError(
            f"the file {path} of an exchange is not what was written: look for faults of the disk, and run the job"
            " again"
        )
    return data


def _whole(file: BinaryIO, length: int) -> bytes:
    """Up to `length` bytes; fewer only at the end of the file."""
    parts = []
    while length and (part := file.read(length)):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _chunks(data: bytes) -> Iterator[Chunk]:
    position = 0
    while position < len(data):
        edge, target, producer, sequence, rows, length = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        yield Chunk(edge, target, producer, sequence, rows, data[position : position + length])
        position += length
