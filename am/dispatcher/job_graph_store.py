"""JobGraphStore: submitted jobs that have not ended, so that a new Dispatcher can start them again.

Owner: blocking; the Dispatcher calls it through `run_blocking`. Graphs are opaque bytes here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from yarrow.runtime.common.ids import JobID, is_hex_id


class JobGraphStore(Protocol):
    """Encoded job graphs by job id."""

    def put(self, job_id: JobID, graph: bytes) -> None:
        """Stores or replaces; returns when it is durable."""
        ...

    def get(self, job_id: JobID) -> bytes:
        """The encoded graph; KeyError when there is none."""
        ...

    def remove(self, job_id: JobID) -> None:
        """Forgets a job; no effect when there is none."""
        ...

    def job_ids(self) -> tuple[JobID, ...]:
        """All jobs stored."""
        ...


class InMemoryJobGraphStore:
    """Gone with the process: of embedded clusters."""

    def __init__(self) -> None:
        self._graphs: dict[JobID, bytes] = {}

    def put(self, job_id: JobID, graph: bytes) -> None:
        self._graphs[job_id] = graph

    def get(self, job_id: JobID) -> bytes:
        return self._graphs[job_id]

    def remove(self, job_id: JobID) -> None:
        self._graphs.pop(job_id, None)

    def job_ids(self) -> tuple[JobID, ...]:
        return tuple(self._graphs)


class DirectoryJobGraphStore:
    """One file a job, whole or absent."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

    def put(self, job_id: JobID, graph: bytes) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self._directory / f"{job_id}.part"
        with part.open("wb") as file:
            file.write(graph)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path(job_id))

    def get(self, job_id: JobID) -> bytes:
        try:
            return self._path(job_id).read_bytes()
        except FileNotFoundError:
            raise KeyError(job_id) from None

    def remove(self, job_id: JobID) -> None:
        self._path(job_id).unlink(missing_ok=True)

    def job_ids(self) -> tuple[JobID, ...]:
        return tuple(JobID(path.stem) for path in sorted(self._directory.glob("*.jobgraph")))

    def _path(self, job_id: JobID) -> Path:
        if not is_hex_id(job_id):
            raise KeyError(job_id)
        return self._directory / f"{job_id}.jobgraph"
