"""A change of the StreamGraphs of a process: a command runs a program in another form than it is written.

Owner: the main thread of a process that runs one program. The API that builds graphs asks for the change, and knows
nothing of what it does.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.runtime.graph.stream_graph import StreamGraph

#: Changes a graph in place, before claims and ids of operators are settled. It may refuse the program by raising.
GraphChange = Callable[[StreamGraph], None]


class _OfProcess:
    change: GraphChange | None = None


def change_graphs_of_this_process(change: GraphChange) -> None:
    """Let `change` change each StreamGraph that this process makes from now on."""
    _OfProcess.change = change


def changed_as_wanted(graph: StreamGraph) -> None:
    """Change the graph if the process was told to. Raises what the change raises."""
    if _OfProcess.change is not None:
        _OfProcess.change(graph)
