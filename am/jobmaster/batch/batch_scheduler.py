"""BatchScheduler: decides what a bounded job does next: one SparkDriver at a time runs the whole plan.

Owner: the BatchJobMaster's loop. Pure: it handles an event and returns actions; times are seconds of a monotonic
clock. A user's error fails the job at once, because the same records fail again. The restart strategy decides what a
lost SparkDriver costs. It must not know Spark, nor send anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.batch.stage_executions import StageExecutions
from yarrow.am.jobmaster.scheduling.restart_strategies import RestartBackoff
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.state_machine import StateMachine, transitions
from yarrow.runtime.rpc.messages import BatchStageProgress, BatchSubtaskResult, FailureCause


class BatchPhase(StrEnum):
    """What a bounded job waits for."""

    NEW = "NEW"
    #: A SparkDriver is asked for, starts, or starts its session.
    AWAITING_DRIVER = "AWAITING_DRIVER"
    #: The SparkDriver executes the plan.
    RUNNING = "RUNNING"
    #: The lost SparkDriver ends, and the pause of the restart strategy passes.
    PAUSING = "PAUSING"
    #: The outcome is known; the SparkDriver ends.
    ENDING = "ENDING"
    #: Nothing of the job executes any more.
    ENDED = "ENDED"


_P = BatchPhase
BATCH_TRANSITIONS: Final[Mapping[BatchPhase, frozenset[BatchPhase]]] = transitions(
    {
        _P.NEW: (_P.AWAITING_DRIVER, _P.ENDING),
        _P.AWAITING_DRIVER: (_P.RUNNING, _P.PAUSING, _P.ENDING),
        _P.RUNNING: (_P.PAUSING, _P.ENDING),
        _P.PAUSING: (_P.AWAITING_DRIVER, _P.ENDING),
        _P.ENDING: (_P.ENDED,),
        _P.ENDED: (),
    }
)

#: Most runs that commit what is stored where the restart strategy allows no restart.
COMMIT_TRIES: Final = 5
#: Seconds before the first of them; each later pause is twice as long.
_COMMIT_PAUSE: Final = 1.0

# Events.


class _Event(msgspec.Struct, frozen=True, tag=True, tag_field="event"):
    #: Seconds of the BatchJobMaster's monotonic clock.
    now: float


class BatchJobStarted(_Event, frozen=True):
    """The BatchJobMaster is ready."""

    #: A former master has executed the plan: its results are stored, and only have to be committed.
    commits: bool = False


class SparkSessionStarted(_Event, frozen=True):
    """The SparkDriver of that run can execute the plan."""

    run: int


class StagesReported(_Event, frozen=True):
    """Stages of a run have changed."""

    run: int
    stages: tuple[BatchStageProgress, ...]


class SubtasksReported(_Event, frozen=True):
    """Subtasks of a run have succeeded."""

    run: int
    subtasks: tuple[BatchSubtaskResult, ...]


class CommitBegun(_Event, frozen=True):
    """The plan was executed in that run, and its results are stored: they will be committed, by it or a later run."""

    run: int


class RunFailed(_Event, frozen=True):
    """The plan failed in a way that another attempt would repeat: by a user's function, or by bad settings."""

    run: int
    cause: FailureCause


class SparkDriverLost(_Event, frozen=True):
    """The SparkDriver of that run could not start, has died, or is silent."""

    run: int
    cause: FailureCause


class RunFinished(_Event, frozen=True):
    """The plan has been executed, and all its rows have been taken."""

    run: int


class PausePassed(_Event, frozen=True):
    """The restart strategy's pause is over."""


class BatchJobCancelled(_Event, frozen=True):
    """The user cancels, or `reason` says why else."""

    reason: str = ""


class BatchJobFailed(_Event, frozen=True):
    """The job fails for good, whatever it does."""

    cause: FailureCause


class SparkDriverEnded(_Event, frozen=True):
    """Nothing of the released SparkDriver of that run is left."""

    run: int


BatchEvent: TypeAlias = (
    BatchJobStarted
    | SparkSessionStarted
    | StagesReported
    | SubtasksReported
    | CommitBegun
    | RunFailed
    | SparkDriverLost
    | RunFinished
    | PausePassed
    | BatchJobCancelled
    | BatchJobFailed
    | SparkDriverEnded
)

# Actions.


class _Action(msgspec.Struct, frozen=True, tag=True, tag_field="action"):
    """Something that the BatchJobMaster carries out."""


class RequestSparkDriver(_Action, frozen=True):
    """Ask for a SparkDriver for that run; SparkSessionStarted or SparkDriverLost follows."""

    run: int


class SubmitPlan(_Action, frozen=True):
    """Give the SparkDriver the graph; RunFinished, RunFailed or SparkDriverLost follows."""

    run: int


class ReleaseSparkDriver(_Action, frozen=True):
    """End the SparkDriver of that run, if there is one, with all that it executes; SparkDriverEnded follows.

    `in_order`: the driver first ends what the sinks of the run have begun.
    """

    run: int
    in_order: bool = False


class Pause(_Action, frozen=True):
    """Let the pause of the restart strategy pass; PausePassed follows."""

    seconds: float


class ConcludeJob(_Action, frozen=True):
    """The job has ended for good."""


BatchAction: TypeAlias = RequestSparkDriver | SubmitPlan | ReleaseSparkDriver | Pause | ConcludeJob


