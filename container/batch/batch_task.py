"""BatchTask: one attempt of one partition of a stage: the vertex's OperatorChain over bounded input.

Owner: the thread that iterates `run`. There is no gate, mailbox, credit or checkpoint. Must not know who moves
chunks, nor what becomes of a failure.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from pathlib import Path

import msgspec
import pyarrow as pa

from yarrow.common.values.quantities import Duration
from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.batch_inputs import BatchInputs
from yarrow.container.batch.batch_outputs import BatchOutputs
from yarrow.container.batch.chunk import FINISHED, Chunk, TaskResult, encode_task_result
from yarrow.container.batch.commits import KEEPS_TRANSACTIONS
from yarrow.container.batch.history.kept_state import write_state
from yarrow.container.batch.iteration_rounds import Superstep
from yarrow.container.batch.largest_key_group import OnLargest
from yarrow.container.batch.single_key_state import SINGLE_KEY_BACKEND
from yarrow.container.batch.task_superstep import TaskSuperstep
from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.codegen.code_writer import CompiledCode
from yarrow.container.operators.base import TaskEnvironment
from yarrow.container.operators.sources.source_reader import HISTORY_CHECKPOINT
from yarrow.container.task.accumulated_values import accumulated
from yarrow.container.task.task_environment import TaskAttempt, task_environment
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import JobVertexID, OperatorID, execution_attempt_id
from yarrow.runtime.config.options import checkpointing, pipeline
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, History
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles

#: Seconds of one wait for results of a function that waits outside.
_AWAIT_SECONDS = 0.2


class BatchAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Names one attempt of one task, and says what it reads besides chunks."""

    vertex_id: JobVertexID
    #: The partition of the stage, from 0.
    subtask: int
    #: From 0; each attempt of a task emits the same rows.
    attempt: int = 0
    #: The task's share of a source's splits (`split_assignment.assign`), in order.
    splits: tuple[bytes, ...] = ()
    #: Where the state of a stream's history goes (`BatchPlan.history`).
    savepoint: ForeignFiles | None = None
    #: Seals pickled rows of execute_and_collect (`result_rows.ResultWriter`).
    result_key: bytes = b""
    #: The superstep of a task in the body of an iteration.
    superstep: Superstep | None = None


