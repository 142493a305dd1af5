"""info --code: the functions that workers generate for the chains of a job.

Owner: the main thread. Functions are loaded and their operators built, but nothing is opened or run.
"""

from __future__ import annotations

from yarrow.cli.errors import CommandError
from yarrow.runtime.graph.job_graph import JobGraph


def print_generated_code(graph: JobGraph) -> None:
    """Refused for now; the message says where the code can be seen."""
    raise CommandError(
        f"--code is refused: the code of {graph.name!r} is generated when a worker opens the chain. The trace of"
        " a failing function shows the lines in question."
    )
