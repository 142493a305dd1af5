"""StageProgress: how far the stages of a run are, from what their tasks report. Pure.

Owner: the run's lock. An attempt counts as done when it has put out everything: Spark may still repeat it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from yarrow.container.batch.driver.task_messages import AttemptEnded, AttemptProgress, AttemptStarted
from yarrow.container.batch.largest_key_group import LARGE_RECORDS, LargestKeyGroup
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, BatchStage
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import BatchStageProgress, BatchSubtaskProgress, LargeKeyGroup

#: How many times as many records as the others have on average.
_FAR_LARGER: Final = 10
_NO_KEY_GROUP: Final = LargestKeyGroup(key_group=-1, records=0, task_records=0, task_key_groups=0)


class _Stage:
    """The attempts of one stage."""

    def __init__(self, stage: BatchStage, *, iterates: bool) -> None:
        self.stage = stage
        #: Another superstep may follow.
        self.iterates = iterates
        #: That of its present tasks, from 1; 0 = the stage belongs to no iteration, or has not begun.
        self.superstep = 0
        #: Records in and out of each subtask in earlier supersteps.
        self.before: dict[int, tuple[int, int]] = {}
        self.running: set[tuple[int, int]] = set()
        #: Records in and out of the latest attempt of each subtask.
        self.records: dict[int, tuple[int, int]] = {}
        self.done: set[int] = set()
        #: Subtasks of which some attempt has put out everything.
        self.ended: set[int] = set()
        #: The largest key group of each subtask that has one.
        self.key_groups: dict[int, LargestKeyGroup] = {}
        self.failed = 0
        self.started_ms = 0
        self.ended_ms = 0

    def superstep_begins(self, number: int) -> None:
        """All tasks begin again."""
        self.superstep = number
        self.before = self.counts()
        self.records.clear()
        self.done.clear()
        self.ended.clear()
        self.key_groups.clear()

    def counts(self) -> dict[int, tuple[int, int]]:
        """Records in and out of each subtask."""
        found = dict(self.before)
        for subtask, (taken, sent) in self.records.items():
            taken_before, sent_before = found.get(subtask, (0, 0))
            found[subtask] = (taken_before + taken, sent_before + sent)
        return found

    def _told(self) -> dict[int, tuple[int, int]]:
        """The same for all subtasks that have begun: one may run for long before it tells of records."""
        return {subtask: (0, 0) for subtask, _ in self.running} | self.counts()

    def snapshot(self, end: ExecutionState | None) -> BatchStageProgress:
        finished = len(self.done) == self.stage.parallelism and not self.iterates
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
            large_key_group=self._large_key_group(),
            subtasks=tuple(
                BatchSubtaskProgress(
                    subtask=subtask, is_done=subtask in self.done, records_in=taken, records_out=sent
                )
                for subtask, (taken, sent) in sorted(self._told().items())
            ),
            superstep=self.superstep,
        )

    def _large_key_group(self) -> LargeKeyGroup | None:
        """The largest key group, if the others of its task, and those of tasks that are done, have far less."""
        subtask, largest = max(
            self.key_groups.items(), key=lambda item: item[1].records, default=(-1, _NO_KEY_GROUP)
        )
        if largest.records < LARGE_RECORDS:
            return None
        others = [
            each for number, each in self.key_groups.items() if number != subtask and number in self.done
        ]
        groups = largest.task_key_groups - 1 + sum(each.task_key_groups for each in others)
        records = largest.task_records - largest.records + sum(each.task_records for each in others)
        if not groups and not self._others_are_done(subtask):
            # A task may have one key group alone, and nobody knows the others yet.
            return None
        mean = records / groups if groups else 0.0
        if largest.records < _FAR_LARGER * mean:
            return None
        return LargeKeyGroup(
            vertex_id=self.stage.vertex_id,
            vertex_name=self.stage.name,
            subtask=subtask,
            key_group=largest.key_group,
            key=largest.key,
            records=largest.records,
            mean_records=round(mean),
        )

    def _others_are_done(self, subtask: int) -> bool:
        return self.stage.parallelism > 1 and len(self.done - {subtask}) == self.stage.parallelism - 1


class StageProgress:
    """All stages of one run."""

    def __init__(self, plan: BatchPlan) -> None:
        bodies = {vertex_id for each in plan.iterations for vertex_id in each.body}
        self._stages = [_Stage(stage, iterates=stage.vertex_id in bodies) for stage in plan.stages]
        self._told: tuple[BatchStageProgress, ...] = ()

    def superstep_begins(self, body: Collection[JobVertexID], number: int) -> None:
        """Notes that the stages of an iteration begin once more."""
        for stage in self._stages:
            if stage.stage.vertex_id in body:
                stage.superstep_begins(number)

    def iteration_ended(self, body: Collection[JobVertexID]) -> None:
        """Notes that the stages of an iteration do not begin again."""
        for stage in self._stages:
            if stage.stage.vertex_id in body:
                stage.iterates = False
                stage.done.update(range(stage.stage.parallelism))

    def _is_past(self, attempt: AttemptStarted) -> bool:
        """Whether an attempt belongs to a superstep that has ended: its word comes late."""
        return attempt.stage >= 0 and attempt.superstep != self._stages[attempt.stage].superstep

    def started(self, attempt: AttemptStarted, now_ms: int) -> None:
        """Notes that an attempt runs."""
        if self._is_past(attempt):
            return
        stage = self._stages[attempt.stage]
        stage.running.add((attempt.subtask, attempt.attempt))
        stage.started_ms = stage.started_ms or now_ms
        stage.done.discard(attempt.subtask)

    def progressed(
        self, attempt: AttemptStarted, progress: AttemptProgress | AttemptEnded, now_ms: int
    ) -> None:
        """Notes the counts of an attempt, and perhaps its end."""
        if self._is_past(attempt):
            return
        stage = self._stages[attempt.stage]
        stage.records[attempt.subtask] = (progress.records_in, progress.records_out)
        if isinstance(progress, AttemptEnded):
            stage.running.discard((attempt.subtask, attempt.attempt))
            stage.done.add(attempt.subtask)
            stage.ended.add(attempt.subtask)
            stage.ended_ms = now_ms

    def key_groups_read(self, attempt: AttemptStarted, largest: LargestKeyGroup) -> None:
        """Notes the largest key group of a subtask."""
        self._stages[attempt.stage].key_groups[attempt.subtask] = largest

    def failed(self, attempt: AttemptStarted) -> None:
        """Notes that an attempt has ended without result."""
        if attempt.stage < 0 or self._is_past(attempt):
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
        return self._is_past(attempt) or (
            attempt.stage >= 0 and attempt.subtask in self._stages[attempt.stage].ended
        )

    def changed(self) -> tuple[BatchStageProgress, ...]:
        """The stages that have changed since the last call."""
        now = self.all()
        changed = tuple(stage for stage in now if stage not in self._told)
        self._told = now
        return changed

    def all(self, end: ExecutionState | None = None) -> tuple[BatchStageProgress, ...]:
        """All stages; those that have not finished are in the state `end` if the run has ended."""
        return tuple(stage.snapshot(end) for stage in self._stages)
