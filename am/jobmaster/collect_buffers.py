"""CollectBuffers: the buffers of all collect operators of one job, kept in step with its subtasks.

Owner: the JobMaster's loop. Must not look into the rows; what one buffer does is in collect.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from yarrow.am.errors import UnknownCollectError
from yarrow.am.jobmaster.collect import CollectBuffer
from yarrow.am.jobmaster.execution_graph import Execution
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.graph.operator_spec import CollectOperator


class CollectBuffers:
    """One buffer for each collect operator."""

    def __init__(
        self,
        job: JobGraph,
        version: str,
        max_rows: int,
        *,
        exactly_once: bool = False,
        checkpoint_id: int = -1,
    ) -> None:
        """`version` names the buffers of this JobMaster: no other's are so called. `checkpoint_id`: from which the job
        begins, -1 = none.
        """
        self._job_id = job.job_id
        self._buffers = {
            collect_id: CollectBuffer(
                job.job_id,
                collect_id,
                vertex.parallelism,
                max_rows,
                version=version,
                exactly_once=exactly_once,
                checkpoint_id=checkpoint_id,
            )
            for vertex in job.vertices
            for collect_id in _collects_of(vertex)
        }

    def of(self, collect_id: str) -> CollectBuffer:
        """The buffer of that operator. Raises UnknownCollectError."""
        try:
            return self._buffers[collect_id]
        except KeyError:
            raise UnknownCollectError(f"job {self._job_id} has no collect operator {collect_id!r}") from None

    def restart(self, executions: Iterable[Execution]) -> None:
        """These subtasks start again."""
        for execution in executions:
            for collect_id in _collects_of(execution.vertex):
                self._buffers[collect_id].restarts(execution.subtask)

    def replaced(self, job: JobGraph, attempt_number: int, checkpoint_id: int) -> None:
        """The job goes on at other parallelisms, with attempts of that number, from that checkpoint."""
        for vertex in job.vertices:
            for collect_id in _collects_of(vertex):
                self._buffers[collect_id].replaced(vertex.parallelism, attempt_number, checkpoint_id)

    async def close(self, complete: bool) -> None:
        """The job has ended; `complete`: it has finished."""
        for buffer in self._buffers.values():
            await buffer.close(complete)


def _collects_of(vertex: JobVertex) -> Iterator[str]:
    for operator in vertex.operators:
        if isinstance(operator.spec, CollectOperator):
            yield operator.spec.collect_id
