"""RunningRates: divides the rate limits of a bounded job among those of its tasks that run.

Owner: whoever drives the run; a driver with threads holds its lock meanwhile. Pure. Tasks that wait for their turn or
have ended have no share, so the sum of all shares is the limit. Must not know how tasks hear of their shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.graph.job_graph import JobGraph

K = TypeVar("K")


class RunningRates(Generic[K]):
    """The limits of one run, and the running tasks of each vertex."""

    def __init__(self) -> None:
        #: Of sources and sinks that have a limit, or have had one.
        self._limits: dict[OperatorID, RateLimit] = {}
        self._operators: dict[JobVertexID, list[OperatorID]] = {}
        self._running: dict[JobVertexID, set[K]] = {}

    def plan(self, graph: JobGraph) -> None:
        """Take the limits of the program; limits that were changed before stay as they are."""
        for vertex in graph.vertices:
            for operator in vertex.operators:
                if operator.spec.takes_rate_limit:
                    self._operators.setdefault(vertex.id, []).append(operator.id)
                    if operator.spec.rate_limit.limits_something:
                        self._limits.setdefault(operator.id, operator.spec.rate_limit)

    def change(self, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Take other limits; operators that are not named keep theirs."""
        self._limits.update(limits)

    def started(self, vertex_id: JobVertexID, task: K) -> None:
        """Note that a task runs."""
        self._running.setdefault(vertex_id, set()).add(task)

    def ended(self, vertex_id: JobVertexID, task: K) -> None:
        """Note that a task runs no more; it leaves its share to the others."""
        self._running.get(vertex_id, set()).discard(task)

    def running(self, vertex_id: JobVertexID) -> tuple[K, ...]:
        """Return the running tasks of a vertex."""
        return tuple(self._running.get(vertex_id, ()))

    def limited_vertices(self) -> list[JobVertexID]:
        """Return the vertices with sources or sinks that have a limit, or have had one."""
        return [vertex_id for vertex_id in self._operators if self.shares_of(vertex_id)]

    def shares_of(self, vertex_id: JobVertexID) -> dict[OperatorID, RateLimit]:
        """Return the share of each running task of a vertex, by operator."""
        tasks = max(1, len(self._running.get(vertex_id, ())))
        return {
            operator_id: self._limits[operator_id].share_of(tasks)
            for operator_id in self._operators.get(vertex_id, ())
            if operator_id in self._limits
        }
