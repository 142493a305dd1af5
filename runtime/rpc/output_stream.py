"""What user functions print and log, on its way from a TaskExecutor to the client that started it: frames on a pipe.

Owner: the TaskExecutor writes to its standard output, one thread of its parent reads. Lines are whole. All
output of a task is in the pipe before the task's terminal state is reported: who has learnt that a job ended
reads what the pipe holds, and has all of it.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

from yarrow.runtime.common.errors import YarrowError

_LENGTH = struct.Struct("<I")
#: Frames are made of lines that a worker sends in pieces far below this.
MAX_OUTPUT_FRAME_BYTES = 256 * 1024 * 1024


class OutputStreamError(YarrowError):
    """A TaskExecutor's standard output carried something else than output frames."""


class ForwardedOutput(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Whole lines of one worker, each with its line end."""

    #: "stdout" or "stderr".
    stream: str
    text: str


class LoggedRecord(msgspec.Struct, frozen=True, array_like=True, tag=True, kw_only=True):
    """A record that user code gave to Python's `logging` in a worker: text, never an object of the user's."""

    #: Of the logger.
    name: str
    level: int
    #: Epoch seconds.
    created: float
    #: With its arguments filled in.
    message: str
    #: Of the exception that was logged with it, "" = none.
    traceback: str = ""
    #: Name of the operator whose code logged it; of the task where no single operator is known; "" = of no task.
    operator: str = ""
    #: Index of its subtask, -1 = of no task.
    subtask: int = -1
    thread: str = ""
    #: Where in the source it was logged.
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
    """The next lines or record, blocking; None at the end of the pipe, be it inside a frame (the writer died)."""
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
