"""The messages between the control plane and the process of a program's main, as frames over pipes.

Owner: none (frozen values). A frame is the length of its body in 4 bytes, big-endian, and the body as
msgpack. No pickle: JobGraphs are sent encoded, files as paths on this host.
"""

from __future__ import annotations

import msgspec

#: Most bytes of a frame; a JobGraph is far smaller.
MAX_FRAME_BYTES = 256 << 20


class ProgramRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The program to run, and how; the first and only frame to the child."""

    #: Path of the stored program, and its uploaded name.
    path: str
    name: str
    #: A module of the archive, or `module:function`; empty = the program's own `__main__`.
    entry: str = ""
    arguments: tuple[str, ...] = ()
    configuration: dict[str, str] = msgspec.field(default_factory=dict)
    #: True = stop at the first execute; False = hand over every job and run on.
    plan_only: bool = True


class ProgramFileToShip(msgspec.Struct, frozen=True, kw_only=True):
    """A file that workers need, readable for the control plane."""

    name: str
    kind: str
    path: str
    target: str | None = None
    #: The file is the zip of a folder.
    is_folder: bool = False
    executable: bool = False


class JobHandedOver(msgspec.Struct, frozen=True, kw_only=True, tag="job"):
    """The program called execute."""

    job_graph: bytes
    files: tuple[ProgramFileToShip, ...] = ()


class ProgramEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The last frame: main returned, or failed for a reason that is ready to print."""

    error: str = ""


MessageFromProgram = JobHandedOver | ProgramEnded

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[MessageFromProgram] = msgspec.msgpack.Decoder(MessageFromProgram)
_REQUEST_DECODER = msgspec.msgpack.Decoder(ProgramRequest)


def encode_frame(message: ProgramRequest | MessageFromProgram) -> bytes:
    """The length and the body."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(4, "big") + body


def decode_message(body: bytes) -> MessageFromProgram:
    """Decodes the body of a frame. Raises msgspec.DecodeError for anything else."""
    return _DECODER.decode(body)


def decode_request(body: bytes) -> ProgramRequest:
    """Decodes the body of a request frame. Raises msgspec.DecodeError for anything else."""
    return _REQUEST_DECODER.decode(body)