class BatchScheduler:
    """The decisions about one bounded job."""

    def __init__(
        self,
        graph: ExecutionGraph,
        backoff: RestartBackoff,
        clock: Clock,
        executions: StageExecutions | None = None,
    ) -> None:
        """`executions` are those of the graph; None = all of them begin and end with the plan."""
        self.graph = graph
        self._backoff = backoff
        self._executions = StageExecutions(graph) if executions is None else executions
        self._machine: StateMachine[BatchPhase] = StateMachine(
            f"batch job {graph.job.name} ({graph.job.job_id})", BatchPhase.NEW, BATCH_TRANSITIONS, clock
        )
        #: Counted from 0; each SparkDriver executes one run.
        self.run = -1
        #: The results are stored: nobody executes the plan again, nor cancels the job.
        self.commits = False
        #: How many runs that only commit the restart strategy would not have allowed.
        self.commit_tries = 0
        #: While PAUSING: what has happened of that which the next run waits for.
        self._pause_passed = self._driver_gone = False
        #: The status with which the job ends, once that is known.
        self._outcome: JobStatus | None = None

    @property
    def phase(self) -> BatchPhase:
        """What the job waits for."""
        return self._machine.state

    def handle(self, event: BatchEvent) -> list[BatchAction]:
        """Takes in one event, and returns what follows from it. Events of former runs change nothing."""
        match event:
            case BatchJobStarted(_, commits):
                self.commits = commits
                return self._start()
            case BatchJobCancelled(_, reason):
                return self._cancel(reason)
            case BatchJobFailed(_, cause):
                return self._fail(cause)
            case PausePassed():
                self._pause_passed = True
                return self._go_on()
            case CommitBegun():
                # The driver may have been lost while its results were being stored, and the next run may have begun.
                self.commits = self.commits or self._outcome is None
                return []
            case SparkDriverEnded(_, run):
                return self._driver_ended() if run == self.run else []
        if event.run != self.run or self.phase not in (BatchPhase.AWAITING_DRIVER, BatchPhase.RUNNING):
            return []
        match event:
            case SparkSessionStarted():
                return self._submit()
            case StagesReported(_, _, stages):
                self._executions.progressed(stages)
            case SubtasksReported(_, _, subtasks):
                self._executions.succeeded(subtasks)
            case RunFailed(_, _, cause):
                return self._fail(cause)
            case SparkDriverLost(now, _, cause):
                return self._lost(now, cause)
            case RunFinished():
                return self._finish()
        return []

    def suspend(self, cause: str) -> None:
        """Ends the job on this master alone, because another master continues it."""
        if not self.graph.machine.is_terminal:
            self._executions.cancel()
            self.graph.transition(JobStatus.SUSPENDED, cause)

    def _start(self) -> list[BatchAction]:
        self.graph.transition(JobStatus.CREATED)
        self.graph.transition(JobStatus.RUNNING)
        return self._next_run()

    def _next_run(self) -> list[BatchAction]:
        if self.run >= 0:
            self._executions.restart()
            self.graph.transition(JobStatus.RUNNING)
        self.run += 1
        self._machine.transition(BatchPhase.AWAITING_DRIVER)
        self._executions.scheduled()
        return [RequestSparkDriver(self.run)]

    def _submit(self) -> list[BatchAction]:
        if self.phase is not BatchPhase.AWAITING_DRIVER:
            return []
        self._machine.transition(BatchPhase.RUNNING)
        return [SubmitPlan(self.run)]

    def _finish(self) -> list[BatchAction]:
        self._executions.finished()
        self.graph.transition(JobStatus.FINISHED)
        return self._end(JobStatus.FINISHED)

    def _fail(self, cause: FailureCause) -> list[BatchAction]:
        if self._outcome is not None:
            return []
        self.graph.record_exception(cause, self._executions.failed_by(cause))
        self.graph.failure = cause
        self.graph.transition(JobStatus.FAILING, cause.message)
        self._executions.fail(cause)
        return self._end(JobStatus.FAILED)

    def _lost(self, now: float, cause: FailureCause) -> list[BatchAction]:
        self._backoff.failed(now)
        pause = self._backoff.delay() if self._backoff.may_restart(now) else None
        if self.commits and pause is None and self.commit_tries < COMMIT_TRIES:
            # Parts of the output may be visible: whatever the strategy says, the rest has to follow.
            pause = _COMMIT_PAUSE * 2**self.commit_tries
            self.commit_tries += 1
        if pause is None:
            return self._fail(cause)
        self.graph.record_exception(cause, None)
        self.graph.restarts += 1
        self.graph.transition(JobStatus.RESTARTING, cause.message)
        self._executions.lost()
        self._machine.transition(BatchPhase.PAUSING)
        self._pause_passed = self._driver_gone = False
        return [ReleaseSparkDriver(self.run), Pause(pause)]

    def _cancel(self, reason: str) -> list[BatchAction]:
        # A commit that has begun is brought to its end, because parts of the output are visible already.
        if self._outcome is not None or self.commits:
            return []
        self.graph.cancellation = reason
        self.graph.transition(JobStatus.CANCELLING, reason)
        self._executions.cancel()
        return self._end(JobStatus.CANCELED)

    def _end(self, outcome: JobStatus) -> list[BatchAction]:
        in_order = outcome is JobStatus.CANCELED and self.phase is BatchPhase.RUNNING
        self._outcome = outcome
        self._machine.transition(BatchPhase.ENDING)
        return [ReleaseSparkDriver(self.run, in_order)]

    def _go_on(self) -> list[BatchAction]:
        if self.phase is BatchPhase.PAUSING and self._pause_passed and self._driver_gone:
            return self._next_run()
        return []

    def _driver_ended(self) -> list[BatchAction]:
        self._driver_gone = True
        if self.phase is not BatchPhase.ENDING:
            return self._go_on()
        assert self._outcome is not None
        if self.graph.status is not self._outcome:
            self.graph.transition(self._outcome)
        self._machine.transition(BatchPhase.ENDED)
        return [ConcludeJob()]
