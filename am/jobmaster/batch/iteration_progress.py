"""IterationProgress: the supersteps of the iterations of a bounded job, for REST.

Owner: the BatchJobMaster's loop. Each run begins with the first superstep. Must not decide about supersteps: the
SparkDriver does.
"""

from __future__ import annotations

from collections.abc import Iterable

from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.batch.batch_iterations import iterations_of
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import BatchStageProgress, IterationDetails


class IterationProgress:
    """The iterations of one job, and where the present run is in each of them."""

    def __init__(self, job: JobGraph) -> None:
        self._iterations = iterations_of(job)
        self._run = 0
        self._supersteps: dict[JobVertexID, int] = {}

    @property
    def all(self) -> tuple[IterationDetails, ...]:
        """What is known now, in order of the program."""
        return tuple(
            IterationDetails(
                name=each.control.name,
                superstep=max(self._supersteps.get(vertex_id, 0) for vertex_id in each.body),
                max_supersteps=each.control.max_iterations,
                vertices=each.body,
            )
            for each in self._iterations
        )

    def note(self, run: int, stages: Iterable[BatchStageProgress]) -> None:
        """Takes in what a run tells of its stages."""
        if run < self._run:
            return
        if run > self._run:
            self._run = run
            self._supersteps.clear()
        for stage in stages:
            if stage.superstep:
                self._supersteps[stage.vertex_id] = stage.superstep
