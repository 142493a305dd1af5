"""OperatorChain: the operators of one task. Rows go through generated loops, batches through calls.

Owner: the task thread. The task gives it slices, watermarks, timers and the end of input. It never blocks and
never looks at credit. An exception of user code leaves as OperatorFailure with operator and record.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Any, cast

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.chain.batch_flow import BatchFlow, never
from yarrow.container.chain.chain_compiler import ChainCompiler
from yarrow.container.chain.chain_counts import ChainCounts
from yarrow.container.chain.chain_loops import ChainLoops
from yarrow.container.chain.chain_time import ChainTime
from yarrow.container.chain.emitted_results import EmittedResults
from yarrow.container.chain.pending_snapshot import OperatorPart
from yarrow.container.codegen.attribution import Attribution
from yarrow.container.codegen.code_writer import CompiledCode
from yarrow.container.network.partition import Partition
from yarrow.container.network.result_partition import ResultPartition
from yarrow.container.operators.base import (
    HistoryTime,
    Operator,
    OperatorContext,
    TaskEnvironment,
    TimeResults,
)
from yarrow.container.operators.event_time import WatermarkMaker
from yarrow.container.operators.registry import build_operator
from yarrow.container.operators.sinks.collecting import CollectingOperator
from yarrow.container.operators.sources.source_head import SourceHead
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.datastream.connectors.dead_letters import DEAD_LETTERS
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.elements import MIN_TIMESTAMP, ArrowBatch
from yarrow.runtime.graph.job_graph import JobVertex


class OperatorChain:
    """The operator chain of one subtask."""

    def __init__(
        self,
        vertex: JobVertex,
        environment: TaskEnvironment,
        partitions: Sequence[Partition],
        consumer_of: Callable[[Partition], JobVertex],
        on_compiled: Callable[[CompiledCode], None] | None = None,
        *,
        key_by_key: bool = False,
    ) -> None:
        """`on_compiled` gets each generated function before its first call.

        `key_by_key`: keys come one after the other, also where a stream goes on behind them.
        """
        self._vertex = vertex
        self._environment = environment
        self._partitions = tuple(partitions)
        row_partitions = [p for p in partitions if isinstance(p, ResultPartition)]
        self.operators: tuple[Operator, ...] = tuple(
            build_operator(descriptor, bounded=environment.bounded or key_by_key)
            for descriptor in vertex.operators
        )
        self._compiler = ChainCompiler(
            vertex,
            self.operators,
            row_partitions,
            consumer_of,
            environment.object_reuse,
            inlines=environment.settings.get(pipeline.INLINE_FUNCTIONS),
        )
        self._bulk = [
            (index, operator)
            for index, operator in enumerate(self.operators)
            if operator.takes_chunks or operator.holds_rows
        ]
        #: The operators that may have a rate limit and are no source: it limits what the chain takes.
        self._sinks = [
            operator
            for operator, descriptor in zip(self.operators, vertex.operators, strict=True)
            if descriptor.spec.takes_rate_limit and not descriptor.spec.is_source
        ]
        #: The operators in use: all, unless the task had ended before the restored checkpoint.
        self._open = self.operators
        self._kept_up = [
            (index, operator) for index, operator in enumerate(self.operators) if operator.has_upkeep
        ]
        #: Records that operators leave out within bounds.
        self._bounded = [
            (index, operator.failed)
            for index, operator in enumerate(self.operators)
            if operator.failed is not None and operator.failed.is_bounded
        ]
        #: Keyed states that must hear of the end of each chunk; known after `open`.
        self._keyed_states: list[tuple[int, KeyedStateBackend]] = []
        #: Runs rows through generated code.
        self.loops = ChainLoops(self.operators, self._compiler, self._partitions, on_compiled)
        #: Counts rows.
        self.counts = ChainCounts(self.operators, self._compiler, self._partitions)
        #: Carries watermarks and idleness through the operators.
        self.time = ChainTime(vertex, self.operators, self._partitions, self._emit_results, self._settle)
        #: Carries record batches through the operators.
        self._batches = BatchFlow(
            self.operators,
            self._partitions,
            self._compiler.children,
            lambda index, rows, timestamps: self.loops.run(("behind", index, None), rows, timestamps),
        )
        self._closed = False

    # ------------------------------------------------------------------ life cycle

    def open(self) -> None:
        """Sets up and opens all operators, the last first, so that each finds its consumers open (as in Flink)."""
        from_last = list(enumerate(zip(self.operators, self._vertex.operators, strict=True)))[::-1]
        for index, (operator, descriptor) in from_last:
            with self.attributed(index):
                if operator.makes_watermarks:
                    cast(WatermarkMaker, operator).watermarks_to = self.time.behind[index]
                if operator.holds_time:
                    operator.time_behind = self.time.behind[index]
                operator.setup(OperatorContext.of(self._environment, descriptor))
                operator.open()
                state = operator.context.state
                if isinstance(state, KeyedStateBackend):
                    self._keyed_states.append((index, state))
        for index, operator in enumerate(self.operators):
            if operator.delivers_batches:
                operator.deliver = self._deliverer(index)
            if operator.emits_again:
                operator.emit_again = partial(self._emit_again, index)
            if operator.holds_rows:
                operator.emit_held = partial(self._emit_held, index)
            if operator.failed is not None and DEAD_LETTERS in self._compiler.side_outputs(index):
                operator.failed.send = partial(self.loops.run, ("behind", index, DEAD_LETTERS))
        self.loops.open()
        self.counts.register(self._environment.metrics, self.time)
        for index, operator in enumerate(self.operators):
            if operator.makes_watermarks:
                with self.attributed(index):
                    cast(WatermarkMaker, operator).begin_time()

    def resume_finished(self) -> None:
        """Replaces `open` for a task that had ended: operators whose state outlives it finish their work on that."""
        resumed = [
            (index, operator)
            for index, operator in enumerate(self.operators)
            if operator.keeps_state_behind_end
            and self._environment.restored.of(self._vertex.operators[index].id).operator
        ]
        self._kept_up, self._open = resumed, tuple(operator for _, operator in resumed)
        for index, operator in resumed:
            with self.attributed(index):
                operator.setup(OperatorContext.of(self._environment, self._vertex.operators[index]))
                operator.resume_finished()

    @property
    def keeps_state_behind_end(self) -> bool:
        """True if `resume_finished` needs state, which must then be fetched."""
        return any(operator.keeps_state_behind_end for operator in self.operators)

    def _deliverer(self, index: int) -> Callable[[ArrowBatch], None]:
        return lambda batch: self._batches.run_behind(index, batch)

    def _emit_again(
        self, index: int, side_output: str | None, rows: list[Any], timestamps: list[int | None] | None
    ) -> None:
        if side_output is None or side_output in self._compiler.side_outputs(index):
            self.loops.run(("behind", index, side_output), rows, timestamps)
            self.end_of_chunk()

    def _emit_held(self, index: int, rows: list[Any], timestamps: list[int]) -> None:
        # The loops of operators before this one may run: their states must not hear of an end of the chunk.
        self.loops.run(("behind", index, None), rows, timestamps)
        for partition in self._partitions:
            partition.flush_full()

    def finish(self) -> None:
        """Finishes the operators in order after the end of input; their last rows flow on."""
        for index, operator in enumerate(self.operators):
            with self.attributed(index):
                operator.finish()
                self.end_of_chunk()
        for index, failed in self._bounded:
            with self.attributed(index):
                failed.end()

    def close(self) -> list[BaseException]:
        """Closes all operators; returns the errors instead of raising the first."""
        errors: list[BaseException] = []
        if not self._closed:
            self._closed = True
            errors += self._batches.close()
            for operator in self.operators:
                try:
                    operator.close()
                except BaseException as error:  # one close must not prevent the others
                    errors.append(OperatorFailure(operator.name, "", error))
            errors += self._dispose_states()
            self.loops.close()
        return errors

    def _dispose_states(self) -> list[BaseException]:
        errors: list[BaseException] = []
        for operator in self.operators:
            try:
                if operator.is_set_up:
                    operator.context.state.dispose()
            except Exception as error:
                errors.append(OperatorFailure(operator.name, "", error))
        shutil.rmtree(self._environment.local_directory, ignore_errors=True)
        return errors

    # ------------------------------------------------------------------ checkpoints

    def announce_checkpoint(self, checkpoint_id: int) -> None:
        """Tells backends of a coming checkpoint, so that they can prepare its cut."""
        for operator in self.operators:
            operator.context.state.announce_checkpoint(checkpoint_id)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Makes operators emit the rows that they hold back, in chain order, before the barrier."""
        for index, operator in enumerate(self.operators):
            with self.attributed(index):
                operator.prepare_snapshot(checkpoint_id)
                self.end_of_chunk()

    def snapshot_operator(self, index: int, checkpoint_id: int, options: CheckpointOptions) -> OperatorPart:
        """Freezes the state of one operator."""
        operator, descriptor = self.operators[index], self._vertex.operators[index]
        with self.attributed(index):
            if options.kind.stops_job:
                operator.stand_still(checkpoint_id, options.kind)
            operator.snapshot_state(checkpoint_id)
            context = operator.context
            keyed = context.state.snapshot(checkpoint_id, options)
            try:
                own = context.operator_state.snapshot(checkpoint_id)
            except BaseException:
                keyed.discard()
                raise
            return OperatorPart(descriptor.id, operator.name, keyed, own)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Tells operators and backends that a checkpoint is complete."""
        for index, operator in enumerate(self.operators):
            with self.attributed(index):
                operator.context.state.checkpoint_completed(checkpoint_id)
                operator.notify_checkpoint_complete(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tells operators and backends that a checkpoint was aborted."""
        for index, operator in enumerate(self.operators):
            with self.attributed(index):
                operator.context.state.checkpoint_aborted(checkpoint_id)
                operator.notify_checkpoint_aborted(checkpoint_id)

    @property
    def operators_in_use(self) -> Sequence[int]:
        """Positions of the opened operators: all, unless the task had ended before the restored checkpoint."""
        return [index for index, operator in enumerate(self.operators) if operator in self._open]

    @property
    def head(self) -> Operator:
        """The first operator."""
        return self.operators[0]

    @property
    def head_id(self) -> OperatorID:
        """Id of the first operator."""
        return self._vertex.operators[0].id

    @property
    def source(self) -> SourceHead | None:
        """The head, if it is a source."""
        return cast(SourceHead, self.operators[0]) if self._vertex.is_source else None

    @property
    def blocking(self) -> bool:
        """Whether the task has its own thread."""
        return self._vertex.blocking

    @property
    def is_available(self) -> bool:
        """False while an operator cannot take rows."""
        return all(operator.is_available for operator in self.operators)

    @property
    def permitted_rows(self) -> int | None:
        """Most rows that rate limits of sinks let the chain take now: 0 = they wait, None = any number."""
        if not self._sinks:
            return None
        found = [rows for sink in self._sinks if (rows := sink.permitted_rows) is not None]
        return min(found) if found else None

    @property
    def room(self) -> int | None:
        """Most rows that the head and the rate limits of sinks take now; None = any number."""
        permitted, room = self.permitted_rows, self.operators[0].room
        if permitted is None or room is None:
            return room if permitted is None else permitted
        return min(permitted, room)

    def take_share(self, operator_id: OperatorID, share: RateLimit) -> None:
        """Gives a source or sink its share of its rate limit."""
        for index, descriptor in enumerate(self._vertex.operators):
            if descriptor.id == operator_id:
                with self.attributed(index):
                    self.operators[index].take_share(share)

    @property
    def is_drained(self) -> bool:
        """False while an operator waits for a receiver to take its last output."""
        return all(operator.is_drained for operator in self._open)

    def await_client(self) -> None:
        """If only the client of execute_and_collect still has rows to fetch, operators report that to the master."""
        waiting = [operator for operator in self._open if not operator.is_drained]
        if all(operator.only_awaits_client for operator in waiting):
            for operator in waiting:
                operator.await_client()

    def collecting(self, collect_id: str) -> CollectingOperator | None:
        """The collect operator of that id; None if the chain has none."""
        for operator, descriptor in zip(self.operators, self._vertex.operators, strict=True):
            if descriptor.spec.collects_for == collect_id:
                return cast(CollectingOperator, operator)
        return None

    # ------------------------------------------------------------------ rows and batches

    def run_rows_of_key(
        self, input_index: int, rows: Iterable[Any], timestamps: Iterable[int | None] | None
    ) -> None:
        """Runs rows of bounded input like `run_rows`, within a chunk of several keys; the caller ends the chunk."""
        self.loops.run(("input", input_index), rows, timestamps)

    def run_rows(
        self, input_index: int, rows: Iterable[Any], timestamps: Iterable[int | None] | None
    ) -> None:
        """Runs a chunk of rows for an input of the head; the caller counts them in `counts`."""
        self.loops.run(("input", input_index), rows, timestamps)
        self.end_of_chunk()

    def read_ahead(self, input_index: int, rows: Sequence[Any]) -> bool:
        """Reads the head's state at once for the rows of several chunks; False = each chunk reads its own."""
        with self.attributed(0):
            return self.loops.read_ahead(input_index, rows)

    def run_source_rows(self, rows: Iterable[Any], timestamps: Iterable[int | None] | None) -> None:
        """Runs rows that the source at the head has read."""
        self.loops.run(("behind", 0, None), rows, timestamps)
        self.end_of_chunk()

    def run_source_side(self, side: Iterable[tuple[str, Any]] | None) -> None:
        """Sends the source's tagged rows (tag id, value) to side outputs; drops rows without a consumer."""
        for tag_id, value in side or ():
            if tag_id in self._compiler.side_outputs(0):
                self.loops.run(("behind", 0, tag_id), [value], None)

    def run_batch(self, input_index: int, batch: ArrowBatch, is_over: Callable[[], bool] = never) -> None:
        """Runs a record batch for an input of the head, as far as `flow_on` says."""
        self.counts.records_in += len(batch)
        self._batches.begin(input_index, batch)
        self.flow_on(is_over)

    def run_source_batch(self, batch: ArrowBatch, is_over: Callable[[], bool] = never) -> None:
        """Runs a record batch that the source at the head has read, as far as `flow_on` says."""
        self._batches.begin_behind(0, batch)
        self.flow_on(is_over)

    @property
    def flowing(self) -> bool:
        """True while a record batch is on its way: no other input may be taken until `flow_on` has finished it."""
        return bool(self._batches)

    def flow_on(self, is_over: Callable[[], bool]) -> None:
        """Goes on with the batch that is on its way, until `is_over` says between two batches that the slice is."""
        self._batches.proceed(is_over)
        self.end_of_chunk()

    def flow_out(self) -> None:
        """Finishes the batch that is on its way: its results belong before what comes now."""
        if self._batches:
            self._batches.proceed()
            self.end_of_chunk()

    def _settle(self) -> None:
        """Makes bulk operators emit the rows that they hold back, before a control element; also within a chunk."""
        for index, operator in self._bulk:
            with self.attributed(index):
                operator.end_of_chunk()

    def end_of_chunk(self) -> None:
        """Ends a chunk: bulk operators process the rows put aside, state trims its caches, full buffers are sent."""
        for index, operator in self._bulk:
            with self.attributed(index):
                operator.end_of_chunk()
        for index, state in self._keyed_states:
            with self.attributed(index):
                state.end_of_chunk()
        for index, failed in self._bounded:
            with self.attributed(index):
                failed.check()
        for partition in self._partitions:
            partition.flush_full()

    def attributed(self, index: int) -> Attribution:
        """A context that names an operator in exceptions of calls outside generated code."""
        return Attribution(self.operators[index].name)

    # ------------------------------------------------------------------ time

    def rows_wait(self, waiting: bool) -> None:
        """Tells generators behind the head that the task takes no rows because it is blocked, or takes rows again.

        A source at the head hears it from the part of the task that polls.
        """
        for index, operator in enumerate(self.operators):
            if operator.makes_watermarks and operator is not self.source:
                with self.attributed(index):
                    cast(WatermarkMaker, operator).rows_wait(waiting)

    def seconds_until_upkeep(self) -> float | None:
        """Seconds until an operator has upkeep to do; None = none."""
        times = [t for _, operator in self._kept_up if (t := operator.seconds_until_upkeep()) is not None]
        return min(times) if times else None

    def upkeep(self) -> None:
        """Runs due upkeep of operators; emits nothing."""
        for index, operator in self._kept_up:
            due = operator.seconds_until_upkeep()
            if due is not None and due <= 0:
                with self.attributed(index):
                    operator.upkeep()

    def next_timer(self) -> int | None:
        """Epoch ms of the earliest processing-time timer of all operators; None = none."""
        times = [t for t in (operator.next_timer() for operator in self.operators) if t is not None]
        return min(times) if times else None

    def fire_timers(self, now: int, deadline: float) -> int:
        """Fires due timers, as many as fit into the slice; returns the number of results.

        While an operator makes the results of a record batch, its timers wait, and so do those of the operators
        before it.
        """
        return sum(
            self._emit_results(i, operator.fire_timers(now, deadline))
            for i, operator in enumerate(self.operators)
            if i >= self._batches.free_from
        )

    @property
    def awaits_results(self) -> bool:
        """True while the end of the input has to wait for results of the head."""
        return self.head.awaits_results

    def emit_results(self, seconds: float) -> None:
        """Waits, at most so long, until the head has results, and emits these; for threads with nothing else to do."""
        with self.attributed(0):
            self.head.await_results(seconds)
        self._emit_results(0, self.head.fire_timers(MIN_TIMESTAMP, inf))

    def end_keys(self) -> int:
        """Ends the keys of bounded input that have come; returns the number of results, which flow on.

        The caller ends the chunk.
        """
        return self._flow_results(0, self.head.end_keys())

    def fire_head_timers(self) -> int:
        """Fires the event-time timers of the head that are due; returns the number of results, which flow on.

        The caller ends the chunk.
        """
        return self._flow_results(0, self.head.fire_event_timers(inf))

    def end_history(self, time: HistoryTime) -> list[HistoryTime]:
        """Ends event time at that of all inputs, or of the source; returns that behind each operator.

        No timer of a key may be left in the operators.
        """
        watermark = time.watermark
        if watermark is not None and watermark > MIN_TIMESTAMP:
            if self.source is not None:
                self.time.behind[0].emit_watermark(watermark)
            else:
                self.time.begin(watermark)
                self.time.proceed(inf)
        before = {edge.target: edge.source for edge in self._vertex.chained_edges}
        times: list[HistoryTime] = []
        for index, operator in enumerate(self.operators):
            with self.attributed(index):
                times.append(operator.end_history(times[before[index]] if index in before else time))
        return times

    def _emit_results(self, index: int, results: TimeResults) -> int:
        count = self._flow_results(index, results)
        if count:
            self.end_of_chunk()
        return count

    def _flow_results(self, index: int, results: TimeResults) -> int:
        operator = self.operators[index]
        if operator.emits_batches:
            return self._batches.run_all(index, cast(Iterable[ArrowBatch], results))
        if operator.emits_lists:
            return self._run_lists(index, cast(Iterable[tuple[list[Any], list[int]]], results))
        side_outputs = self._compiler.side_outputs(index) if operator.emits_tagged else None
        rows = cast(Iterable[tuple[Any, int | None]], results)
        emitted = EmittedResults(self.loops, (index, operator.name), rows, side_outputs)
        emitted.flow_on()
        return emitted.count

    def _run_lists(self, index: int, results: Iterable[tuple[list[Any], list[int]]]) -> int:
        """Runs lists of rows behind an operator; returns the number of rows."""
        count = 0
        with self.attributed(index):
            for rows, timestamps in results:
                count += len(rows)
                self.loops.run(("behind", index, None), rows, timestamps)
        return count
