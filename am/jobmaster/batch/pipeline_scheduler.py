"""PipelineScheduler: decides which stages of a pipeline run, and what their ends mean.

Owner: the BatchJobMaster's loop. Pure: it handles an event and returns actions. The BatchScheduler decides about the
SparkDriver, as for each bounded job. A stage begins when all that it waits for has finished; what has finished stays.
Must not know Spark, nor send anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.batch.batch_scheduler import (
    BatchAction,
    BatchEvent,
    BatchJobCancelled,
    BatchPhase,
    BatchScheduler,
    ReleaseSparkDriver,
    RunFailed,
    RunFinished,
    SparkDriverLost,
    SubmitPlan,
)
from yarrow.am.jobmaster.batch.pipeline_executions import PipelineExecutions
from yarrow.am.jobmaster.scheduling.restart_strategies import RestartBackoff
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.common.state_machine import StateMachine, transitions
from yarrow.runtime.graph.batch.pipeline_plan import stage_of, waits_for
from yarrow.runtime.rpc.messages import FailureCause


class StagePhase(StrEnum):
    """How far a stage of a pipeline is."""

    #: For other stages, or for a SparkDriver.
    WAITING = "WAITING"
    #: The SparkDriver runs its function.
    RUNNING = "RUNNING"
    #: Its outputs are complete, and it is stored that they are moved into place.
    COMMITTING = "COMMITTING"
    #: Its outputs are in place.
    FINISHED = "FINISHED"
    #: The pipeline ends without it.
    ENDED = "ENDED"


_S = StagePhase
STAGE_TRANSITIONS: Final[Mapping[StagePhase, frozenset[StagePhase]]] = transitions(
    {
        # A former master has stored its outputs.
        _S.WAITING: (_S.RUNNING, _S.COMMITTING, _S.ENDED),
        # The SparkDriver is lost, or the stage begins again.
        _S.RUNNING: (_S.WAITING, _S.COMMITTING, _S.ENDED),
        # What it has written is gone with its host.
        _S.COMMITTING: (_S.FINISHED, _S.WAITING, _S.ENDED),
        # Its temporary outputs are gone with their host.
        _S.FINISHED: (_S.WAITING,),
        _S.ENDED: (),
    }
)

# Events.


class _StageEvent(msgspec.Struct, frozen=True, tag=True, tag_field="event"):
    #: Seconds of the BatchJobMaster's monotonic clock.
    now: float
    run: int
    vertex_id: JobVertexID
    attempt: int


class StageCommitStored(_StageEvent, frozen=True):
    """The outputs of that attempt are complete, and stored: no other attempt leaves any."""


class StageFinished(_StageEvent, frozen=True):
    """The outputs of that attempt are in place."""

    metrics: dict[str, float] = msgspec.field(default_factory=dict)


class StageFailed(_StageEvent, frozen=True, kw_only=True):
    """That attempt has failed."""

    cause: FailureCause
    #: Stages whose temporary outputs it did not find.
    lost_inputs: tuple[JobVertexID, ...] = ()


class StagesRecovered(msgspec.Struct, frozen=True, tag=True, tag_field="event"):
    """A former master has stored that these stages leave what their last attempts have written."""

    stages: tuple[JobVertexID, ...]


PipelineEvent: TypeAlias = BatchEvent | StageCommitStored | StageFinished | StageFailed | StagesRecovered

# Actions.


class StartStage(msgspec.Struct, frozen=True, tag=True, tag_field="action"):
    """Give an attempt of a stage to the SparkDriver; StageFinished or StageFailed follows.

    `commits`: only what is stored of it is left to do. `is_repeated`: it had finished before.
    """

    run: int
    vertex_id: JobVertexID
    attempt: int
    commits: bool = False
    is_repeated: bool = False


PipelineAction: TypeAlias = BatchAction | StartStage


class _StageState:
    """What the scheduler knows of one stage."""

    def __init__(
        self, name: str, retries: int, waits: frozenset[JobVertexID], machine: StateMachine[StagePhase]
    ) -> None:
        self.name = name
        self.retries_left = retries
        self.waits_for = waits
        self.machine = machine
        self.attempt = -1
        #: The present SparkDriver has the stage.
        self.is_submitted = False
        #: It had finished, and its temporary outputs were lost.
        self.is_repeated = False
        #: The run in which it has finished; -1 = in none.
        self.finished_in = -1

    @property
    def phase(self) -> StagePhase:
        return self.machine.state


class PipelineScheduler:
    """The decisions about one pipeline."""

    def __init__(self, graph: ExecutionGraph, backoff: RestartBackoff, clock: Clock) -> None:
        self._executions = PipelineExecutions(graph)
        self._job = BatchScheduler(graph, backoff, clock, self._executions)
        waits = waits_for(graph.job)
        self._stages = {
            vertex.id: _StageState(
                vertex.name,
                stage_of(vertex).retries,
                waits[vertex.id],
                StateMachine(f"stage {vertex.name}", StagePhase.WAITING, STAGE_TRANSITIONS, clock),
            )
            for vertex in graph.job.vertices
        }
        #: How the job ends once no stage is committing: until then a part of a stage's outputs may be visible.
        self._held_end: BatchJobCancelled | RunFailed | None = None

    @property
    def run(self) -> int:
        """The present run: that of the present SparkDriver."""
        return self._job.run

    @property
    def phase(self) -> BatchPhase:
        """What the job waits for."""
        return self._job.phase

    def phase_of(self, vertex_id: JobVertexID) -> StagePhase:
        """How far a stage is."""
        return self._stages[vertex_id].phase

    @property
    def stages_in_place(self) -> tuple[JobVertexID, ...]:
        """The stages whose outputs are, or will be, in place."""
        done = (StagePhase.COMMITTING, StagePhase.FINISHED)
        return tuple(
            vertex_id for vertex_id, stage in self._stages.items() if stage.phase in done or stage.is_repeated
        )

    def may_commit(self, run: int, vertex_id: JobVertexID, attempt: int) -> bool:
        """Whether that attempt is the present one, and its function runs."""
        stage = self._present(run, vertex_id, attempt)
        return stage is not None and stage.phase is StagePhase.RUNNING

    def suspend(self, cause: str) -> None:
        """Ends the job on this master alone, because another master continues it."""
        self._job.suspend(cause)

    def handle(self, event: PipelineEvent) -> list[PipelineAction]:
        """Takes in one event, and returns what follows from it. Events of former attempts change nothing."""
        match event:
            case StagesRecovered(stages):
                for vertex_id in stages:
                    self._stages[vertex_id].machine.transition(StagePhase.COMMITTING)
                return []
            case StageCommitStored(_, run, vertex_id, attempt):
                if self.may_commit(run, vertex_id, attempt):
                    self._stages[vertex_id].machine.transition(StagePhase.COMMITTING)
                return []
            case StageFinished():
                return self._finished(event)
            case StageFailed():
                return self._failed(event)
        return self._of_job(event)

    def _of_job(self, event: BatchEvent) -> list[PipelineAction]:
        """What follows for the SparkDriver, then for stages."""
        if isinstance(event, BatchJobCancelled) and self._is_committing():
            self._held_end = self._held_end or event
            return []
        was = self._job.phase
        # Parts of the outputs may be visible: whatever the restart strategy says, the rest has to follow.
        self._job.commits = self._is_committing()
        tries = self._job.commit_tries
        actions: list[PipelineAction] = [
            _in_order(action, was, self._job.phase) for action in self._job.handle(event)
        ]
        if isinstance(event, SparkDriverLost) and self._job.commit_tries > tries:
            self._held_end = self._held_end or RunFailed(event.now, event.run, event.cause)
        now = self._job.phase
        if now is not was and now in (BatchPhase.PAUSING, BatchPhase.ENDING):
            self._driver_gone(ends=now is BatchPhase.ENDING)
        if any(isinstance(action, SubmitPlan) for action in actions):
            actions += self._start()
        return actions

    def _driver_gone(self, *, ends: bool) -> None:
        for stage in self._stages.values():
            stage.is_submitted = False
            if ends and stage.phase is not StagePhase.FINISHED:
                stage.machine.transition(StagePhase.ENDED)
            elif stage.phase is StagePhase.RUNNING:
                stage.machine.transition(StagePhase.WAITING)

    def _start(self) -> list[PipelineAction]:
        """Starts all stages that can begin; those that commit alone if the job is to end."""
        if self._job.phase is not BatchPhase.RUNNING:
            return []
        if self._held_end is not None and not self._is_committing():
            return self._end()
        return [
            self._submit(vertex_id, stage)
            for vertex_id, stage in self._stages.items()
            if not stage.is_submitted and self._can_begin(stage)
        ]

    def _is_committing(self) -> bool:
        ended = (BatchPhase.ENDING, BatchPhase.ENDED)
        committing = any(stage.phase is StagePhase.COMMITTING for stage in self._stages.values())
        return committing and self._job.phase not in ended

    def _end(self) -> list[PipelineAction]:
        """Ends the job as it was told while a stage committed."""
        event = self._held_end
        assert event is not None, "the end of the job is known"
        self._held_end = None
        if isinstance(event, RunFailed):
            event = msgspec.structs.replace(event, run=self.run)
        return self._of_job(event)

    def _can_begin(self, stage: _StageState) -> bool:
        if stage.phase is StagePhase.COMMITTING:
            return True
        if self._held_end is not None:
            return False
        return stage.phase is StagePhase.WAITING and all(
            self._stages[each].phase is StagePhase.FINISHED for each in stage.waits_for
        )

    def _submit(self, vertex_id: JobVertexID, stage: _StageState) -> PipelineAction:
        commits = stage.phase is StagePhase.COMMITTING
        if not commits:
            stage.machine.transition(StagePhase.RUNNING)
        stage.attempt += 1
        stage.is_submitted = True
        self._executions.started(vertex_id)
        return StartStage(self.run, vertex_id, stage.attempt, commits, stage.is_repeated)

    def _present(self, run: int, vertex_id: JobVertexID, attempt: int) -> _StageState | None:
        """The stage if that attempt is in the hands of the present SparkDriver."""
        stage = self._stages.get(vertex_id)
        if stage is None or run != self.run or self._job.phase is not BatchPhase.RUNNING:
            return None
        return stage if stage.is_submitted and attempt == stage.attempt else None

    def _finished(self, event: StageFinished) -> list[PipelineAction]:
        stage = self._present(event.run, event.vertex_id, event.attempt)
        if stage is None:
            return []
        if stage.phase is StagePhase.RUNNING:
            # A stage without outputs has nothing to store.
            stage.machine.transition(StagePhase.COMMITTING)
        stage.machine.transition(StagePhase.FINISHED)
        stage.is_submitted = False
        stage.finished_in = self.run
        self._executions.stage_finished(event.vertex_id, event.metrics)
        if all(each.phase is StagePhase.FINISHED for each in self._stages.values()):
            return self._of_job(RunFinished(event.now, event.run))
        return self._start()

    def _failed(self, event: StageFailed) -> list[PipelineAction]:
        stage = self._present(event.run, event.vertex_id, event.attempt)
        if stage is None:
            return []
        lost = [each for each in event.lost_inputs if self._is_lost(each, event.vertex_id)]
        if lost:
            self._begin_again(event.vertex_id, lost)
            return self._start()
        if stage.retries_left and stage.phase is StagePhase.RUNNING and not event.cause.is_final:
            stage.retries_left -= 1
            stage.is_submitted = False
            stage.machine.transition(StagePhase.WAITING)
            self._executions.stage_failed(event.vertex_id, event.cause)
            return self._start()
        if stage.phase is StagePhase.COMMITTING:
            # Nobody moves its outputs any more.
            stage.is_submitted = False
            stage.machine.transition(StagePhase.WAITING)
        failed = RunFailed(event.now, event.run, event.cause)
        # An error weighs more than a request to cancel; of several errors the first is told.
        if not isinstance(self._held_end, RunFailed):
            self._held_end = failed
        return self._start()

    def _is_lost(self, vertex_id: JobVertexID, reporter: JobVertexID) -> bool:
        """Whether a stage whose outputs were not found has to run again.

        One that the present SparkDriver has finished does not: it would lose them again.
        """
        stage = self._stages.get(vertex_id)
        if stage is None:
            return False
        if stage.phase is StagePhase.COMMITTING:
            return vertex_id == reporter
        return stage.phase is not StagePhase.FINISHED or stage.finished_in != self.run

    def _begin_again(self, reporter: JobVertexID, lost: Iterable[JobVertexID]) -> None:
        """Lets a stage wait for those whose outputs it did not find, and lets these run again."""
        for vertex_id in dict.fromkeys((reporter, *lost)):
            stage = self._stages[vertex_id]
            if stage.phase is StagePhase.FINISHED or vertex_id == reporter:
                stage.is_repeated = stage.is_repeated or stage.phase is not StagePhase.RUNNING
                stage.is_submitted = False
                stage.machine.transition(StagePhase.WAITING)
                self._executions.begin_again(vertex_id)


def _in_order(action: BatchAction, was: BatchPhase, now: BatchPhase) -> BatchAction:
    """A SparkDriver that is released at the end of its job first removes what running stages have written."""
    if isinstance(action, ReleaseSparkDriver) and was is BatchPhase.RUNNING and now is BatchPhase.ENDING:
        return msgspec.structs.replace(action, in_order=True)
    return action
