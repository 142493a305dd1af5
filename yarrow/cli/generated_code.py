"""info --code: the functions that workers generate for the chains of a job.

Owner: the main thread. User functions are loaded and operators built as in a worker, in a fragment that does
not run. No function is opened or called, and no connection is made.
"""

from __future__ import annotations

from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph


def print_generated_code(graph: JobGraph) -> None:
    """Prints the functions of each vertex's first task. Bound objects appear by name, constants with their values."""
    from yarrow.container.fragment import Fragment, FragmentSubtask

    first = [FragmentSubtask(vertex.id) for vertex in graph.vertices]
    with Fragment(graph, Settings(graph.configuration), SystemClock(), subtasks=first) as fragment:
        for vertex in graph.vertices:
            print(f"# {vertex.name}")
            sources = fragment.generated_code(FragmentSubtask(vertex.id))
            print("\n".join(sources) if sources else "# no row functions: whole batches are handed on\n")
