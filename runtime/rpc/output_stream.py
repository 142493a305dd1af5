"""User functions' output and log records, sent by a TaskExecutor to the client that started it: frames on a pipe.

Owner: the TaskExecutor writes to its standard output, one thread of its parent reads. Lines are whole. All
output of a task is in the pipe before the task's terminal state is reported. So a client that knows of a
job's end finds all its output in the pipe.
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


def encode_output(output: Forwarded) -> bytes:
    """One frame."""
    body = _ENCODER.encode(output)
    return _LENGTH.pack(len(body)) + body


def read_output(pipe: BinaryIO) -> Forwarded | None:
    """The next lines or record, blocking; None at the end of the pipe, even within a frame (the writer died)."""
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    if length > MAX_OUTPUT_FRAME_BYTES:
        raise OutputStreamError(
            f"expected a frame of output from the TaskExecutor, found a length of {length} bytes: "
            "something else wrote to its standard output"
        )
    body = pipe.read(length)
    if len(body) < length:
        return None
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise OutputStreamError(
            f"expected a frame of output from the TaskExecutor, found {length} other bytes: {error}"
        ) from None
