"""SinkWritingOperator: runs a Sink: rows to its writer, prepared results to checkpoints, commits after completion.

Owner: the task thread; a blocking sink has its own. At a checkpoint it flushes, prepares and snapshots; the
commit waits for the checkpoint's completion. Restored committables are committed before the writer is made.
Must not know formats, files or the place of checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.freezing import generate_fixed
from yarrow.container.codegen.user_functions import load_function
from yarrow.container.operators.base import Emit, declared_type, input_type_of
from yarrow.container.operators.bulk_row_operator import BulkRowOperator
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.container.operators.sinks.sink_committing import END_OF_INPUT, PendingCommits, RetrySettings
from yarrow.container.operators.sinks.writer_context import WriterContext, WriterTimers
from yarrow.datastream.connectors.base import (
    Committer,
    RefusedRowError,
    Sink,
    SinkWriter,
)
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.config.options import checkpointing
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.connector_spec import SinkWriterOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.snapshot.handles import OperatorStateMode

if TYPE_CHECKING:
    from yarrow.container.operators.columnar.conversions import RowsPutAside
    from yarrow.container.operators.failed_records import FailedRecords
    from yarrow.container.operators.limited_rate import LimitedRate

#: Names of the operator's list states; part of the format of savepoints.
COMMITTABLES = "sink-committables"
WRITER_STATE = "sink-writer"


@runs(SinkWriterOperator)
class SinkWritingOperator(BulkRowOperator, ColumnarOperator):
    """Runs writer and committer of a Sink.

    Rows are copied into the writer's list, because a writer may keep them; new rows of a source are not. Without
    checkpoints everything is committed at the end of the input. With checkpoints, the last results wait for the
    checkpoint after the end.
    """

    has_upkeep = True
    keeps_state_behind_end = True
    engine_lists: ClassVar[Mapping[str, OperatorStateMode]] = {
        COMMITTABLES: OperatorStateMode.SPLIT,
        WRITER_STATE: OperatorStateMode.SPLIT,
    }

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> Self:
        return cls(
            descriptor.name,
            cast(SinkWriterOperator, descriptor.spec),
            declared_type(input_type_of(descriptor)),
        )

    def __init__(self, name: str, spec: SinkWriterOperator, input_type: TypeInformation | None) -> None:
        super().__init__(name)
        self._blob = spec.sink
        self._type = input_type
        self._writer: SinkWriter[Any] | None = None
        self._committer: Committer | None = None
        self._commits: PendingCommits | None = None
        self._timers = WriterTimers()
        #: State for a writer that waits until the commits of the restored checkpoint succeed.
        self._for_writer: list[Any] = []
        #: False if the input had ended before the restored checkpoint.
        self._takes_rows = True
        self._rows_sent = 0
        #: Those of them that came before the last checkpoint; fault points tell how many came since.
        self._rows_prepared = 0
        self._rows_refused = 0
        #: The writer's final byte count.
        self._bytes_sent: int | None = None
        #: Bytes of rows that have taken permits.
        self._limited_bytes = 0
        #: Milliseconds of the last `write`.
        self._send_ms: float | None = None
        #: Makes letters of refused rows of columns; None = there was none.
        self._aside: RowsPutAside | None = None
        #: Prepared at the end of the input; waits for a checkpoint.
        self._last: list[Any] = []
        #: It was opened, so that limits may come.
        self._takes_shares = False
        #: None = the sink has never had a limit.
        self._rate: LimitedRate | None = None

    # ------------------------------------------------------------------ life cycle

    def open(self) -> None:
        self._register_writer_metrics()
        self._takes_shares = True
        if self.context.descriptor.spec.rate_limit.limits_something:
            self._limited()
        self._restore()
        self._make_writer()

    def _limited(self) -> LimitedRate:
        """The rate of this subtask, from its first limit on."""
        if self._rate is None:
            # Imported late: most jobs have no limit.
            from yarrow.container.operators.limited_rate import LimitedRate

            self._rate = LimitedRate(self.context)
        return self._rate

    def resume_finished(self) -> None:
        # The checkpoint after the end was complete; whether its commits were done is unknown.
        self._takes_rows = False
        self._restore()

    def _restore(self) -> None:
        environment = self.context.environment
        self._sink: Sink[Any] = load_function(self._blob, self.name)
        self._awaits_checkpoint = environment.settings.get(
            checkpointing.INTERVAL
        ) is not None and environment.settings.get(checkpointing.AFTER_TASKS_FINISH)
        state = self.context.operator_state
        self._committable_state = state.list_state(ListStateDescriptor(COMMITTABLES))
        self._writer_state = state.list_state(ListStateDescriptor(WRITER_STATE))
        self._for_writer = list(self._writer_state.get())
        self._committer = self._sink.create_committer()
        if self._committer is not None:
            self._commits = PendingCommits(
                self.name,
                environment.subtask,
                self._committer,
                environment.clock,
                RetrySettings.of(environment.settings),
            )
            self._register_metrics(self._commits)
            self._commit_restored(self._commits)

    def _commit_restored(self, commits: PendingCommits) -> None:
        restored = self.context.environment.restored.checkpoint_id
        for checkpoint_id, committable in sorted(self._committable_state.get(), key=lambda entry: entry[0]):
            commits.add(min(checkpoint_id, restored), [committable])
        # The restored checkpoint is complete; its notification may have been lost.
        if len(commits):
            commits.complete(restored)

    def _make_writer(self) -> None:
        """Makes the writer once all committables of the restored checkpoint are committed."""
        if self._commits is None or self._commits.next_attempt is None:
            restored, self._for_writer = self._for_writer, []
            context = WriterContext(self.context, self._timers, self._sink)
            self._writer = self._sink.create_writer(context, restored)
            self._limited_bytes = self._bytes_taken()

    def _register_writer_metrics(self) -> None:
        metrics = self.context.metric_group
        metrics.register("numRecordsSend", lambda: self._rows_sent)
        metrics.register("numRecordsSendErrors", lambda: self._rows_refused)
        metrics.register("numBytesSend", self._bytes_sent_so_far)
        metrics.register("currentSendTime", lambda: self._send_ms)
        metrics.register_group(self._own_metrics)

    def _own_metrics(self) -> Mapping[str, float]:
        writer = self._writer
        return {} if writer is None else writer.own_metrics()

    def _bytes_sent_so_far(self) -> int | None:
        writer = self._writer
        return self._bytes_sent if writer is None else writer.bytes_sent()

    def _register_metrics(self, commits: PendingCommits) -> None:
        metrics = self.context.metric_group
        metrics.gauge("pendingCommittables", lambda: len(commits))
        metrics.gauge("successfulCommittables", lambda: commits.successful)
        metrics.gauge("failedCommittables", lambda: commits.failed)
        metrics.gauge("retriedCommittables", lambda: commits.retried)

    def close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            self._bytes_sent = writer.bytes_sent()
            try:
                writer.close()
            finally:
                self._close_committer()
        else:
            self._close_committer()

    def _close_committer(self) -> None:
        """Ends the committer, and what it would have committed if the job had gone on here."""
        if self._committer is not None:
            committer, self._committer = self._committer, None
            try:
                if lost := [*(self._commits.abandon() if self._commits is not None else ()), *self._last]:
                    committer.abort(lost)
            finally:
                committer.close()

    # ------------------------------------------------------------------ rows

    @property
    def is_available(self) -> bool:
        return self._writer is not None

    def leave_out_by(self, failed: FailedRecords) -> None:
        # The loop only collects rows: the writer tells which of them it refuses.
        failed.inputs = ()
        failed.fatal = (MemoryError,)
        super().leave_out_by(failed)

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        shares_rows = self.context.environment.object_reuse or self.gets_new_rows
        fixed = generate_fixed(code, value, self._type, shares_rows, gives_away=True)
        super().generate(code, fixed, timestamp, emit)

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        if self.failed is not None:
            self._take_some(self.failed, rows, timestamps)
            return
        assert self._writer is not None
        with self._sending(len(rows)):
            self._writer.write(rows, timestamps)

    def _take_some(self, failed: FailedRecords, rows: list[Any], timestamps: list[int | None] | None) -> None:
        """Takes the rows of one chunk, but those that the writer refuses."""
        assert self._writer is not None
        failed.seen[0] += len(rows)
        while rows:
            try:
                with self._sending(len(rows)):
                    self._writer.write(rows, timestamps)
                return
            except RefusedRowError as refused:
                index = refused.index
                stamp = None if timestamps is None else timestamps[index]
                failed.put_aside(refused.cause, 0, rows[index], stamp)
                rows = rows[index + 1 :]
                timestamps = None if timestamps is None else timestamps[index + 1 :]

    def process_batch(self, batch: ArrowBatch) -> tuple[()]:
        assert self._writer is not None
        if self.failed is not None:
            self._take_some_columns(self.failed, batch)
            return ()
        with self._sending(len(batch)):
            self._writer.write_batch(batch.batch)
        return ()

    def _take_some_columns(self, failed: FailedRecords, batch: ArrowBatch) -> None:
        """Takes the rows of a batch, but those that the writer refuses."""
        assert self._writer is not None
        failed.seen[0] += len(batch)
        while len(batch):
            try:
                with self._sending(len(batch)):
                    self._writer.write_batch(batch.batch)
                return
            except RefusedRowError as refused:
                index = refused.index
                self._put_aside(failed, refused.cause, batch.sliced(index, index + 1))
                batch = batch.sliced(index + 1, len(batch))

    def _put_aside(self, failed: FailedRecords, error: Exception, row: ArrowBatch) -> None:
        """Makes a letter of a batch of one row."""
        if self._aside is None:
            # Imported late: most sinks refuse no columns.
            from yarrow.container.operators.columnar.conversions import RowsPutAside

            self._aside = RowsPutAside(self.name)
        self._aside.put_aside(failed, error, row)

    @contextmanager
    def _sending(self, rows: int) -> Iterator[None]:
        """Counts and times one call of the writer."""
        started = perf_counter()
        try:
            yield
        except RefusedRowError as refused:
            self._rows_sent += refused.index
            self._rows_refused += 1
            self._use_permits(refused.index + 1)
            raise
        except BaseException:
            self._rows_refused += rows
            raise
        self._rows_sent += rows
        self._send_ms = 1000 * (perf_counter() - started)
        self._use_permits(rows)

    def _bytes_taken(self) -> int:
        """The bytes of rows that the writer has taken; 0 where no limit counts them."""
        if self._rate is None or self._writer is None or not self._rate.counts_bytes:
            return 0
        return self._writer.bytes_taken()

    def _use_permits(self, rows: int) -> None:
        """Takes the permits of rows that the writer has taken or refused, and of bytes since the last call."""
        rate = self._rate
        if rate is not None and rate.limits_something:
            before, self._limited_bytes = self._limited_bytes, self._bytes_taken()
            rate.use(rows, self._limited_bytes - before)

    @property
    def permitted_rows(self) -> int | None:
        return None if self._rate is None else self._rate.permitted_rows

    def take_share(self, share: RateLimit) -> None:
        if self._takes_shares:
            rate = self._limited()
            counted = rate.counts_bytes
            rate.take_share(share)
            if not counted:
                # Rows from before the limit take no permits.
                self._limited_bytes = self._bytes_taken()

    # ------------------------------------------------------------------ checkpoints

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        if self._writer is None:
            return
        where = {
            "checkpoint_id": checkpoint_id,
            "subtask": self.context.environment.subtask,
            "rows": self._rows_sent - self._rows_prepared,
        }
        self._rows_prepared = self._rows_sent
        fault_points.reach("sink.before-prepare", **where)
        self._writer.flush(False)
        prepared, self._last = [*self._last, *self._writer.prepare_commit()], []
        if self._commits is not None:
            self._commits.add(checkpoint_id, prepared)
        fault_points.reach("sink.after-prepare", **where)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._writer_state.update(
            self._for_writer if self._writer is None else self._writer.snapshot_state(checkpoint_id)
        )
        if self._commits is not None:
            self._committable_state.update(self._commits.entries())
            self._commits.snapshotted(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._commits is not None:
            self._commits.complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if self._commits is not None:
            self._commits.aborted(checkpoint_id)

    def seconds_until_upkeep(self) -> float | None:
        clock = self.context.environment.clock
        due: list[float] = []
        if self._commits_without_checkpoint:
            due.append(0.0)
        if self._commits is not None and self._commits.next_attempt is not None:
            due.append(self._commits.next_attempt - clock.monotonic())
        if (first := self._timers.first) is not None:
            due.append((first - clock.epoch_ms()) / 1000)
        if self._rate is not None and self._rate.limits_something:
            due += self._rate.seconds_due
        return min(due) if due else None

    def upkeep(self) -> None:
        clock = self.context.environment.clock
        commits = self._commits
        if commits is not None and self._commits_without_checkpoint:
            commits.add(END_OF_INPUT, self._last)
            self._last = []
            commits.complete(END_OF_INPUT)
        if (
            commits is not None
            and commits.next_attempt is not None
            and commits.next_attempt <= clock.monotonic()
        ):
            commits.attempt()
        if self._writer is None and self._takes_rows:
            self._make_writer()
        self._timers.fire(clock.epoch_ms())
        if self._rate is not None:
            self._rate.look()

    # ------------------------------------------------------------------ the end

    def finish(self) -> None:
        if self._writer is None:
            return
        fault_points.reach("sink.before-finish", subtask=self.context.environment.subtask)
        self._writer.flush(True)
        prepared = self._writer.prepare_commit()
        if self._commits is not None:
            self._last += prepared
        if self._rate is not None:
            self._rate.ended()
        fault_points.reach("sink.after-finish", subtask=self.context.environment.subtask)

    @property
    def _commits_without_checkpoint(self) -> bool:
        """True if the last results wait and no checkpoint will come; those of bounded input leave with the task.

        Called after `finish` only: if a savepoint stops the job, its cut follows at once and takes the last
        results.
        """
        if self.context.environment.bounded:
            return False
        return bool(self._last) and not self._awaits_checkpoint

    def take_committables(self) -> list[Any]:
        taken, self._last = self._last, []
        return taken

    @property
    def is_drained(self) -> bool:
        return not self._last and (self._commits is None or len(self._commits) == 0)
