"""One subtask at run time: takes input slice by slice, runs the chain, flushes its outputs.

Owner: the task thread that calls `step`; `post` and `wake` may be called from any thread. A step never blocks and never
takes input without output credit: barriers, timers, cancel and other mails wait for one slice at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from yarrow.container.network.channel_recording import ChannelOrigin, ChannelRecording
from yarrow.container.network.input_channel import ChannelFailedError
from yarrow.container.network.input_gate import GateChannel, InputGate
from yarrow.container.network.partition import Partition
from yarrow.container.operators.base import TaskEnvironment
from yarrow.container.task.checkpointing.checkpoint_course import CheckpointCourse
from yarrow.container.task.checkpointing.records_in_flight import InFlightRecorder
from yarrow.container.task.checkpointing.recovered_records import RecoveredRecords
from yarrow.container.task.checkpointing.subtask_checkpoint_coordinator import (
    NoSnapshots,
    SnapshotReceiver,
    SubtaskCheckpointCoordinator,
)
from yarrow.container.task.failure import failure_cause
from yarrow.container.task.latency import LatencyTracker
from yarrow.container.task.mails import ChunkAtHand, MailDelays
from yarrow.container.task.operator_chain import OperatorChain
from yarrow.container.task.slice_sizer import SliceSizer
from yarrow.container.task.task_stage import TaskStage
from yarrow.container.task.time_accounting import Phase, TimeAccounting
from yarrow.datastream.connectors.base import NothingAvailable, SourceRecords
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.config.options import taskmanager
from yarrow.runtime.data.elements import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    ArrowBatch,
    Batch,
    CheckpointBarrier,
    ControlElement,
    EndOfData,
    LatencyMarker,
    RowBatch,
    StreamElement,
    Watermark,
    WatermarkStatus,
    stamps_column,
)
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause

#: A task whose peer broke off waits this long for the JobMaster's verdict (the peer's own failure is the cause).
VERDICT_SECONDS = 5.0


class TaskListener(Protocol):
    """Learns of state changes; called on the task's thread."""

    def task_state_changed(
        self, task: StreamTask, state: ExecutionState, cause: FailureCause | None
    ) -> None: ...

    def end_of_data_reached(self, task: StreamTask) -> None:
        """Everything was put out; the task waits for somebody outside, as a rule for a checkpoint."""
        ...


