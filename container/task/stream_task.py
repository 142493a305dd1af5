"""StreamTask: one running subtask. It takes input slice by slice, runs the chain, and flushes its outputs.

Owner: the task thread that calls `step`; any thread may call `post` and `wake`. A step never blocks and never
takes input without output credit: barriers, timers, cancels and other mails wait for one slice at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.metrics.time_accounting import Phase, TimeAccounting
from yarrow.container.network.barrier_handler import ReadyCheckpoint
from yarrow.container.network.input_gate import InputGate
from yarrow.container.operators.base import TaskEnvironment
from yarrow.container.protocol.errors import ChannelFailedError
from yarrow.container.protocol.failure import failure_cause
from yarrow.container.task.checkpoint_course import CheckpointCourse
from yarrow.container.task.checkpointing.records_in_flight import InFlightRecorder
from yarrow.container.task.checkpointing.recovered_records import RecoveredRecords
from yarrow.container.task.checkpointing.subtask_checkpoint_coordinator import (
    SnapshotReceiver,
    SubtaskCheckpointCoordinator,
)
from yarrow.container.task.latency import LatencyTracker
from yarrow.container.task.source_reading import SourceReading
from yarrow.container.task.task_inputs import TaskInputs
from yarrow.container.task.task_life import TaskLife, TaskStage
from yarrow.container.task.task_outputs import TaskOutputs
from yarrow.container.task.task_slices import TaskSlices
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.config.options import taskmanager
from yarrow.runtime.data.elements import (
    MAX_TIMESTAMP,
    CheckpointBarrier,
    ControlElement,
    EndOfData,
    Watermark,
)
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause

if TYPE_CHECKING:
    from yarrow.container.task.loop_markers import LoopOfTask

#: Seconds that a task with a broken channel waits for the JobMaster's verdict: the peer's own failure is the
#: cause.
VERDICT_SECONDS = 5.0


class TaskListener(Protocol):
    """Hears of state changes, on the task's thread."""

    def task_state_changed(
        self, task: StreamTask, state: ExecutionState, cause: FailureCause | None
    ) -> None: ...

    def end_of_data_reached(self, task: StreamTask) -> None:
        """Takes note that the task has emitted everything and only waits, usually for a checkpoint."""
        ...


class TaskHost(msgspec.Struct, frozen=True):
    """The services that a task gets from its worker."""

    listener: TaskListener
    #: Makes the task's thread look at its tasks. Any thread.
    wake_thread: Callable[[], None]
    #: Takes the task's frozen state.
    snapshots: SnapshotReceiver
    #: Called with True before and False after each slice: the worker notes whose code runs.
    on_slice: Callable[[bool], None] | None = None


