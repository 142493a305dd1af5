"""What runs in a cluster's folder, kept in one file: ports, jars, Java and the processes that were started.

Owner: whoever holds the folder's lock while it changes; readers need none, since the file is replaced as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.kafka.layout import Layout
from tests.support.services import state_file
from tests.support.services.processes import ProcessRecord


@dataclass
class ClusterState:
    """Everything that another process needs in order to use, look at or stop the cluster."""

    nodes: int
    ports: dict[str, int]
    jars: str
    java_home: str
    processes: dict[str, ProcessRecord] = field(default_factory=dict)


def load(layout: Layout) -> ClusterState | None:
    """The state of a cluster; None where none was made. Raises ServiceError when the file is not ours."""
    return state_file.load(layout.state, ClusterState)


def save(layout: Layout, state: ClusterState) -> None:
    """Replaces the stored state."""
    state_file.save(layout.state, state)
