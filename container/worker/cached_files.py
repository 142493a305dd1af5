"""The cached files of a job (`register_cached_file`) in a worker: functions find them by name.

Owner: the task thread, before it builds tasks. The files lie where the TaskExecutor fetched them, which removes them
with the job. A folder was sent as a zip, and is unpacked once for all workers.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from yarrow.runtime.graph.job_graph import JobGraph, ShippedFile

_KIND = "cached_file"


def with_cached_files(graph: JobGraph, file_paths: Mapping[str, str]) -> JobGraph:
    """The graph, whose cached files say where they are. `file_paths`: fetched files by blob key.

    Raises InvalidProgramError if a folder cannot be unpacked.
    """
    code = graph.user_code
    if not any(file.kind == _KIND for file in code.files):
        return graph
    files = tuple(
        _located(file, file_paths[file.blob_key])
        if file.kind == _KIND and file.blob_key in file_paths
        else file
        for file in code.files
    )
    return msgspec.structs.replace(graph, user_code=msgspec.structs.replace(code, files=files))


def _located(file: ShippedFile, path: str) -> ShippedFile:
    if file.is_folder:
        # Imported late, as for archives.
        from yarrow.container.worker.shipped_content import unpack_archive

        target = os.path.join("cached-files", os.path.basename(path))
        folder = unpack_archive(msgspec.structs.replace(file, target=target), Path(path))
        path = str(folder / target)
    elif file.executable:
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return msgspec.structs.replace(file, local_path=path)