class StreamTask:
    """A running subtask; see the module's docstring."""

    def __init__(
        self,
        environment: TaskEnvironment,
        chain: OperatorChain,
        gate: InputGate,
        outputs: TaskOutputs,
        host: TaskHost,
        *,
        slice_seconds: float,
        latency: LatencyTracker,
        recover: Callable[[], RecoveredRecords] = RecoveredRecords,
    ) -> None:
        self._on_slice = host.on_slice
        self.environment = environment
        self.chain = chain
        self.gate = gate
        self.outputs = outputs
        self.partitions = outputs.partitions
        self.life = TaskLife(environment.task_name, environment.clock)
        self.slices = TaskSlices(slice_seconds)
        self._mailbox = self.slices.mailbox
        self.mail_delays = self._mailbox.delays
        self._listener = host.listener
        self._wake_thread = host.wake_thread
        #: The last step ran only mails.
        self._gave_way = False
        #: All inputs have ended, and results of the head are still to come.
        self._awaits_results = False
        #: Times at which the restore of operators began and at which they ran (perf_counter); None before.
        self.initializing_since: float | None = None
        self.running_since: float | None = None
        self.time = TimeAccounting(perf_counter())
        #: Returns the restored records in flight when the task opens.
        self._recover = recover
        #: When the present slice began (perf_counter); None = none is under way.
        self.slice_since: float | None = None
        self._verdict_at = 0.0
        self._verdict: BaseException | None = None
        #: Shares of rate limits that came before the task was open.
        self._early_shares: dict[OperatorID, RateLimit] = {}
        #: The listener knows that the task waits for the checkpoint after its end.
        self._end_announced = False
        self.inputs = TaskInputs(
            self.life,
            chain,
            gate,
            self.outputs,
            self.slices,
            latency,
            cut=self._cut,
            ended=self.input_ended,
        )
        self.reading = SourceReading(
            self.life, chain, self.outputs, self.slices, latency, ended=self.input_ended
        )
        self.checkpoints = SubtaskCheckpointCoordinator(
            environment,
            chain,
            host.snapshots,
            broadcast=self.outputs.broadcast,
            before_cut=self.reading.before_cut,
        )
        self.in_flight = InFlightRecorder(
            gate,
            self.partitions,
            environment.clock,
            4 * environment.settings.get(taskmanager.NETWORK_TASK_POOL_SIZE).bytes,
        )
        self.course = CheckpointCourse(
            self.life,
            chain,
            gate,
            self.inputs,
            self.reading,
            self.outputs,
            self.checkpoints,
            self.in_flight,
        )

    def join_loops(self, loops: Sequence[LoopOfTask]) -> None:
        """Makes the task carry the markers of these loops; called once, before it opens."""
        # Imported late: most jobs have no loop.
        from yarrow.container.task.loop_markers import LoopMarkers

        self.inputs.loops = LoopMarkers(loops, self.chain, self.gate, self.outputs)

    # ------------------------------------------------------------------ any thread

    def post(self, mail: Callable[[], None]) -> None:
        """Runs `mail` on the task's thread between slices."""
        self._mailbox.put(mail)
        self._wake_thread()

    def wake(self) -> None:
        """Notes that something for which the task waits has changed."""
        self.reading.wake()
        self._wake_thread()

    @property
    def mails_waiting(self) -> int:
        """Number of mails that have not run yet."""
        return len(self._mailbox)

    @property
    def records_in(self) -> int:
        """Rows that the source has emitted, or that came from the inputs."""
        return self.reading.records_in + self.inputs.records_in

    # ------------------------------------------------------------------ life cycle

    def start(self) -> None:
        """Opens the chain; a failure ends the task."""
        self.initialize()
        self.open()

    def initialize(self) -> None:
        """Reports that the task is being restored."""
        self.initializing_since = perf_counter()
        self._listener.task_state_changed(self, ExecutionState.INITIALIZING, None)

    def open(self) -> None:
        """Opens the chain, whose state has been fetched. A failure ends the task; an ended task stays ended."""
        if self.life.stage is not TaskStage.CREATED:
            return
        try:
            self.chain.open()
            self.inputs.recovered = self._recover()
            if self.chain.source is not None:
                self.reading.recover()
        except BaseException as error:  # user code runs in open
            self._fail(error)
            return
        if self.chain.head.context.state.reads_ahead:
            self.slices.sizer.read_ahead()
        if self.chain.head.context.state.read_ahead_rows:
            self.inputs.read_ahead()
        for operator_id, share in self._early_shares.items():
            self.chain.take_share(operator_id, share)
        self.life.enter(TaskStage.RUNNING)
        self.running_since = perf_counter()
        self._listener.task_state_changed(self, ExecutionState.RUNNING, None)

    def skip(self, *, beside_enumerator: bool = False) -> None:
        """Starts a task that had ended before the restored checkpoint.

        It replaces `open`. Consumers hear that no row comes, sinks finish open commits, and the task ends.
        With `beside_enumerator`, a split enumerator lives with the task, until the other readers have ended.
        """
        if self.life.stage is not TaskStage.CREATED:
            return
        self.life.skipped = self.life.finished = True
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
        self.life.enter(TaskStage.FINISHING)

    def cancel(self) -> None:
        """Ends the task as CANCELED."""
        if self.life.stage is not TaskStage.ENDED:
            source = self.chain.source
            if source is not None:
                source.cancel()
            self._end(ExecutionState.CANCELED, None, "the task was cancelled")

    def fail(self, error: BaseException) -> None:
        """Ends the task as FAILED for a reason outside its own step."""
        if self.life.stage is not TaskStage.ENDED:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        env = self.environment
        where = f"task '{env.task_name}' (subtask {env.subtask + 1}/{env.parallelism})"
        cause = failure_cause(error, where)
        self._end(ExecutionState.FAILED, cause, f"task '{env.task_name}' failed: {cause.message}")

    def _end(self, state: ExecutionState, cause: FailureCause | None, reason: str) -> None:
        if self.life.stage is not TaskStage.ENDED:
            self.life.enter(TaskStage.ENDED)
        self.in_flight.drop()
        self.checkpoints.gathering.drop()
        errors = self.chain.close()
        if state is ExecutionState.FINISHED and errors:
            state = ExecutionState.FAILED
            cause = failure_cause(errors[0], f"closing task '{self.environment.task_name}'")
            reason = f"task '{self.environment.task_name}' failed to close"
        if state is not ExecutionState.FINISHED:
            self.outputs.close(reason)
        self.gate.close()
        self._mailbox.close()
        self._listener.task_state_changed(self, state, cause)

    # ------------------------------------------------------------------ the step

    def step(self) -> bool:
        """Does one slice of work; True if it may be called again at once."""
        started = self.slices.seconds()
        self.slice_since = started
        self.time.enter(Phase.BUSY, started)
        if self._on_slice is not None:
            self._on_slice(True)
        try:
            progressed, phase = self._step(started)
        except ChannelFailedError as error:
            if error.lost_result:
                # The producer has finished long ago and reports nothing, so this consumer reports the error.
                self._fail(error)
            else:
                self._await_verdict(error)
            progressed, phase = False, Phase.IDLE
        except BaseException as error:  # user code may raise anything
            self._fail(error)
            progressed, phase = True, Phase.IDLE
        if self._on_slice is not None:
            self._on_slice(False)
        self.slice_since = None
        self.time.enter(phase, self.slices.seconds())
        return progressed

    def _step(self, now: float) -> tuple[bool, Phase]:
        if self._mailbox.run() and not self._gave_way:
            # Return after mails, so that downstream tasks get a forwarded barrier before our next slice.
            # Never twice in a row, or mails could starve input.
            self._gave_way = True
            return True, Phase.BUSY
        self._gave_way = False
        life = self.life
        if life.is_working:
            self.chain.upkeep()
            if self.inputs.loops is not None:
                self.inputs.loops.proceed()
            if not life.skipped and self.course.look():
                return True, Phase.BUSY
        if life.stage is TaskStage.RUNNING:
            return self._run_slice(now)
        if life.stage is TaskStage.FINISHING:
            return self._drain()
        if life.stage is TaskStage.SUSPENDED:
            self.outputs.drain_overdrafts()
        elif (
            life.stage is TaskStage.AWAITING_VERDICT
            and self.environment.clock.monotonic() >= self._verdict_at
        ):
            assert self._verdict is not None
            self._fail(self._verdict)
        return False, Phase.IDLE

    def _run_slice(self, now: float) -> tuple[bool, Phase]:
        if self.chain.source is not None:
            self.reading.task_is_back(now)
        blocked = not (self.outputs.have_credit() and self.chain.is_available)
        if blocked is not self.slices.blocked:
            self.slices.blocked = blocked
            self.chain.rows_wait(blocked)
            if self.chain.source is not None:
                self.reading.tell_source()
        if blocked:
            waiting = self.chain.source is not None or self.inputs.has_data
            self.outputs.flush_if_due(now, self.slices.seconds())
            return False, self._blocked_phase() if waiting else Phase.IDLE
        deadline = self.outputs.end_of_slice(now + self.slices.length)
        watermarks = self.inputs.watermarks
        watermarks.deadline = deadline
        fired = self._fire_timers(deadline)
        if watermarks.firing:
            if watermarks.proceed() and self.gate.all_ended:
                self.input_ended()
            self.outputs.flush_if_due(now, self.slices.seconds())
            return True, Phase.BUSY
        if self._awaits_results:
            worked = self._look_at_end()
            self.outputs.flush_if_due(now, self.slices.seconds())
            return worked or fired, Phase.IDLE
        worked = self.inputs.take(deadline) if self.chain.source is None else self.reading.take(now, deadline)
        self.outputs.flush_if_due(now, self.slices.seconds())
        waiting = self.chain.source is not None or self.inputs.has_data
        if not worked and waiting and self.chain.room == 0:
            # Barriers at the head of their channels still pass.
            return fired, Phase.BACK_PRESSURED
        return worked or fired, Phase.BUSY if worked else Phase.IDLE

    def _blocked_phase(self) -> Phase:
        source = self.chain.source
        stands_still = source is not None and source.stands_still
        return Phase.HARD_BACK_PRESSURED if stands_still else Phase.BACK_PRESSURED

    def broadcast(self, element: ControlElement) -> None:
        """Sends a control element on all outputs, behind everything that was emitted so far."""
        self.outputs.broadcast(element)

    # ---- checkpoints

    def _cut(self, checkpoints: Sequence[ReadyCheckpoint]) -> None:
        self.course.cut(checkpoints)

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Begins a checkpoint at a source, or at a task without input from running tasks."""
        self.course.trigger(barrier)

    def announce_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Takes note of a checkpoint that began at other tasks of this worker: its barriers will come."""
        if not self.life.skipped:
            self.course.checkpoint_announced(barrier)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Takes the completion of a checkpoint, and of all before it."""
        self.course.completed(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Takes the end of a checkpoint that will never complete."""
        if not self.life.skipped:
            self.course.aborted(checkpoint_id)

    @property
    def threads_left(self) -> tuple[str, ...]:
        """Names of user code's threads that an ended task has left behind."""
        source = self.chain.source
        return (f"source {source.name}",) if source is not None and source.has_live_thread else ()

    # ---- alignment of sources

    def bound_source(self, bound_ms: int) -> None:
        """Takes the event time behind which the source must wait for others of its group."""
        source = self.chain.source
        if source is not None and self.life.is_working:
            with self.chain.attributed(0):
                source.take_bound(bound_ms)
            self.wake()

    # ---- rate limits

    def take_share(self, operator_id: OperatorID, share: RateLimit) -> None:
        """Takes the share of a source or sink of its rate limit."""
        if self.life.stage is TaskStage.CREATED:
            self._early_shares[operator_id] = share
        elif self.life.is_working:
            self.chain.take_share(operator_id, share)
            self.wake()

    # ---- timers, flushing, end

    def _fire_timers(self, deadline: float) -> bool:
        first = self.chain.next_timer()
        if first is None:
            return False
        # As in Flink, a timer of a millisecond that goes on waits: more records may come in it.
        now = self.environment.clock.passed_ms()
        if first > now:
            return False
        self.chain.fire_timers(now, deadline)
        return True

    def _look_at_end(self) -> bool:
        """Ends the task when the last results have been emitted; until then, takes barriers. True if that did work."""
        if self.chain.awaits_results:
            return self.inputs.take_barriers()
        self.input_ended()
        return True

    def input_ended(self) -> None:
        """Takes the end of all inputs: operators finish, consumers hear of it, and waiting rows are sent.

        While the head awaits results, the task goes on.
        """
        self._awaits_results = self.chain.awaits_results
        if self._awaits_results:
            self.chain.head.await_end()
            self.course.cut(self.gate.barriers.channel_ended())
            return
        if self.life.begin_to_finish():
            self.chain.finish()
        self.broadcast(EndOfData())
        self.outputs.flush_at = None
        self.life.enter(TaskStage.FINISHING)
        # After the end, so that a checkpoint that begins with it includes it.
        self.course.cut(self.gate.barriers.channel_ended())

    def _drain(self) -> tuple[bool, Phase]:
        if not self.outputs.drain_overdrafts():
            return False, Phase.BACK_PRESSURED
        # A skipped task hears of checkpoints from the JobMaster alone.
        moved = not self.life.skipped and self.inputs.take_barriers()
        if self.life.stage is not TaskStage.FINISHING:
            return True, Phase.IDLE
        if not self._is_drained:
            if not self._end_announced:
                self._end_announced = True
                self._listener.end_of_data_reached(self)
            if not self._awaits_readers:
                self.chain.await_client()
            return moved, Phase.IDLE
        if self.checkpoints.unsettled:
            # The JobMaster must have a task's parts before it hears that the task has ended.
            return moved, Phase.IDLE
        self._end(ExecutionState.FINISHED, None, "")
        return True, Phase.IDLE

    @property
    def _is_drained(self) -> bool:
        """False while the task waits for a receiver outside."""
        return self.chain.is_drained and not self._awaits_readers

    @property
    def _awaits_readers(self) -> bool:
        source = self.chain.source
        return self.life.skipped and source is not None and source.awaits_readers

    def _await_verdict(self, error: BaseException) -> None:
        if not self.life.is_live:
            return  # The first error is the cause.
        self.life.enter(TaskStage.AWAITING_VERDICT)
        self._verdict = error
        self._verdict_at = self.environment.clock.monotonic() + VERDICT_SECONDS

    def seconds_until_due(self, now: float) -> float | None:
        """Seconds that the thread may sleep as far as this task goes; None = until woken."""
        due: list[float] = []
        if self.life.stage is TaskStage.AWAITING_VERDICT:
            due.append(self._verdict_at - self.environment.clock.monotonic())
        if self.life.is_working:
            upkeep = self.chain.seconds_until_upkeep()
            if upkeep is not None:
                due.append(upkeep)
            look_at = self.course.due_ms
            if look_at is not None:
                due.append((look_at - self.environment.clock.epoch_ms()) / 1000)
        if self.life.stage is TaskStage.RUNNING:
            if self.outputs.flush_at is not None:
                due.append(self.outputs.flush_at - now)
            # Without credit nothing else is done; its arrival wakes the task.
            if not self.slices.blocked:
                timer = self.chain.next_timer()
                if timer is not None:
                    due.append((timer - self.environment.clock.passed_ms()) / 1000)
                due += self.reading.seconds_until_due(now)
        return max(0.0, min(due)) if due else None
