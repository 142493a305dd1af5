"""SharedJob: what every task of a run needs: graph, plan, settings, splits and the places of its files.

Owner: the driver writes it once a run, into a folder of its own; each Python process of Spark reads it once.
User code is opaque bytes inside the graph. Must not be sent through Spark.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.common.private_files import private_opener
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles

_FILE: Final = "job"
#: The driver's socket in the same folder, see task_messages.
SOCKET: Final = "reports"


class SharedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one job, as its tasks see it."""

    run: int
    #: encode_job_graph(...) and encode_batch_plan(...).
    job_graph: bytes
    plan: bytes
    #: Of the cluster; the job's own are in its graph.
    configuration: dict[str, str]
    #: Folder for what tasks spill.
    task_folder: str
    #: Blob key of a shipped file -> its path here.
    file_paths: dict[str, str]
    #: Encoded splits of each subtask, by source vertex.
    splits: dict[JobVertexID, list[list[bytes]]]
    result_key: bytes
    #: Where tasks write the state of a stream's history; None = they keep none.
    savepoint: ForeignFiles | None = None

    def encoded(self) -> bytes:
        """Its bytes."""
        return msgspec.msgpack.encode(self)

    def write(self, folder: Path) -> None:
        """Writes it for this user alone."""
        with open(folder / _FILE, "wb", opener=private_opener) as stream:
            stream.write(self.encoded())


def read_shared_job(folder: str) -> SharedJob:
    """What the driver wrote into that folder."""
    data = Path(os.path.join(folder, _FILE)).read_bytes()
    return msgspec.msgpack.decode(data, type=SharedJob)
