"""The interpreter that a job brings along in one of its archives, read from its JobGraph.

Owner: any thread; pure. Where the archive is unpacked, and whether the interpreter fits, a TaskExecutor finds out.
"""

from __future__ import annotations

import os

from yarrow.runtime.config.options import python
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.interpreters.interpreter import folder_of
from yarrow.runtime.rpc.messages import JobInterpreter


def interpreter_of(graph: JobGraph) -> JobInterpreter | None:
    """The one below an archive of the job; None where python.executable names no such, or nothing."""
    archives = {
        os.path.normpath(file.target or file.name): file
        for file in graph.user_code.files
        if file.kind == "archive"
    }
    executable = graph.configuration.get(python.EXECUTABLE.key, "")
    folder = folder_of(executable, archives)
    if not folder:
        return None
    archive = archives[folder]
    return JobInterpreter(
        executable=os.path.normpath(executable),
        archive=archive.name,
        blob_key=archive.blob_key,
        folder=archive.target or archive.name,
    )
