"""The job of a per-job application as one file: its graph, and the files that the graph names by blob keys.

Owner: written by the client, read once by the master, which puts the files into its own blob store. User code in it is
opaque here: nothing is unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.graph.executor import LocalFile
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph, encode_job_graph
from yarrow.runtime.graph.shipped_files import ship_files


class PackedJobError(YarrowError):
    """The file is no packed job of this version."""


class PackedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content."""

    #: As encode_job_graph writes it.
    graph: bytes
    #: Blob key in the graph -> content.
    files: dict[str, bytes]


def pack_job(graph: JobGraph, files: Sequence[LocalFile]) -> bytes:
    """The job with its local files."""
    payloads: dict[str, bytes] = {}

    def store(payload: bytes) -> str:
        key = hashlib.sha256(payload).hexdigest()
        payloads[key] = payload
        return key

    shipped = ship_files(graph, files, store)
    return msgspec.msgpack.encode(PackedJob(graph=encode_job_graph(shipped), files=payloads))


def unpack_job(data: bytes) -> tuple[JobGraph, dict[str, bytes]]:
    """The graph, and its files by the keys under which it names them.

    The caller stores the files and, where its own keys differ, puts those into the graph.
    """
    try:
        packed = msgspec.msgpack.decode(data, type=PackedJob)
        return decode_job_graph(packed.graph), packed.files
    except msgspec.DecodeError as error:
        raise PackedJobError(
            f"the job's file is not of this version of Yarrow: {error}. Client and containers need the same"
            " version"
        ) from None
