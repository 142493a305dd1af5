"""The messages between the master and the process of an application's program, over two pipes.

Owner: none (frozen values). The start comes on the child's standard input, after its length in 4 bytes
(big-endian). The end goes the other way, alone. The token in the start is made for this one process and is
useless afterwards.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from yarrow.runtime.yarn.application import ProgramDescription

#: Most bytes of a start: a configuration and arguments.
MAX_START_BYTES = 16 << 20


class ProgramStart(msgspec.Struct, frozen=True, kw_only=True):
    """The program to run, and how it reaches the cluster."""

    program: ProgramDescription
    #: Flink keys as text, with sensitive ones: the program sees what it would see on a client.
    configuration: dict[str, str]
    #: The REST host, which is this host.
    rest_host: str
    rest_port: int
    rest_token: str
    #: The key with which workers seal rows for the program, which does not trust REST's rows without it.
    result_key: bytes = b""
    #: Seed of the program's job ids: main() runs again in a later attempt, and means the same jobs.
    job_id_seed: str


class ProgramOutcome(Enum):
    """How main() ended."""

    RETURNED = "returned"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ProgramEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The child's last message."""

    outcome: ProgramOutcome
    #: The user's own frames and the error, ready to print; empty if main() returned.
    text: str = ""


def encode_start(start: ProgramStart) -> bytes:
    """The length and the body."""
    body = msgspec.msgpack.encode(start)
    return len(body).to_bytes(4, "big") + body


def decode_start(body: bytes) -> ProgramStart:
    """Decodes a start. Raises msgspec.DecodeError for anything else."""
    return msgspec.msgpack.decode(body, type=ProgramStart)


def encode_end(end: ProgramEnd) -> bytes:
    """The whole content of the pipe back to the master."""
    return msgspec.msgpack.encode(end)


def decode_end(body: bytes) -> ProgramEnd:
    """Decodes an end. Raises msgspec.DecodeError for anything else."""
    return msgspec.msgpack.decode(body, type=ProgramEnd)
