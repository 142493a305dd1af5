"""RunResults: the results of a run on their way to the BatchJobMaster, each message answered before the next.

Owner: the thread of the TaskServer that reads the results. They arrive by stage, subtask and position, so rows and
text leave in the order of subtasks. If Spark repeats the last task, what was sent before is passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from yarrow.container.batch.chunk import (
    COLLECTED,
    COMMITTABLES,
    FINISHED,
    PRINTED,
    TaskResult,
    decode_task_result,
)
from yarrow.container.batch.spark.task_messages import ResultChunk
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.batch_plan import BatchPlan
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway
from yarrow.runtime.rpc.messages import BatchCommittables, BatchOutput, BatchSubtaskResult, CollectRows

T = TypeVar("T")
#: Runs a call on the driver's loop and returns its answer.
Await = Callable[[Coroutine[Any, Any, T]], T]
#: Most results of subtasks in one message.
_SUBTASKS: Final = 256


class RunResults:
    """Results of one run."""

    def __init__(
        self,
        run: int,
        graph: JobGraph,
        plan: BatchPlan,
        master: BatchJobMasterGateway,
        wait_for: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        """`wait_for` blocks until the call is answered, and raises its error."""
        self._run = run
        self._graph = graph
        self._plan = plan
        self._master = master
        self._wait_for = wait_for
        #: Results of the present reading, and how many of them were passed on by any.
        self._position = 0
        self._passed = 0
        #: A result is on its way to the master, which may wait for the client.
        self.is_taking = False
        #: Number of the next message of each collect operator's subtask.
        self._sequences = Counter[tuple[str, int]]()
        self._subtasks: list[BatchSubtaskResult] = []
        #: What the successful attempts have prepared, in order of subtasks.
        self.committables: list[BatchCommittables] = []

    @property
    def passed(self) -> int:
        """Number of results that the master has."""
        return self._passed

    def begin(self) -> None:
        """The results come from their beginning."""
        self._position = 0

    def take(self, chunk: ResultChunk) -> None:
        """Passes the next result on; blocks until there is room for more. Raises RpcError."""
        self._position += 1
        if self._position <= self._passed:
            return
        self.is_taking = True
        try:
            self._pass_on(chunk)
        finally:
            self.is_taking = False
        self._passed += 1

    def _pass_on(self, chunk: ResultChunk) -> None:
        vertex = self._graph.vertex(self._plan.stages[chunk.stage].vertex_id)
        if chunk.edge == COLLECTED:
            self._collected(self._graph.collect_ids[chunk.target], chunk)
        elif chunk.edge == PRINTED:
            output = BatchOutput(
                job_id=self._graph.job_id,
                run=self._run,
                vertex_id=vertex.id,
                subtask=chunk.producer,
                text=chunk.payload.decode("utf-8"),
            )
            self._wait_for(self._master.push_output(output))
        elif chunk.edge == COMMITTABLES:
            message = self._committables(vertex, chunk)
            self._wait_for(self._master.store_committables(message))
            self.committables.append(message)
        elif chunk.edge == FINISHED:
            self._finished(vertex, chunk)

    def _collected(self, collect_id: str, chunk: ResultChunk) -> None:
        self._push(collect_id, chunk.producer, chunk.payload, chunk.rows, last=False)

    def _push(self, collect_id: str, subtask: int, payload: bytes, rows: int, *, last: bool) -> None:
        sequence = self._sequences[collect_id, subtask]
        message = CollectRows(
            job_id=JobID(self._graph.job_id),
            collect_id=collect_id,
            subtask=subtask,
            sequence=sequence,
            payload=payload,
            row_count=rows,
            last=last,
            continued=not rows and not last,
        )
        self._wait_for(self._master.push_collected(message))
        self._sequences[collect_id, subtask] = sequence + 1

    def _committables(self, vertex: JobVertex, chunk: ResultChunk) -> BatchCommittables:
        return BatchCommittables(
            job_id=self._graph.job_id,
            run=self._run,
            vertex_id=vertex.id,
            operator_id=vertex.operators[chunk.target].id,
            subtask=chunk.producer,
            attempt=chunk.attempt,
            sequence=chunk.sequence,
            committables=(chunk.payload,),
        )

    def _finished(self, vertex: JobVertex, chunk: ResultChunk) -> None:
        for collect_id in vertex.collect_ids:
            self._push(collect_id, chunk.producer, b"", 0, last=True)
        result = decode_task_result(chunk.payload)
        self._subtasks.append(
            BatchSubtaskResult(
                vertex_id=vertex.id,
                subtask=chunk.producer,
                attempt=chunk.attempt,
                accumulators=result.accumulators,
                metrics=metrics_of(vertex, result),
            )
        )
        if len(self._subtasks) >= _SUBTASKS:
            self.flush()

    def flush(self) -> None:
        """Sends what waits. Raises RpcError."""
        subtasks, self._subtasks = tuple(self._subtasks), []
        if subtasks:
            self._wait_for(self._master.report_subtasks(self._graph.job_id, self._run, subtasks))


def metrics_of(vertex: JobVertex, result: TaskResult) -> dict[str, float]:
    """The counts of a finished task under Flink's names."""
    names = {str(operator.id): operator.name for operator in vertex.operators}
    metrics: dict[str, float] = {
        "numRecordsIn": result.records_in,
        "numRecordsOut": result.records_out,
        "numBytesIn": result.bytes_in,
        "numBytesOut": result.bytes_out,
    }
    for operator_id, rows_in, rows_out in result.operators:
        name = names.get(operator_id, operator_id)
        metrics[f"{name}.numRecordsIn"] = rows_in
        metrics[f"{name}.numRecordsOut"] = rows_out
    return metrics | dict(result.metrics)
