"""StageProgress: how far the stages of a run are, from what their tasks report. Pure.

Owner: the run's lock. An attempt counts as done when it has put out everything: Spark may still repeat it.
"""

from __future__ import annotations

from yarrow.container.batch.spark.task_messages import AttemptEnded, AttemptProgress, AttemptStarted
from yarrow.runtime.graph.batch_plan import BatchPlan, BatchStage
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import BatchStageProgress, BatchSubtaskProgress


class _Stage:
    """The attempts of one stage."""

    def __init__(self, stage: BatchStage) -> None:
        self.stage = stage
        self.running: set[tuple[int, int]] = set()
        #: Records in and out of the latest attempt of each subtask.
        self.records: dict[int, tuple[int, int]] = {}
        self.done: set[int] = set()
        #: Subtasks of which some attempt has put out everything.
        self.ended: set[int] = set()
        self.failed = 0
        self.started_ms = 0
        self.ended_ms = 0

    def snapshot(self, end: ExecutionState | None) -> BatchStageProgress:
        finished = len(self.done) == self.stage.parallelism
        if finished:
            state = ExecutionState.FINISHED
        elif end is not None:
            state = end
        else:
            state = ExecutionState.RUNNING if self.started_ms else ExecutionState.CREATED
        return BatchStageProgress(
            vertex_id=self.stage.vertex_id,
            state=state,
            tasks_total=self.stage.parallelism,
            tasks_running=len(self.running) if end is None else 0,
            tasks_done=len(self.done),
            tasks_failed=self.failed,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms if finished else 0,
            subtasks=tuple(
                BatchSubtaskProgress(
                    subtask=subtask, is_done=subtask in self.done, records_in=taken, records_out=sent
                )
                for subtask, (taken, sent) in sorted(self.records.items())
            ),
        )


class StageProgress:
    """All stages of one run."""

    def __init__(self, plan: BatchPlan) -> None:
        self._stages = [_Stage(stage) for stage in plan.stages]
        self._told: tuple[BatchStageProgress, ...] = ()

    def started(self, attempt: AttemptStarted, now_ms: int) -> None:
        """Notes that an attempt runs."""
        stage = self._stages[attempt.stage]
        stage.running.add((attempt.subtask, attempt.attempt))
        stage.started_ms = stage.started_ms or now_ms
        stage.done.discard(attempt.subtask)

    def progressed(
        self, attempt: AttemptStarted, progress: AttemptProgress | AttemptEnded, now_ms: int
    ) -> None:
        """Notes the counts of an attempt, and perhaps its end."""
        stage = self._stages[attempt.stage]
        stage.records[attempt.subtask] = (progress.records_in, progress.records_out)
        if isinstance(progress, AttemptEnded):
            stage.running.discard((attempt.subtask, attempt.attempt))
            stage.done.add(attempt.subtask)
            stage.ended.add(attempt.subtask)
            stage.ended_ms = now_ms

    def failed(self, attempt: AttemptStarted) -> None:
        """Notes that an attempt has ended without result."""
        if attempt.stage < 0:
            return
        stage = self._stages[attempt.stage]
        stage.running.discard((attempt.subtask, attempt.attempt))
        if attempt.subtask in stage.ended:
            # It was a second one beside it, which Spark ends.
            stage.done.add(attempt.subtask)
        else:
            stage.failed += 1

    def has_ended(self, attempt: AttemptStarted) -> bool:
        """Whether some attempt of that subtask has put out everything."""
        return attempt.stage >= 0 and attempt.subtask in self._stages[attempt.stage].ended

    def changed(self) -> tuple[BatchStageProgress, ...]:
        """The stages that have changed since the last call."""
        now = self.all()
        changed = tuple(stage for stage in now if stage not in self._told)
        self._told = now
        return changed

    def all(self, end: ExecutionState | None = None) -> tuple[BatchStageProgress, ...]:
        """All stages; those that have not finished are in the state `end` if the run has ended."""
        return tuple(stage.snapshot(end) for stage in self._stages)
