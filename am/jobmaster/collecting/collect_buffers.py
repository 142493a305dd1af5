"""CollectBuffers: the buffers of all collect operators of one job, kept in step with its subtasks.

Owner: the JobMaster's loop. Decides when the job only waits for its client, and then lets the job end. Must
not look into the rows; collect_buffer.py handles one buffer.
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
        """Takes the rows of a subtask, or its question whether it may end. Raises UnknownCollectError."""
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
        """True when all running tasks only wait for the client to fetch their rows."""
        if self._graph.status is not JobStatus.RUNNING:
            return False
        executions = self._graph.executions()
        return all(each.awaits_client or each.state is ExecutionState.FINISHED for each in executions)

    def look(self) -> bool:
        """Lets the job end if it only waits for its client; call it after each change.

        True = call `wake` next.

        From then on the job takes no checkpoint, because subtasks that have ended would be missing in it with
        their rows. If a task fails after that, the whole job restarts.
        """
        if not self._buffers or self._graph.is_ending or not self.only_client_is_awaited:
            return False
        self._graph.is_ending = True
        for buffer in self._buffers.values():
            buffer.release()
        return True

    async def wake(self) -> None:
        """Wakes the subtasks that may end now."""
        for buffer in self._buffers.values():
            await buffer.wake()

    def restart(self, attempts: Iterable[ExecutionAttemptID]) -> None:
        """Notes that the subtasks of these attempts restart."""
        self._graph.is_ending = False
        for execution in filter(None, map(self._graph.execution, attempts)):
            for collect_id in execution.vertex.collect_ids:
                self._buffers[collect_id].restarts(execution.subtask)

    def replaced(self, checkpoint_id: int) -> None:
        """Notes that the job continues from that checkpoint at other parallelisms."""
        self._graph.is_ending = False
        attempt_number = min(execution.attempt_number for execution in self._graph.executions())
        for vertex in self._graph.job.vertices:
            for collect_id in vertex.collect_ids:
                self._buffers[collect_id].replaced(vertex.parallelism, attempt_number, checkpoint_id)

    async def close(self) -> None:
        """Closes or abandons all buffers: the job has ended, or this master gives it up."""
        status = self._graph.status
        for buffer in self._buffers.values():
            if status.is_globally_terminal_state():
                await buffer.close(complete=status is JobStatus.FINISHED)
            else:
                await buffer.abandon()
