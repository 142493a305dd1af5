"""The decisions about pipelines: what has finished stays, what failed begins again, and nothing begins too early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.counting_ids import CountingIdFactory
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.batch.batch_scheduler import (
    BatchJobCancelled,
    BatchJobStarted,
    BatchPhase,
    ConcludeJob,
    Pause,
    PausePassed,
    ReleaseSparkDriver,
    RequestSparkDriver,
    SparkDriverEnded,
    SparkDriverLost,
    SparkSessionStarted,
    SubmitPlan,
)
from yarrow.am.jobmaster.batch.pipeline_scheduler import (
    PipelineAction,
    PipelineEvent,
    PipelineScheduler,
    StageCommitStored,
    StageFailed,
    StageFinished,
    StagePhase,
    StagesRecovered,
    StartStage,
)
from yarrow.am.jobmaster.scheduling.restart_strategies import FixedDelayBackoff, FixedDelaySettings
from yarrow.batch import Pipeline
from yarrow.batch.pipeline_graph import vertex_id_of
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause

CAUSE = FailureCause(exception_name="builtins.ValueError", message="no", stacktrace="no", operator_name="b")
A, B, C, D = (vertex_id_of(name) for name in "abcd")


def nothing(spark: Any) -> None:
    """A stage that is never run."""


def diamond(retries: int = 0) -> JobGraph:
    """a before b and c, both before d."""
    pipeline = Pipeline("diamond")
    pipeline.stage("a", nothing)
    pipeline.stage("b", nothing, after=["a"], retries=retries)
    pipeline.stage("c", nothing, after=["a"])
    pipeline.stage("d", nothing, after=["b", "c"])
    return pipeline.get_job_graph()


class Played:
    """A scheduler whose actions are noted, and whose SparkDrivers start and end at once."""

    def __init__(self, graph: JobGraph, restarts: int = 3) -> None:
        self.graph = ExecutionGraph(graph, ManualClock(), CountingIdFactory(), 8, 8)
        backoff = FixedDelayBackoff(FixedDelaySettings(attempts=restarts, delay=0.0))
        self.scheduler = PipelineScheduler(self.graph, backoff, ManualClock())
        self.starts: list[StartStage] = []
        self.releases: list[ReleaseSparkDriver] = []
        self.concluded = False

    def begin(self) -> Played:
        self.tell(BatchJobStarted(0.0))
        return self

    def tell(self, event: PipelineEvent) -> list[StartStage]:
        """Tells an event; the stages that start upon it."""
        before = len(self.starts)
        self._follow(self.scheduler.handle(event))
        return self.starts[before:]

    def _follow(self, actions: Sequence[PipelineAction]) -> None:
        for action in actions:
            msgspec.json.encode(action)
            match action:
                case RequestSparkDriver(run):
                    self.tell(SparkSessionStarted(0.0, run))
                case ReleaseSparkDriver(run):
                    self.releases.append(action)
                    self.tell(SparkDriverEnded(0.0, run))
                case Pause():
                    self.tell(PausePassed(0.0))
                case StartStage():
                    self.starts.append(action)
                case ConcludeJob():
                    self.concluded = True
                case SubmitPlan():
                    pass

    def finish(self, start: StartStage) -> list[StartStage]:
        self.tell(StageCommitStored(0.0, start.run, start.vertex_id, start.attempt))
        return self.tell(StageFinished(0.0, start.run, start.vertex_id, start.attempt, {"numBytesOut": 7.0}))

    def fail(self, start: StartStage, lost: tuple[JobVertexID, ...] = ()) -> list[StartStage]:
        return self.tell(
            StageFailed(0.0, start.run, start.vertex_id, start.attempt, cause=CAUSE, lost_inputs=lost)
        )

    def lose(self) -> list[StartStage]:
        return self.tell(SparkDriverLost(0.0, self.scheduler.run, CAUSE))

    def state(self, vertex_id: JobVertexID) -> ExecutionState:
        execution = self.graph.subtask(vertex_id, 0)
        assert execution is not None
        return execution.state


def ids(starts: Sequence[StartStage]) -> list[JobVertexID]:
    return [start.vertex_id for start in starts]


def test_independent_stages_run_side_by_side_and_others_wait() -> None:
    played = Played(diamond()).begin()
    (a,) = played.starts
    b, c = played.finish(a)
    assert ids([a, b, c]) == [A, B, C]
    assert (played.state(A), played.state(B), played.state(D)) == (
        ExecutionState.FINISHED,
        ExecutionState.RUNNING,
        ExecutionState.CREATED,
    )
    assert played.finish(c) == []
    (d,) = played.finish(b)
    assert played.finish(d) == []
    assert (played.graph.status, played.concluded) == (JobStatus.FINISHED, True)
    assert played.releases == [ReleaseSparkDriver(0, in_order=True)]


def test_a_stage_that_fails_begins_again_alone_as_often_as_it_may() -> None:
    played = Played(diamond(retries=1)).begin()
    b, c = played.finish(played.starts[0])
    (again,) = played.fail(b)
    assert (again.vertex_id, again.attempt) == (B, 1)
    assert played.state(C) is ExecutionState.RUNNING
    assert played.fail(b) == [], "word of a former attempt"
    assert played.graph.status is JobStatus.RUNNING
    assert played.fail(again) == []
    assert (played.graph.status, played.graph.failure) == (JobStatus.FAILED, CAUSE)
    assert (played.state(B), played.state(C)) == (ExecutionState.FAILED, ExecutionState.CANCELED)
    # The other stage has written something, which the driver removes.
    assert played.releases == [ReleaseSparkDriver(0, in_order=True)]
    assert played.finish(c) == []


def test_a_lost_driver_costs_only_what_ran() -> None:
    played = Played(diamond()).begin()
    b, c = played.finish(played.starts[0])
    played.finish(b)
    (again,) = played.lose()
    assert (again.run, again.vertex_id, again.attempt, again.commits) == (1, C, 1, False)
    assert played.state(B) is ExecutionState.FINISHED
    assert played.finish(c) == [], "word of the lost driver"
    (d,) = played.finish(again)
    played.finish(d)
    assert played.graph.status is JobStatus.FINISHED


def test_what_is_stored_is_only_moved_by_the_next_driver() -> None:
    played = Played(diamond()).begin()
    (a,) = played.starts
    played.tell(StageCommitStored(0.0, a.run, a.vertex_id, a.attempt))
    assert not played.scheduler.may_commit(a.run, a.vertex_id, a.attempt), "it has"
    (again,) = played.lose()
    assert (again.vertex_id, again.commits) == (A, True)
    assert played.scheduler.stages_in_place == (A,)
    assert ids(played.finish(again)) == [B, C]


def test_the_next_master_only_moves_what_is_stored() -> None:
    played = Played(diamond())
    played.tell(StagesRecovered((A, B)))
    played.begin()
    assert [(start.vertex_id, start.commits) for start in played.starts] == [(A, True), (B, True)]
    a, b = played.starts
    assert ids(played.finish(a)) == [C]
    assert played.finish(b) == []


def test_a_stage_runs_again_whose_temporary_outputs_went_with_their_host() -> None:
    played = Played(diamond()).begin()
    b, c = played.finish(played.starts[0])
    b, c = played.lose()
    (a,) = played.fail(b, lost=(A,))
    assert (a.vertex_id, a.commits, a.is_repeated) == (A, False, True)
    assert played.fail(c, lost=(A,)) == [], "it waits for the same stage"
    b, c = played.finish(a)
    assert ids([b, c]) == [B, C]
    # This driver has just written them itself: it would lose them again.
    assert played.fail(b, lost=(A,)) == []
    assert played.graph.status is JobStatus.FAILED


def test_a_stage_runs_again_whose_stored_outputs_are_gone() -> None:
    played = Played(diamond()).begin()
    (a,) = played.starts
    played.tell(StageCommitStored(0.0, a.run, a.vertex_id, a.attempt))
    (moves,) = played.lose()
    (again,) = played.fail(moves, lost=(A,))
    assert (again.vertex_id, again.commits, again.is_repeated) == (A, False, True)


def test_a_cancelled_pipeline_ends_in_order() -> None:
    played = Played(diamond()).begin()
    b, _ = played.finish(played.starts[0])
    played.tell(BatchJobCancelled(0.0))
    assert (played.graph.status, played.concluded) == (JobStatus.CANCELED, True)
    assert played.releases == [ReleaseSparkDriver(0, in_order=True)]
    assert played.finish(b) == []
    assert played.scheduler.phase_of(B) is StagePhase.ENDED


def committing_beside_another(restarts: int = 3) -> tuple[Played, StartStage, StartStage]:
    """A pipeline in which b moves its outputs while c runs."""
    played = Played(diamond(), restarts).begin()
    b, c = played.finish(played.starts[0])
    played.tell(StageCommitStored(0.0, b.run, b.vertex_id, b.attempt))
    return played, b, c


def test_outputs_of_which_a_part_may_be_visible_are_moved_though_no_restart_is_allowed() -> None:
    played, _, _ = committing_beside_another(restarts=0)
    (again,) = played.lose()
    assert (again.vertex_id, again.commits) == (B, True), "no function runs again"
    assert played.finish(again) == []
    assert (played.graph.status, played.graph.failure) == (JobStatus.FAILED, CAUSE)
    assert played.state(B) is ExecutionState.FINISHED


def test_a_job_whose_last_outputs_were_moved_by_another_driver_has_finished() -> None:
    played = Played(diamond(), restarts=0).begin()
    b, c = played.finish(played.starts[0])
    played.finish(b)
    (d,) = played.finish(c)
    played.tell(StageCommitStored(0.0, d.run, d.vertex_id, d.attempt))
    (again,) = played.lose()
    played.finish(again)
    assert played.graph.status is JobStatus.FINISHED


def test_a_job_is_cancelled_behind_the_moves_of_a_stage() -> None:
    played, _, _ = committing_beside_another()
    assert played.tell(BatchJobCancelled(0.0)) == []
    assert played.graph.status is JobStatus.RUNNING
    (again,) = played.lose()
    assert (again.vertex_id, again.commits) == (B, True), "c does not begin again"
    assert played.finish(again) == []
    assert (played.graph.status, played.concluded) == (JobStatus.CANCELED, True)
    assert played.state(B) is ExecutionState.FINISHED


def test_a_job_fails_behind_the_moves_of_a_stage() -> None:
    played, b, c = committing_beside_another()
    assert played.fail(c) == []
    assert played.graph.status is JobStatus.RUNNING
    assert played.finish(b) == []
    assert (played.graph.status, played.graph.failure) == (JobStatus.FAILED, CAUSE)


def test_a_job_fails_at_once_whose_outputs_cannot_be_moved() -> None:
    played, b, _ = committing_beside_another()
    assert played.fail(b) == []
    assert (played.graph.status, played.concluded) == (JobStatus.FAILED, True)


def test_a_stage_that_had_finished_is_in_place_while_it_runs_again() -> None:
    played = Played(diamond()).begin()
    played.finish(played.starts[0])
    b, _ = played.lose()
    played.fail(b, lost=(A,))
    # The next driver must not take what the job itself has left for a path that exists.
    assert A in played.scheduler.stages_in_place


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_happens_stages_begin_behind_others_and_the_job_ends(data: st.DataObject) -> None:
    played = Played(diamond(retries=1), restarts=4).begin()
    waits = {A: set[JobVertexID](), B: {A}, C: {A}, D: {B, C}}
    done: dict[JobVertexID, int] = {}
    for _ in range(40):
        if played.concluded:
            break
        present = [start for start in played.starts if start.run == played.scheduler.run]
        kind = data.draw(st.sampled_from(["finish", "finish", "finish", "store", "fail", "lose", "late"]))
        start = data.draw(st.sampled_from(played.starts if kind == "late" or not present else present))
        begun: list[StartStage] = []
        if kind == "lose":
            begun = played.lose()
        elif kind == "store":
            played.tell(StageCommitStored(0.0, start.run, start.vertex_id, start.attempt))
        elif kind == "fail":
            begun = played.fail(start)
        else:
            was = played.scheduler.phase_of(start.vertex_id)
            begun = played.finish(start)
            if was is not StagePhase.FINISHED and played.state(start.vertex_id) is ExecutionState.FINISHED:
                done[start.vertex_id] = done.get(start.vertex_id, 0) + 1
        for each in begun:
            assert waits[each.vertex_id] <= done.keys(), "it began before what it waits for"
            assert each.vertex_id not in done, "what has finished stays"
    assert set(done.values()) <= {1}
    if played.concluded:
        assert played.scheduler.phase is BatchPhase.ENDED
        assert played.graph.status in (JobStatus.FINISHED, JobStatus.FAILED)
        assert (played.graph.status is JobStatus.FINISHED) == (len(done) == 4)
