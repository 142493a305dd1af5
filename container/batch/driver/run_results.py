"""RunResults: the results of a run on their way to the BatchJobMaster, each message answered before the next.

Owner: the threads of the TaskServer that read the results, one at a time. They arrive by stage, subtask and position,
so rows and text leave in the order of subtasks. Spark may repeat the last task, or run it twice at a time. Each of its
attempts is a ResultsReading, which skips the results that another one has passed on.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, AnyStr, Final, NamedTuple

from yarrow.container.batch.chunk import (
    COLLECTED,
    COMMITTABLES,
    FINISHED,
    PRINTED,
    TaskResult,
    decode_task_result,
    encode_task_result,
)
from yarrow.container.batch.driver.task_messages import ResultChunk
from yarrow.container.batch.iteration_rounds import SubtaskResult
from yarrow.runtime.common.ids import JobID, JobVertexID, OperatorID
from yarrow.runtime.graph.batch.batch_plan import BatchPlan
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway
from yarrow.runtime.rpc.messages import BatchCommittables, BatchOutput, BatchSubtaskResult, CollectRows

#: Most results of subtasks in one message.
_SUBTASKS: Final = 256
#: Most bytes of UTF-8 for a character.
_CHARACTER: Final = 4


class _Place(NamedTuple):
    """A subtask's output of one kind: an operator's, or an iterator's."""

    stage: int
    edge: int
    target: int
    subtask: int


