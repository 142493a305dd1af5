"""The interpreter in one of the job's own archives, according to its JobGraph.

Owner: any thread; pure. A TaskExecutor chooses the folder of the archive, and finds out whether the
interpreter fits.
"""

from __future__ import annotations

import os

from yarrow.runtime.config.options import python
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.interpreters.interpreter import folder_of
from yarrow.runtime.rpc.messages import JobInterpreter


def interpreter_of(graph: JobGraph) -> JobInterpreter | None:
    """The interpreter in an archive of the job; None if python.executable is unset or lies elsewhere."""
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