class BatchTask:
    """One attempt of one task. Its operators live while `run` is iterated."""

    def __init__(
        self,
        graph: JobGraph,
        plan: BatchPlan,
        attempt: BatchAttempt,
        settings: Settings,
        clock: Clock,
        working_directory: Path,
        on_largest: OnLargest = lambda largest: None,
    ) -> None:
        """`settings` are the worker's under the job's; `working_directory` takes what the task spills.

        `on_largest` hears of the key group that has the most records, when the task begins with it.
        """
        self._graph = graph
        self._attempt = attempt
        self._history = plan.history
        self._settings = _in_batch(settings) if plan.history is None else _of_history(settings)
        self._vertex = graph.vertex(attempt.vertex_id)
        stage = plan.stage(attempt.vertex_id)
        task_id = execution_attempt_id(graph.job_id, attempt.vertex_id, attempt.subtask, attempt.attempt)
        self._directory = working_directory / f"batch-{task_id}"
        self._outputs = BatchOutputs(graph, stage, attempt.subtask, self._settings, self._directory)
        self._superstep = None if attempt.superstep is None else TaskSuperstep(attempt.superstep)
        self._environment = task_environment(
            graph,
            TaskAttempt(
                task_id,
                attempt.vertex_id,
                attempt.subtask,
                attempt.attempt,
                str(self._directory / "operators"),
                # Another attempt may have been taken: what it prepared is no leftover before the job has ended.
                latest_savepoint_id=KEEPS_TRANSACTIONS,
                superstep=self._superstep,
                # Behind its history a stream goes on: results and state are those of the stream.
                bounded=plan.history is None,
            ),
            self._settings,
            clock,
            self._outputs.services(attempt.result_key),
        )
        self._partitions = self._outputs.partitions()
        vertices = {vertex.id: vertex for vertex in graph.vertices}
        #: Gets each generated function before its first call.
        self._note_code: Callable[[CompiledCode], None] = lambda code: None
        self._chain = OperatorChain(
            self._vertex,
            self._environment,
            self._partitions,
            lambda partition: vertices[partition.edge.target],
            lambda code: self._note_code(code),
            key_by_key=True,
        )
        self._inputs = BatchInputs(
            graph,
            stage,
            self._chain,
            self._outputs,
            self._settings,
            self._directory,
            on_largest,
            keeps_state=plan.history is not None,
        )
        #: Encoded handles of the state that operators leave, see `write_state`.
        self._states = b""

    @property
    def environment(self) -> TaskEnvironment:
        """The environment of the task's operators: metrics and accumulators, also while it runs."""
        return self._environment

    def take_shares(self, shares: Mapping[OperatorID, RateLimit]) -> None:
        """Gives sources and sinks their shares of their rate limits; to be called in `on_step`."""
        for operator_id, share in shares.items():
            self._chain.take_share(operator_id, share)

    def note_code(self, note: Callable[[CompiledCode], None]) -> None:
        """Lets `note` get each generated function before its first call; to be called before `run`."""
        self._note_code = note

    def run(
        self,
        inputs: Iterable[Chunk],
        columns: Iterable[pa.RecordBatch] = (),
        on_step: Callable[[], None] = lambda: None,
    ) -> Iterator[Chunk]:
        """Runs the task: takes all chunks of its partition, in any order, and yields chunks as they fill.

        `columns` are the input of a head that stands in the place of a source (`batch_sql.with_sql`), in their order.
        `on_step` is called between two pieces of input; what it raises ends the task.
        The last chunk is the FINISHED one. Raises OperatorFailure with operator and record if user code fails.
        A generator that is closed early closes its operators. Call it once.
        """
        outbox, chain = self._outputs.outbox, self._chain
        try:
            for _ in self._steps(inputs, columns):
                on_step()
                self._outputs.settle(chain)
                yield from outbox.take()
                while chain.head.room == 0:
                    chain.emit_results(_AWAIT_SECONDS)
                    on_step()
                    self._outputs.settle(chain)
                    yield from outbox.take()
            # A failed close is a failed task, as in a stream.
            for error in chain.close():
                raise error
            yield from outbox.take()
            outbox.put(FINISHED, 0, 0, encode_task_result(self._result()))
            yield from outbox.take()
            fault_points.reach("batch.task-end", subtask=self._attempt.subtask)
        finally:
            # Closes once: errors behind a failure, or behind an early end, tell nothing more.
            chain.close()
            self._inputs.close()
            outbox.close()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _steps(self, inputs: Iterable[Chunk], columns: Iterable[pa.RecordBatch]) -> Iterator[None]:
        chain = self._chain
        chain.open()
        self._outputs.name_printers(chain)
        fault_points.reach("batch.task-open", subtask=self._attempt.subtask)
        yield
        if self._history is not None:
            yield from self._steps_of_history(inputs, self._history)
            return
        if chain.source is not None:
            yield from self._inputs.read_splits(self._attempt.splits)
            chain.time.end()
        else:
            yield from self._inputs.run_columns(columns)
            yield from self._inputs.run_chunks(inputs)
            yield from self._await_results()
            chain.time.begin(MAX_TIMESTAMP)
            chain.time.proceed(inf)
        yield
        chain.finish()
        for partition in self._partitions:
            partition.flush_all()
        self._outputs.put_committables(chain)
        yield

    def _steps_of_history(self, inputs: Iterable[Chunk], history: History) -> Iterator[None]:
        """Runs the input and writes the state behind it; nothing in the chain comes to its end."""
        chain = self._chain
        if chain.source is not None:
            yield from self._inputs.read_history(self._attempt.splits, history.until)
        else:
            yield from self._inputs.run_chunks(inputs)
            yield from self._await_results()
        times = chain.end_history(self._inputs.end_time)
        yield
        self._inputs.end_history()
        # Rows that operators hold back leave, as before a checkpoint.
        chain.prepare_snapshot(HISTORY_CHECKPOINT)
        for partition in self._partitions:
            partition.flush_all()
        self._outputs.put_times(times)
        yield
        assert self._attempt.savepoint is not None, "the state of history has a place"
        self._states = write_state(chain, self._attempt.savepoint)

    def _await_results(self) -> Iterator[None]:
        """Waits for the last results of the head: nothing may come behind the end of its input."""
        while self._chain.awaits_results:
            self._chain.emit_results(_AWAIT_SECONDS)
            yield

    def _result(self) -> TaskResult:
        counts, partitions = self._chain.counts, self._partitions
        values = self._environment.metrics.values()
        return TaskResult(
            accumulators=accumulated(self._environment),
            operators=tuple(
                (descriptor.id, counts.records_into(index), counts.records_out_of(index))
                for index, descriptor in enumerate(self._vertex.operators)
            ),
            records_in=self._inputs.records_in,
            bytes_in=self._inputs.order.bytes,
            records_out=sum(partition.records_taken - partition.records_saved for partition in partitions),
            bytes_out=self._outputs.outbox.bytes_out,
            states=self._states,
            metrics={name: value for name, value in values.items() if not name.endswith("PerSecond")},
            aggregates={} if self._superstep is None else self._superstep.aggregates(),
        )


def _of_history(settings: Settings) -> Settings:
    """The settings of a task of a stream without checkpoints, in which nobody asks for watermarks."""
    settings = settings.with_value(pipeline.AUTO_WATERMARK_INTERVAL, Duration(0))
    return settings.with_value(checkpointing.INTERVAL, None)


def _in_batch(settings: Settings) -> Settings:
    """The settings of a task without checkpoints, whose keyed state lasts until its keys end."""
    settings = settings.with_value(checkpointing.STATE_BACKEND, SINGLE_KEY_BACKEND)
    settings = settings.with_value(checkpointing.STATE_DEBUG, False)
    return settings.with_value(checkpointing.INTERVAL, None)
