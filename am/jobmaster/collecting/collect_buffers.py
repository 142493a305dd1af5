"""CollectBuffers: the buffers of all collect operators of one job, kept in step with its subtasks.

Owner: the JobMaster's loop. Decides when the job waits for its client alone, and has it end then. Must not look into
the rows; what one buffer does is in collect.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from yarrow.am.execution.errors import UnknownCollectError
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import CollectConfirmation, CollectRows


class CollectBuffers:
    """One buffer for each collect operator."""

    def __init__(
        self,
        graph: ExecutionGraph,
        version: str,
        max_rows: int,
        *,
        exactly_once: bool = False,
        checkpoint_id: int = -1,
    ) -> None:
        """The buffers of one JobMaster; no other JobMaster has the same `version`.

        `checkpoint_id` is the checkpoint from which the job begins; -1 = none.
        """
        job = graph.job
        self._graph = graph
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
            for collect_id in vertex.collect_ids
        }

    def of(self, collect_id: str) -> CollectBuffer:
        """The buffer of that operator. Raises UnknownCollectError."""
        try:
            return self._buffers[collect_id]
        except KeyError:
            raise UnknownCollectError(f"job {self._job_id} has no collect operator {collect_id!r}") from None

    async def push(self, rows: CollectRows) -> CollectConfirmation:
        """Rows of a subtask, or its question when it may end. Raises UnknownCollectError."""
        buffer = self.of(rows.collect_id)
        if not rows.awaits:
            return await buffer.push(rows)
        execution = self._graph.execution(rows.attempt_id)
        if execution is not None:
            execution.awaits_client = True
        if self.look():
            await self.wake()
        return await buffer.settle(rows)

    @property
    def only_client_is_awaited(self) -> bool:
        """True when there is nothing left to do in the job: what runs waits for its client to have its rows."""
        if self._graph.status is not JobStatus.RUNNING:
            return False
        executions = self._graph.executions()
        return all(each.awaits_client or each.state is ExecutionState.FINISHED for each in executions)

    def look(self) -> bool:
        """Something has changed: has the job end where it waits for its client alone; True = `wake` is to follow.

        From then on it takes no checkpoint, which would not hold the rows of subtasks that have ended, and should a
        task fail all begin anew.
        """
        if not self._buffers or self._graph.is_ending or not self.only_client_is_awaited:
            return False
        self._graph.is_ending = True
        for buffer in self._buffers.values():
            buffer.release()
        return True

    async def wake(self) -> None:
        """Subtasks that were let go hear of it."""
        for buffer in self._buffers.values():
            await buffer.wake()

    def restart(self, attempts: Iterable[ExecutionAttemptID]) -> None:
        """The subtasks of these attempts start again."""
        self._graph.is_ending = False
        for execution in filter(None, map(self._graph.execution, attempts)):
            for collect_id in execution.vertex.collect_ids:
                self._buffers[collect_id].restarts(execution.subtask)

    def replaced(self, checkpoint_id: int) -> None:
        """The job goes on at other parallelisms, from that checkpoint."""
        self._graph.is_ending = False
        attempt_number = min(execution.attempt_number for execution in self._graph.executions())
        for vertex in self._graph.job.vertices:
            for collect_id in vertex.collect_ids:
                self._buffers[collect_id].replaced(vertex.parallelism, attempt_number, checkpoint_id)

    async def close(self) -> None:
        """The job has ended, or this master is done with it."""
        status = self._graph.status
        for buffer in self._buffers.values():
            if status.is_globally_terminal_state():
                await buffer.close(complete=status is JobStatus.FINISHED)
            else:
                await buffer.abandon()
