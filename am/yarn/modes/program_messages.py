"""What the master and the process of an application's program tell each other over two pipes.

Owner: none (frozen values). The start comes on the child's standard input, its length in 4 bytes (big-endian) before
it; the end goes the other way, alone. The token in the start is made for this one process and good for nothing after
it.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from yarrow.runtime.yarn.application import ProgramDescription

#: Longest start: a configuration and arguments.
MAX_START_BYTES = 16 << 20


class ProgramStart(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and how to reach the cluster."""

    program: ProgramDescription
    #: Flink keys as texts, sensitive ones too: the program sees what it would see on a client.
    configuration: dict[str, str]
    #: On this host.
    rest_host: str
    rest_port: int
    rest_token: str
    #: By which workers seal rows for the program, which trusts no answer of REST with them.
    result_key: bytes = b""
    #: From which the ids of its jobs are derived: main() runs again in a later attempt, and means the same jobs.
    job_id_seed: str


class ProgramOutcome(Enum):
    """How main() ended."""

    RETURNED = "returned"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ProgramEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The last word of the child."""

    outcome: ProgramOutcome
    #: The user's own frames and the error, ready to print; empty when it returned.
    text: str = ""


def encode_start(start: ProgramStart) -> bytes:
    """Length and body."""
    body = msgspec.msgpack.encode(start)
    return len(body).to_bytes(4, "big") + body


def decode_start(body: bytes) -> ProgramStart:
    """msgspec.DecodeError for anything else."""
    return msgspec.msgpack.decode(body, type=ProgramStart)


def encode_end(end: ProgramEnd) -> bytes:
    """The whole content of the pipe back."""
    return msgspec.msgpack.encode(end)


def decode_end(body: bytes) -> ProgramEnd:
    """msgspec.DecodeError for anything else."""
    return msgspec.msgpack.decode(body, type=ProgramEnd)
