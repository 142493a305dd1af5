"""Blocks of Avro's container files as bytes: where a damaged one ends, its records one by one, and files of one record.

Owner: the calling thread; no state. Source: the specification of Avro, "Object Container Files". Must not know a
library of Avro: callers decode.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

from yarrow.datastream.formats.blocks.zigzag import zigzag_at, zigzag_bytes

MARKER_BYTES = 16
_SEARCH_BYTES = 1 << 16
#: Bytes of the longest number in a head.
_LONGEST_NUMBER = 10
_MAGIC = b"Obj\x01"
#: The marker of files of one record, which have one block.
_MARKER = bytes(MARKER_BYTES)


class BlockExtent(NamedTuple):
    """Where a block ends, as far as its bytes tell."""

    #: The first byte behind the block.
    end: int
    #: The number of its records; None = its head is damaged.
    records: int | None


class DamagedRecord(NamedTuple):
    """A record of a block that cannot be read by the schema of the program."""

    #: Its place in the block, from 0.
    row: int
    error: Exception
    #: Its bytes; None = these are damaged, so that nobody knows where the records behind it begin.
    raw: bytes | None


def find_marker(stream: BinaryIO, marker: bytes, start: int, end: int) -> int:
    """Return the byte behind the first marker that begins at `start` or later; `end` or more = there is none before."""
    stream.seek(start)
    window = b""
    while start + len(window) < end and (more := stream.read(_SEARCH_BYTES)):
        window += more
        if (found := window.find(marker)) >= 0:
            return start + found + MARKER_BYTES
        start += max(0, len(window) - MARKER_BYTES + 1)
        window = window[-MARKER_BYTES + 1 :]
    return end


def block_extent(stream: BinaryIO, marker: bytes, offset: int, file_size: int) -> BlockExtent:
    """Return where the block at a byte ends: by its head if a marker is there, else at the next marker."""
    stream.seek(offset)
    head, place = stream.read(2 * _LONGEST_NUMBER), 0
    try:
        records, place = zigzag_at(head, 0, _LONGEST_NUMBER)
        size, place = zigzag_at(head, place, _LONGEST_NUMBER)
    except ValueError:
        records, size = 0, -1
    end = offset + place + size + MARKER_BYTES
    if records > 0 and size >= 0 and end <= file_size:
        stream.seek(end - MARKER_BYTES)
        if stream.read(MARKER_BYTES) == marker:
            return BlockExtent(end, records)
    return BlockExtent(find_marker(stream, marker, offset, file_size), None)


def read_one_by_one(
    content: bytes, records: int, read: Callable[[BinaryIO], Any], skip: Callable[[BinaryIO], Any]
) -> tuple[list[Any], list[int], list[DamagedRecord]]:
    """Read a block of which some record cannot be read.

    `read` reads a record by the program's schema, and `skip` by that of the file. Returns the records, their places,
    and the damaged ones. The last of these stands for the records behind it too, if it has no bytes.
    """
    stream = io.BytesIO(content)
    rows: list[Any] = []
    places: list[int] = []
    damaged: list[DamagedRecord] = []
    for row in range(records):
        start = stream.tell()
        try:
            rows.append(read(stream))
            places.append(row)
            continue
        except Exception as error:  # records are data: their damage shows in any way
            failure = error
        stream.seek(start)
        try:
            skip(stream)
        except Exception:
            damaged.append(DamagedRecord(row, failure, None))
            return rows, places, damaged
        damaged.append(DamagedRecord(row, failure, content[start : stream.tell()]))
    if damaged and stream.tell() != len(content):
        # The bytes do not come out even, so no record from the first damaged one on is where it seems to be.
        first = damaged[0]
        good = sum(1 for place in places if place < first.row)
        return rows[:good], places[:good], [first._replace(raw=None)]
    return rows, places, damaged


def file_of_record(schema: str, record: bytes) -> bytes:
    """Return a container file with one record, without compression. `schema`: the JSON text in the file's head."""
    meta = {"avro.codec": b"null", "avro.schema": schema.encode()}
    head = b"".join(_sized(name.encode()) + _sized(value) for name, value in meta.items())
    return b"".join(
        (_MAGIC, zigzag_bytes(len(meta)), head, b"\0", _MARKER, zigzag_bytes(1), _sized(record), _MARKER)
    )


def _sized(content: bytes) -> bytes:
    return zigzag_bytes(len(content)) + content