class StreamTask:
    """A subtask; see the module's docstring."""

    def __init__(
        self,
        environment: TaskEnvironment,
        chain: OperatorChain,
        gate: InputGate,
        partitions: Sequence[Partition],
        listener: TaskListener,
        *,
        slice_seconds: float,
        buffer_timeout_ms: int,
        wake_thread: Callable[[], None],
        latency: LatencyTracker,
        snapshots: SnapshotReceiver | None = None,
        recover: Callable[[], RecoveredRecords] = RecoveredRecords,
    ) -> None:
        #: Called with True before and False after each slice: the worker notes whose code runs.
        self.on_slice: Callable[[bool], None] | None = None
        self.environment = environment
        self.chain = chain
        self.gate = gate
        self.partitions = tuple(partitions)
        self.stage = TaskStage.CREATED
        self._listener = listener
        self._slice_seconds = slice_seconds
        self._buffer_timeout = None if buffer_timeout_ms < 0 else buffer_timeout_ms / 1000
        self._wake_thread = wake_thread
        self._mailbox: deque[Callable[[], None]] = deque()
        #: The last step ran mails only.
        self._gave_way = False
        self._sizer = SliceSizer(slice_seconds)
        self.time = TimeAccounting(perf_counter())
        #: The rest of the batch at hand: (input index, rows, timestamps, position, where it came from).
        self._batch: tuple[int, list[Any], list[int | None] | None, int, ChannelOrigin | None] | None = None
        #: Records in flight of the restored checkpoint, which come before all others; read when the task opens.
        self._recover = recover
        self._recovered = RecoveredRecords()
        self._flush_at: float | None = None
        self._poll_at: float | None = None
        self.woken = True
        self._verdict_at = 0.0
        self._verdict: BaseException | None = None
        #: It had ended before the checkpoint that was restored: see `skip`.
        self.skipped = False
        #: `finish` of the operators was called; only the last checkpoint is still to come.
        self.finished = False
        #: The listener was told that the task waits for the checkpoint behind its end.
        self._end_announced = False
        #: The rows that a generated loop works on.
        self.chunk = ChunkAtHand()
        #: True while outputs lack credit: until it comes there is nothing to do.
        self._blocked = False
        self._latency = latency
        self._markers_sent = 0
        self._idle = False
        self.output_watermark = MIN_TIMESTAMP
        #: True while event-time timers are left that the watermark made due.
        self._firing = False
        #: End of the present slice.
        self._deadline = 0.0
        self.records_in = 0
        self.mail_delays = MailDelays()
        self.checkpoints = SubtaskCheckpointCoordinator(
            environment,
            chain,
            snapshots or NoSnapshots(),
            broadcast=self.broadcast,
            emit=self._emit_source_records,
        )
        self.in_flight = InFlightRecorder(
            gate,
            self.partitions,
            environment.clock,
            4 * environment.settings.get(taskmanager.NETWORK_TASK_POOL_SIZE).bytes,
        )
        self._course = CheckpointCourse(self)
        #: A barrier that may overtake waits in a queue; set by any thread, for what came before the task, too.
        self._announced = True
        for entry in gate.channels:
            entry.channel.on_announced = self._on_announced

    # ------------------------------------------------------------------ any thread

    def post(self, mail: Callable[[], None]) -> None:
        """Runs `mail` on the task's thread between slices."""
        queued = perf_counter()

        def run() -> None:
            self.mail_delays.add(perf_counter() - queued)
            mail()

        self._mailbox.append(run)
        self.chunk.cut()
        self._wake_thread()

    def wake(self) -> None:
        """Something changed that the task waits for."""
        self.woken = True
        self._wake_thread()

    def _on_announced(self) -> None:
        """Any thread: the chunk at hand is cut, as for a mail; the channel wakes the task."""
        self._announced = True
        self.chunk.cut()

    @property
    def mails_waiting(self) -> int:
        """Mails not run yet."""
        return len(self._mailbox)

    # ------------------------------------------------------------------ life cycle

    def start(self) -> None:
        """Opens the chain; a failure ends the task."""
        self.initialize()
        self.open()

    def initialize(self) -> None:
        """Tells that the task is being restored."""
        self._listener.task_state_changed(self, ExecutionState.INITIALIZING, None)

    def open(self) -> None:
        """Opens the chain, whose state has been fetched; a failure ends the task, one that has ended stays so."""
        if self.stage is not TaskStage.CREATED:
            return
        try:
            self.chain.open()
            self._recovered = self._recover()
        except BaseException as error:  # user code runs in open
            self._fail(error)
            return
        if self.chain.head.context.state.reads_ahead:
            self._sizer.read_ahead()
        self.stage = TaskStage.RUNNING
        self._listener.task_state_changed(self, ExecutionState.RUNNING, None)

    def skip(self, *, beside_enumerator: bool = False) -> None:
        """In place of `open`, where the task had ended before the checkpoint that its job goes on from: its consumers
        learn that nothing comes, what its sinks have not committed is committed, and it ends. `beside_enumerator`:
        a split enumerator lives with it, which other readers need until they have ended.
        """
        if self.stage is not TaskStage.CREATED:
            return
        self.skipped = self.finished = True
        try:
            self.chain.resume_finished()
        except BaseException as error:  # commits are user code
            self._fail(error)
            return
        self._listener.task_state_changed(self, ExecutionState.RUNNING, None)
        source = self.chain.source
        if source is not None:
            source.skipped(self.environment, self.chain.head_id, beside_enumerator=beside_enumerator)
        self.broadcast(Watermark(MAX_TIMESTAMP))
        self.broadcast(EndOfData())
        self.stage = TaskStage.FINISHING

    def cancel(self) -> None:
        """Ends the task as CANCELED."""
        if self.stage is not TaskStage.ENDED:
            source = self.chain.source
            if source is not None:
                source.cancel()
            self._end(ExecutionState.CANCELED, None, "the task was cancelled")

    def fail(self, error: BaseException) -> None:
        """Ends the task as FAILED for a reason from outside its own step."""
        if self.stage is not TaskStage.ENDED:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        env = self.environment
        where = f"task '{env.task_name}' (subtask {env.subtask + 1}/{env.parallelism})"
        cause = failure_cause(error, where)
        self._end(ExecutionState.FAILED, cause, f"task '{env.task_name}' failed: {cause.message}")

    def _end(self, state: ExecutionState, cause: FailureCause | None, reason: str) -> None:
        self.stage = TaskStage.ENDED
        self.in_flight.drop()
        errors = self.chain.close()
        if state is ExecutionState.FINISHED and errors:
            state = ExecutionState.FAILED
            cause = failure_cause(errors[0], f"closing task '{self.environment.task_name}'")
            reason = f"task '{self.environment.task_name}' failed to close"
        if state is not ExecutionState.FINISHED:
            for partition in self.partitions:
                partition.close(reason)
        self.gate.close()
        self._mailbox.clear()
        self._listener.task_state_changed(self, state, cause)

    # ------------------------------------------------------------------ the step

    def step(self) -> bool:
        """Does one slice of work; True when it may be called again at once."""
        started = perf_counter()
        self.time.enter(Phase.BUSY, started)
        if self.on_slice is not None:
            self.on_slice(True)
        try:
            progressed, phase = self._step(started)
        except ChannelFailedError as error:
            if error.lost_result:
                # Its producer has finished long ago and reports nothing: who could not read says so.
                self._fail(error)
            else:
                self._await_verdict(error)
            progressed, phase = False, Phase.IDLE
        except BaseException as error:  # user code may raise anything
            self._fail(error)
            progressed, phase = True, Phase.IDLE
        if self.on_slice is not None:
            self.on_slice(False)
        self.time.enter(phase, perf_counter())
        return progressed

    def _step(self, now: float) -> tuple[bool, Phase]:
        had_mails = bool(self._mailbox)
        while self._mailbox and self.stage is not TaskStage.ENDED:
            self._mailbox.popleft()()
        if had_mails and not self._gave_way:
            # What the mails sent on (a barrier) reaches the tasks behind before another slice of this one; a flood
            # of mails does not keep the task from its slices.
            self._gave_way = True
            return True, Phase.BUSY
        self._gave_way = False
        if self.stage in (TaskStage.RUNNING, TaskStage.FINISHING):
            self.chain.upkeep()
            if not self.skipped and self._course.look():
                return True, Phase.BUSY
        if self.stage is TaskStage.RUNNING:
            return self._run_slice(now)
        if self.stage is TaskStage.FINISHING:
            return self._drain()
        if self.stage is TaskStage.SUSPENDED:
            self._drain_overdrafts()
        elif (
            self.stage is TaskStage.AWAITING_VERDICT
            and self.environment.clock.monotonic() >= self._verdict_at
        ):
            assert self._verdict is not None
            self._fail(self._verdict)
        return False, Phase.IDLE

    def _run_slice(self, now: float) -> tuple[bool, Phase]:
        self._blocked = not self._outputs_available()
        if self._blocked:
            self._flush_if_due()
            return False, Phase.BACK_PRESSURED if self._has_input() else Phase.IDLE
        self._deadline = now + self._slice_seconds
        fired = self._fire_timers(self._deadline)
        if self._firing:
            if self._continue_watermark() and self.gate.all_ended:
                self._input_ended()
            self._flush_if_due()
            return True, Phase.BUSY
        if self.chain.source is not None:
            self._send_latency_marker()
            worked = self._take_source(now)
        else:
            worked = self._take_input(now)
        self._flush_if_due()
        return worked or fired, Phase.BUSY if worked else Phase.IDLE

    def _outputs_available(self) -> bool:
        available = self.chain.is_available
        for partition in self.partitions:
            if not partition.is_available and not (partition.drain_overdraft() and partition.is_available):
                available = False
        return available

    def _has_input(self) -> bool:
        return (
            self.chain.source is not None
            or self._batch is not None
            or bool(self._recovered)
            or self.gate.has_data
        )

    # ---- sources

    def _take_source(self, now: float) -> bool:
        source = self.chain.source
        assert source is not None
        if not self.woken and self._poll_at is not None and now < self._poll_at:
            return False
        self.woken = False
        self._poll_at = None
        deadline = now + self._slice_seconds
        chunk_started = now
        while True:
            with self.chain.attributed(0):
                records = source.poll(self._sizer.rows)
            if not isinstance(records, SourceRecords):
                break
            self._emit_source_records(records)
            finished = perf_counter()
            self._sizer.measured(len(records.rows), finished - chunk_started)
            chunk_started = finished
            if finished >= deadline or self._mailbox:
                self.woken = True
                return True
        if records is None:
            self.chain.time.end()
            self._input_ended()
            return True
        assert isinstance(records, NothingAvailable)
        if records.wait_seconds is not None:
            self._poll_at = perf_counter() + records.wait_seconds
        else:
            self._poll_at = float("inf")
        return chunk_started != now

    def _emit_source_records(self, records: SourceRecords) -> None:
        source = self.chain.source
        assert source is not None
        parts = iter(source.timed(records))
        while True:
            # Between two parts the source sends a watermark.
            with self.chain.attributed(0):
                part = next(parts, None)
            if part is None:
                return
            rows = part.rows
            self.records_in += len(rows)
            self.chain.run_source_side(part.side)
            if isinstance(rows, Sequence):
                self.chain.run_source_rows(rows, part.timestamps)
            else:
                self.chain.run_source_batch(ArrowBatch(rows, stamps_column(part.timestamps)))

    # ---- inputs

    def _take_input(self, now: float) -> bool:
        deadline = now + self._slice_seconds
        worked = False
        while self.stage is TaskStage.RUNNING and not self._firing:
            if self._batch is not None:
                self._run_chunk()
            elif self._recovered:
                self._take_recovered()
            else:
                element = self.gate.poll()
                if element is None:
                    return worked
                self._on_element(*element)
            worked = True
            if self._mailbox or perf_counter() >= deadline:
                return True
        return worked

    def _take_recovered(self) -> None:
        found = self._recovered.take()
        if found is not None:
            self._on_batch(found.input_index, found.batch, found.origin)

    def _on_element(self, position: int, entry: GateChannel, element: StreamElement) -> None:
        if isinstance(element, RowBatch | ArrowBatch):
            self._on_batch(entry.input_index, element, entry.channel.origin)
        else:
            self._on_control(position, entry, element)

    def _on_batch(self, input_index: int, batch: Batch, origin: ChannelOrigin | None) -> None:
        if isinstance(batch, RowBatch):
            self._batch = (input_index, batch.rows, batch.timestamps, 0, origin)
            self._run_chunk()
        else:
            self.records_in += len(batch)
            self.chain.run_batch(batch)

    def at_hand(self, checkpoint_id: int) -> list[ChannelRecording]:
        """What the task has taken and not run yet, as records in flight of a checkpoint, in order."""
        found: list[ChannelRecording] = []
        if self._batch is not None:
            _, rows, timestamps, position, origin = self._batch
            if origin is not None:
                rest = ChannelRecording(origin, checkpoint_id)
                rest.add(RowBatch(rows[position:], None if timestamps is None else timestamps[position:]))
                found.append(rest)
        found += self._recovered.remaining(checkpoint_id)
        return found

    def take_announcements(self) -> bool:
        """Whether a barrier may have been announced since the last call."""
        announced, self._announced = self._announced, False
        return announced

    def _run_chunk(self) -> None:
        assert self._batch is not None
        input_index, rows, timestamps, position, origin = self._batch
        end = min(position + self._sizer.rows, len(rows))
        if position == 0 and end == len(rows):
            chunk, stamps = rows, timestamps
        else:
            chunk = rows[position:end]
            stamps = None if timestamps is None else timestamps[position:end]
        self._batch = None
        started = perf_counter()
        self.chain.run_rows(input_index, self.chunk.begin(chunk), None if stamps is None else iter(stamps))
        end -= self.chunk.end()
        done = end - position
        if end < len(rows):
            self._batch = (input_index, rows, timestamps, end, origin)
        self.records_in += done
        self.chain.counts.records_in += done
        self._sizer.measured(done, perf_counter() - started)

    def _on_control(self, position: int, entry: GateChannel, element: ControlElement) -> None:
        valve = self.gate.valves[entry.input_index]
        if isinstance(element, Watermark):
            valve.advance(entry, element.timestamp)
            self._advance_watermark()
        elif isinstance(element, WatermarkStatus):
            valve.set_idle(entry, element.idle)
            self._advance_watermark()
        elif isinstance(element, CheckpointBarrier):
            self._course.cut(self.gate.barriers.barrier(position, element))
        elif isinstance(element, LatencyMarker):
            self._on_latency_marker(element)
        elif isinstance(element, EndOfData):
            self.gate.end_channel(entry)
            valve.channel_ended()
            self._advance_watermark()
            if not self.gate.all_ended:
                self._course.cut(self.gate.barriers.channel_ended())
            elif not self._firing:
                self._input_ended()

    def _advance_watermark(self) -> None:
        """Hands on what a change at the inputs means for the outputs: active before, idle after the watermark."""
        if self._idle and not self.gate.idle:
            self._idle = False
            self.chain.time.set_input_idle(False)
        risen = self.gate.combined_watermark
        if risen > self.output_watermark:
            self.output_watermark = risen
            self.chain.time.begin(risen)
        self._continue_watermark()

    def _continue_watermark(self) -> bool:
        """Fires what the watermark made due, as far as the slice goes; no input is taken until all has fired (True)."""
        self._firing = not self.chain.time.proceed(self._deadline)
        if self._firing:
            return False
        if self.gate.idle and not self._idle:
            self._idle = True
            self.chain.time.set_input_idle(True)
        return True

    def _on_latency_marker(self, marker: LatencyMarker) -> None:
        self._latency.arrived(marker)
        self._forward_marker(marker)

    def _send_latency_marker(self) -> None:
        marker = self._latency.due()
        if marker is not None:
            self._forward_marker(marker)

    def _forward_marker(self, marker: LatencyMarker) -> None:
        """On one channel of each output, in turn."""
        for partition in self.partitions:
            partition.flush_all()
            partition.channels[self._markers_sent % len(partition.channels)].send_control(marker)
        self._markers_sent += 1

    def broadcast(self, element: ControlElement) -> None:
        """Sends a control element behind everything emitted so far, on all outputs."""
        for partition in self.partitions:
            partition.broadcast_control(element)

    # ---- checkpoints

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Begins a checkpoint here: at a source, or where no input comes from a running task any more."""
        self._course.trigger(barrier)

    def announce_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """A checkpoint has begun at other tasks of this worker: its barriers will come."""
        if not self.skipped:
            self._course.checkpoint_announced(barrier)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """The checkpoint is complete, and so are all before it."""
        self._course.completed(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will never be complete."""
        if not self.skipped:
            self._course.aborted(checkpoint_id)

    def finish_operators(self) -> None:
        """Has operators write what they keep back, once."""
        if not self.finished:
            self.finished = True
            self.chain.finish()

    @property
    def threads_left(self) -> tuple[str, ...]:
        """Threads of user code that a task which has ended has left behind."""
        source = self.chain.source
        return (f"source {source.name}",) if source is not None and source.has_live_thread else ()

    # ---- timers, flushing, end

    def _fire_timers(self, deadline: float) -> bool:
        first = self.chain.next_timer()
        if first is None:
            return False
        now = self.environment.clock.epoch_ms()
        if first > now:
            return False
        self.chain.fire_timers(now, deadline)
        return True

    def _flush_if_due(self) -> None:
        if self._buffer_timeout is None:
            return
        if not any(partition.has_buffered for partition in self.partitions):
            self._flush_at = None
            return
        now = perf_counter()
        if self._flush_at is None:
            self._flush_at = now + self._buffer_timeout
        if now >= self._flush_at:
            self._flush_at = None
            for partition in self.partitions:
                partition.flush_all()

    def _input_ended(self) -> None:
        self.finish_operators()
        self.broadcast(EndOfData())
        self._flush_at = None
        self.stage = TaskStage.FINISHING
        # Behind the end, so that a checkpoint that begins with it includes it.
        self._course.cut(self.gate.barriers.channel_ended())

    def _drain(self) -> tuple[bool, Phase]:
        if not self._drain_overdrafts():
            return False, Phase.BACK_PRESSURED
        # One that is skipped is told of checkpoints by the JobMaster alone.
        moved = not self.skipped and self._take_barriers()
        if self.stage is not TaskStage.FINISHING:
            return True, Phase.IDLE
        if not self._is_drained:
            if not self._end_announced:
                self._end_announced = True
                self._listener.end_of_data_reached(self)
            return moved, Phase.IDLE
        if self.checkpoints.unsettled:
            # The JobMaster is to have the parts of a task before it learns that the task has ended.
            return moved, Phase.IDLE
        self._end(ExecutionState.FINISHED, None, "")
        return True, Phase.IDLE

    @property
    def _is_drained(self) -> bool:
        """False while somebody outside is waited for."""
        source = self.chain.source
        return self.chain.is_drained and not (self.skipped and source is not None and source.awaits_readers)

    def _drain_overdrafts(self) -> bool:
        drained = True
        for partition in self.partitions:
            if not partition.drain_overdraft():
                drained = False
        return drained

    def _take_barriers(self) -> bool:
        """Behind the end of data a channel still brings the barriers of tasks that wait for their last checkpoint."""
        moved = False
        while self.stage is TaskStage.FINISHING:
            element = self.gate.poll_ended()
            if element is None:
                return moved
            moved = True
            if isinstance(element[2], CheckpointBarrier):
                self._course.cut(self.gate.barriers.barrier(element[0], element[2]))
        return moved

    def _await_verdict(self, error: BaseException) -> None:
        self.stage = TaskStage.AWAITING_VERDICT
        self._verdict = error
        self._verdict_at = self.environment.clock.monotonic() + VERDICT_SECONDS

    def seconds_until_due(self, now: float) -> float | None:
        """How long the thread may sleep as far as this task goes; None = until woken."""
        due: list[float] = []
        if self.stage is TaskStage.AWAITING_VERDICT:
            due.append(self._verdict_at - self.environment.clock.monotonic())
        if self.stage in (TaskStage.RUNNING, TaskStage.FINISHING):
            upkeep = self.chain.seconds_until_upkeep()
            if upkeep is not None:
                due.append(upkeep)
            timeout = self._course.seconds_until_due()
            if timeout is not None:
                due.append(timeout)
        if self.stage is TaskStage.RUNNING:
            if self._flush_at is not None:
                due.append(self._flush_at - now)
            # Nothing of the rest is done without credit, and its arrival wakes the task.
            if not self._blocked:
                due += self._dues_of_operators(now)
        return max(0.0, min(due)) if due else None

    def _dues_of_operators(self, now: float) -> list[float]:
        due: list[float] = []
        if self._poll_at is not None and self._poll_at != float("inf"):
            due.append(self._poll_at - now)
        timer = self.chain.next_timer()
        if timer is not None:
            due.append((timer - self.environment.clock.epoch_ms()) / 1000)
        marker = self._latency.seconds_until_due() if self.chain.source is not None else None
        if marker is not None:
            due.append(marker)
        return due
