"""User functions' output and log records, sent by a TaskExecutor to the client that started it: frames on a socket.

Owner: the TaskExecutor writes to its standard output, one thread of its parent reads. Lines are whole. The parent
confirms what it has written out. A TaskExecutor reports a task's state when its output so far is confirmed. So a
client that hears of a task's end, or of its failure, has all its output.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

from yarrow.runtime.common.errors import YarrowError

_LENGTH = struct.Struct("<I")
#: Most bytes of a frame; the pieces that workers send are far smaller.
MAX_OUTPUT_FRAME_BYTES = 256 * 1024 * 1024


class OutputStreamError(YarrowError):
    """A TaskExecutor's standard output carried something else than output frames."""


class ForwardedOutput(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Whole lines of one worker, each with its line end."""

    #: "stdout" or "stderr".
    stream: str
    text: str


class LoggedRecord(msgspec.Struct, frozen=True, array_like=True, tag=True, kw_only=True):
    """A record that user code logged in a worker, as text, never with an object of the user's."""

    #: Name of the logger.
    name: str
    level: int
    #: Epoch seconds.
    created: float
    #: The message with its arguments.
    message: str
    #: Traceback of the logged exception, "" = none.
    traceback: str = ""
    #: Name of the operator that logged it, or of the task if no single operator is known; "" = no task.
    operator: str = ""
    #: Index of its subtask, -1 = no task.
    subtask: int = -1
    thread: str = ""
    #: Source file of the log call.
    path: str = ""
    line: int = 0
    function: str = ""


Forwarded = ForwardedOutput | LoggedRecord

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Forwarded] = msgspec.msgpack.Decoder(Forwarded)


_CONFIRMED = struct.Struct("<Q")


def encode_confirmation(confirmed: int) -> bytes:
    """The answer to frames: how many of their bytes the client has written out since the start."""
    return _CONFIRMED.pack(confirmed)


class Confirmations:
    """Confirmations as the TaskExecutor receives them, cut anywhere."""

    def __init__(self) -> None:
        self._data = b""
        self._newest = 0

    def feed(self, data: bytes) -> int:
        """Takes received bytes; returns the newest number of confirmed bytes."""
        data = self._data + data
        whole = len(data) // _CONFIRMED.size * _CONFIRMED.size
        if whole:
            (self._newest,) = _CONFIRMED.unpack_from(data, whole - _CONFIRMED.size)
        self._data = data[whole:]
        return self._newest


def encode_output(output: Forwarded) -> bytes:
    """One frame."""
    body = _ENCODER.encode(output)
    return _LENGTH.pack(len(body)) + body


def read_output(stream: BinaryIO) -> Forwarded | None:
    """The next lines or record, blocking; None at the end of the stream, even within a frame (the writer died)."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    if length > MAX_OUTPUT_FRAME_BYTES:
        raise OutputStreamError(
            f"expected a frame of output from the TaskExecutor, found a length of {length} bytes: "
            "something else wrote to its standard output"
        )
    body = stream.read(length)
    if len(body) < length:
        return None
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise OutputStreamError(
            f"expected a frame of output from the TaskExecutor, found {length} other bytes: {error}"
        ) from None
