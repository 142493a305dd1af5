"""The wire format of a data connection: a fixed versioned header, length limits, element codecs.

The task thread encodes and decodes elements; the I/O thread handles headers only. Nothing is decoded before
the header was checked. Pickled rows are decoded only on connections whose handshake has proved the peer.

    header (20 bytes, little endian): magic 'Yw', version u8, type u8, channel u32, length u32, rows u32, flags u32
"""

from __future__ import annotations

import struct
from enum import IntEnum

import msgspec

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.rpc.messages import WorkerAddress

MAGIC = b"Yw"
WIRE_VERSION = 2
HEADER = struct.Struct("<2sBBIIII")
#: Most bytes of a frame before the handshake is done.
MAX_HANDSHAKE_BYTES = 4096
MAX_CONTROL_BYTES = 1 << 20


class WireProtocolError(YarrowError):
    """The peer broke the protocol; the connection is closed, and its tasks fail over."""


class FrameType(IntEnum):
    """The content of a frame."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    OPEN = 10
    CREDIT = 11
    CLOSE = 12
    FETCH = 13
    ROWS = 20
    ARROW = 21
    WATERMARK = 30
    WATERMARK_STATUS = 31
    LATENCY_MARKER = 32
    BARRIER = 33
    END_OF_DATA = 34
    LOOP_MARKER = 35


_CONTROL = frozenset(t for t in FrameType if t not in (FrameType.ROWS, FrameType.ARROW))
_HANDSHAKE = frozenset((FrameType.HELLO, FrameType.CHALLENGE, FrameType.PROOF))
_TYPES = {int(t): t for t in FrameType}


class FrameHeader(msgspec.Struct, frozen=True, gc=False):
    """A checked header."""

    type: FrameType
    channel: int
    length: int
    rows: int
    flags: int


def encode_header(frame_type: FrameType, channel: int, length: int, rows: int = 0, flags: int = 0) -> bytes:
    """The 20 header bytes."""
    return HEADER.pack(MAGIC, WIRE_VERSION, frame_type, channel, length, rows, flags)


def decode_header(
    data: bytes | bytearray | memoryview, offset: int, *, authenticated: bool, max_payload: int
) -> FrameHeader:
    """Checks magic, version, type and length limit. Raises WireProtocolError with the fault."""
    magic, version, type_number, channel, length, rows, flags = HEADER.unpack_from(data, offset)
    if magic != MAGIC:
        raise WireProtocolError(f"data connection: expected frame magic {MAGIC!r}, got {magic!r}")
    if version != WIRE_VERSION:
        raise WireProtocolError(
            f"data connection: peer speaks wire version {version}, this process {WIRE_VERSION}; "
            "run the same Yarrow version on all nodes"
        )
    frame_type = _TYPES.get(type_number)
    if frame_type is None:
        raise WireProtocolError(f"data connection: unknown frame type {type_number}")
    if not authenticated and frame_type not in _HANDSHAKE:
        raise WireProtocolError(f"data connection: {frame_type.name} before the handshake was done")
    cap = (
        MAX_HANDSHAKE_BYTES
        if not authenticated
        else (MAX_CONTROL_BYTES if frame_type in _CONTROL else max_payload)
    )
    if length > cap:
        raise WireProtocolError(
            f"data connection: {frame_type.name} frame of {length} bytes, allowed are {cap}"
        )
    return FrameHeader(frame_type, channel, length, rows, flags)


class OpenChannel(msgspec.Struct, frozen=True):
    """Payload of OPEN: names the channel by its edge and attempts. Attempt ids are sent here only."""

    edge: int
    producer_attempt: str
    producer_subtask: int
    consumer_attempt: str


class FetchResult(msgspec.Struct, frozen=True):
    """Payload of FETCH: a consumer asks a finished producer's worker for its part of the result.

    The answer is a channel that the producer's worker opens.
    """

    edge: int
    producer_attempt: str
    producer_subtask: int
    consumer_attempt: str
    consumer_subtask: int
    #: Worker of the consumer.
    consumer: WorkerAddress


class CreditGrant(msgspec.Struct, frozen=True, array_like=True):
    """Payload of CREDIT: totals since the channel was opened, so that a repeated grant changes nothing."""

    batches: int
    bytes: int