class RunResults:
    """Results of one run."""

    def __init__(
        self,
        run: int,
        graph: JobGraph,
        plan: BatchPlan,
        master: BatchJobMasterGateway,
        wait_for: Callable[[Coroutine[Any, Any, Any]], Any],
        part_bytes: int,
    ) -> None:
        """`wait_for` blocks until the call is answered, and raises its error.

        `part_bytes`: most bytes of results in one message.
        """
        self._run = run
        self._graph = graph
        self._plan = plan
        self._master = master
        self._wait_for = wait_for
        self._part_bytes = part_bytes
        self._lock = threading.Lock()
        #: Number of chunks that readings have begun to take: it shows that they go on.
        self.noticed = 0
        #: Most chunks of a reading that has come to its end.
        self._complete = -1
        #: A result is on its way to the master, which may wait for the client.
        self.is_taking = False
        #: How many rows or characters of each place the master has.
        self._known = Counter[_Place]()
        #: Number of the next message of each collect operator's subtask.
        self._sequences = Counter[tuple[str, int]]()
        self._ended: set[tuple[int, int]] = set()
        #: What the state of each subtask has become, in a savepoint of history.
        self.states: dict[tuple[JobVertexID, int], bytes] = {}
        #: Results of subtasks that wait for a message, and their bytes.
        self._subtasks: list[BatchSubtaskResult] = []
        self._subtask_bytes = 0
        #: What the successful attempts have prepared, by sink and subtask.
        self._prepared: dict[tuple[OperatorID, int], list[BatchCommittables]] = {}

    @property
    def committables(self) -> list[BatchCommittables]:
        """What the successful attempts have prepared, in order of subtasks."""
        return [part for parts in self._prepared.values() for part in parts]

    def has_all(self, count: int) -> bool:
        """Whether all results were passed on, of which Spark has counted so many."""
        return self._complete >= count

    def begin(self) -> ResultsReading:
        """Results come from their beginning, perhaps once more."""
        return ResultsReading(self)

    def take(self, chunk: ResultChunk, first: int, payload: bytes) -> int:
        """Passes on what no reading has passed on before; returns the position behind it.

        `first`: rows or characters of the same place before it. `payload`: all parts of what ends with the chunk.
        Blocks until there is room for more. Raises RpcError.
        """
        with self._lock:
            self.is_taking = True
            try:
                return self._pass_on(chunk, first, payload)
            finally:
                self.is_taking = False

    def iterated(self, subtasks: Iterable[SubtaskResult]) -> None:
        """Passes on what the tasks of an iteration have told over all supersteps. Raises RpcError."""
        positions = {stage.vertex_id: number for number, stage in enumerate(self._plan.stages)}
        for each in subtasks:
            payload = encode_task_result(each.result)
            chunk = ResultChunk(
                stage=positions[each.vertex_id],
                attempt=each.attempt,
                edge=FINISHED,
                target=0,
                producer=each.subtask,
                sequence=0,
                rows=0,
                payload=payload,
            )
            self.take(chunk, 0, payload)

    def ended(self, count: int) -> None:
        """A reading of so many results is at its end."""
        with self._lock:
            self._complete = max(self._complete, count)

    def _pass_on(self, chunk: ResultChunk, first: int, payload: bytes) -> int:
        vertex = self._graph.vertex(self._plan.stages[chunk.stage].vertex_id)
        place = place_of(chunk)
        behind = first
        if chunk.edge == COLLECTED:
            behind = first + chunk.rows
            if behind > self._known[place]:
                self._collected(self._graph.collect_ids[chunk.target], chunk, first, payload)
        elif chunk.edge == PRINTED:
            text = payload.decode("utf-8")
            behind = first + len(text)
            known = max(0, self._known[place] - first)
            if known < len(text):
                self._printed(vertex, chunk, first + known, text[known:])
        elif chunk.edge == COMMITTABLES:
            self._committables(vertex, chunk, payload)
        elif chunk.edge == FINISHED and (chunk.stage, chunk.producer) not in self._ended:
            self._finished(vertex, chunk, payload)
            self._ended.add((chunk.stage, chunk.producer))
        self._known[place] = max(self._known[place], behind)
        return behind

    def _collected(self, collect_id: str, chunk: ResultChunk, first: int, payload: bytes) -> None:
        parts = list(_parts(payload, self._part_bytes))
        for number, part in enumerate(parts, 1):
            rows = chunk.rows if number == len(parts) else 0
            self._push(collect_id, chunk.producer, part, first, rows)

    def _push(
        self, collect_id: str, subtask: int, payload: bytes, first: int, rows: int, *, last: bool = False
    ) -> None:
        sequence = self._sequences[collect_id, subtask]
        message = CollectRows(
            job_id=JobID(self._graph.job_id),
            collect_id=collect_id,
            subtask=subtask,
            attempt_number=self._run,
            sequence=sequence,
            payload=payload,
            first=first,
            row_count=rows,
            last=last,
            continued=not rows and not last,
        )
        self._wait_for(self._master.push_collected(message))
        self._sequences[collect_id, subtask] = sequence + 1

    def _printed(self, vertex: JobVertex, chunk: ResultChunk, first: int, text: str) -> None:
        for part in _parts(text, self._part_bytes // _CHARACTER):
            output = BatchOutput(
                job_id=self._graph.job_id,
                run=self._run,
                vertex_id=vertex.id,
                subtask=chunk.producer,
                printer=chunk.target,
                first=first,
                text=part,
            )
            self._wait_for(self._master.push_output(output))
            first += len(part)

    def _committables(self, vertex: JobVertex, chunk: ResultChunk, payload: bytes) -> None:
        parts = list(_parts(payload, self._part_bytes))
        messages = [
            BatchCommittables(
                job_id=self._graph.job_id,
                run=self._run,
                vertex_id=vertex.id,
                operator_id=vertex.operators[chunk.target].id,
                subtask=chunk.producer,
                attempt=chunk.attempt,
                sequence=number,
                payload=part,
                continued=number + 1 < len(parts),
            )
            for number, part in enumerate(parts)
        ]
        key = (messages[0].operator_id, chunk.producer)
        if self._prepared.get(key) == messages:
            return
        for message in messages:
            self._wait_for(self._master.store_committables(message))
        self._prepared[key] = messages

    def _finished(self, vertex: JobVertex, chunk: ResultChunk, payload: bytes) -> None:
        for collect_id in vertex.collect_ids:
            self._push(collect_id, chunk.producer, b"", 0, 0, last=True)
        result = decode_task_result(payload)
        if result.states:
            self.states[vertex.id, chunk.producer] = result.states
        if self._subtask_bytes + len(payload) > self._part_bytes:
            self._flush()
        self._subtasks.append(
            BatchSubtaskResult(
                vertex_id=vertex.id,
                subtask=chunk.producer,
                attempt=chunk.attempt,
                accumulators=result.accumulators,
                metrics=metrics_of(vertex, result),
            )
        )
        self._subtask_bytes += len(payload)
        if len(self._subtasks) >= _SUBTASKS:
            self._flush()

    def flush(self) -> None:
        """Sends what waits. Raises RpcError."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        subtasks, self._subtasks, self._subtask_bytes = tuple(self._subtasks), [], 0
        if subtasks:
            self._wait_for(self._master.report_subtasks(self._graph.job_id, self._run, subtasks))


class ResultsReading:
    """The results as one attempt of the last task sends them, from their beginning."""

    def __init__(self, results: RunResults) -> None:
        self._results = results
        self._count = 0
        #: Rows or characters before the next ones of a place; and the parts of what has begun there.
        self._behind = Counter[_Place]()
        self._parts: dict[_Place, list[bytes]] = defaultdict(list)

    def take(self, chunk: ResultChunk) -> None:
        """Takes the next result; blocks until there is room for more. Raises RpcError."""
        self._count += 1
        self._results.noticed += 1
        place, payload = place_of(chunk), chunk.payload
        if chunk.edge in (COLLECTED, COMMITTABLES):
            self._parts[place].append(payload)
            if not chunk.rows:
                # It goes on in a later chunk.
                return
            payload = b"".join(self._parts.pop(place))
        self._behind[place] = self._results.take(chunk, self._behind[place], payload)

    def end(self) -> None:
        """All results have come."""
        self._results.ended(self._count)


def place_of(chunk: ResultChunk) -> _Place:
    """Which output of which subtask a chunk continues."""
    return _Place(chunk.stage, chunk.edge, chunk.target, chunk.producer)


def joined(messages: Iterable[BatchCommittables]) -> Iterator[bytes]:
    """Encoded committables of subtasks, from their parts in order."""
    parts: list[bytes] = []
    for message in messages:
        parts.append(message.payload)
        if not message.continued:
            yield b"".join(parts)
            parts.clear()


def _parts(whole: AnyStr, length: int) -> Iterator[AnyStr]:
    """Text or bytes in parts of at most that length; at least one."""
    return (whole[begin : begin + length] for begin in range(0, max(1, len(whole)), length))


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
