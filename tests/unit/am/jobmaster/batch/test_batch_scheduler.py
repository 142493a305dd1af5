"""The decisions about bounded jobs, whatever happens in whatever order; and text of repeated runs."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting_ids import CountingIdFactory
from tests.support.job_graphs import Stage, linear_job
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.batch.batch_scheduler import (
    BatchAction,
    BatchEvent,
    BatchJobCancelled,
    BatchJobFailed,
    BatchJobStarted,
    BatchPhase,
    BatchScheduler,
    CommitBegun,
    ConcludeJob,
    Pause,
    PausePassed,
    ReleaseSparkDriver,
    RequestSparkDriver,
    RunFailed,
    RunFinished,
    SparkDriverEnded,
    SparkDriverLost,
    SparkSessionStarted,
    StagesReported,
    SubtasksReported,
)
from yarrow.am.jobmaster.batch.printed_text import PrintedText
from yarrow.am.jobmaster.scheduling.restart_strategies import FixedDelayBackoff, FixedDelaySettings
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import JobID, JobVertexID
from yarrow.runtime.graph.states import ExecutionState, JobType
from yarrow.runtime.rpc.messages import (
    BatchOutput,
    BatchStageProgress,
    BatchSubtaskResult,
    FailureCause,
)

GRAPH = msgspec.structs.replace(linear_job(Stage(1), Stage(2)), job_type=JobType.BATCH)
CAUSE = FailureCause(exception_name="builtins.ValueError", message="no", stacktrace="no")

runs = st.integers(0, 3)
vertices = st.sampled_from([vertex.id for vertex in GRAPH.vertices])
progress = st.builds(
    lambda vertex, state: BatchStageProgress(
        vertex_id=vertex, state=state, tasks_total=2, tasks_running=1, tasks_done=0
    ),
    vertices,
    st.sampled_from(
        [
            ExecutionState.CREATED,
            ExecutionState.RUNNING,
            ExecutionState.FINISHED,
            ExecutionState.FAILED,
            ExecutionState.CANCELED,
        ]
    ),
)
results = st.builds(
    lambda vertex, subtask: BatchSubtaskResult(vertex_id=vertex, subtask=subtask, attempt=0),
    vertices,
    st.integers(0, 3),
)
#: What comes from outside at any time, asked for or not.
surprises: st.SearchStrategy[BatchEvent] = st.one_of(
    st.builds(SparkSessionStarted, st.just(0.0), runs),
    st.builds(StagesReported, st.just(0.0), runs, progress.map(lambda each: (each,))),
    st.builds(SubtasksReported, st.just(0.0), runs, results.map(lambda each: (each,))),
    st.builds(RunFailed, st.just(0.0), runs, st.just(CAUSE)),
    st.builds(SparkDriverLost, st.just(0.0), runs, st.just(CAUSE)),
    st.builds(RunFinished, st.just(0.0), runs),
    st.builds(CommitBegun, st.just(0.0), runs),
    st.builds(BatchJobCancelled, st.just(0.0)),
    st.builds(BatchJobFailed, st.just(0.0), st.just(CAUSE)),
)


class Course:
    """A job whose actions are carried out when the test says so."""

    def __init__(self) -> None:
        clock = ManualClock(1)
        self.graph = ExecutionGraph(GRAPH, clock, CountingIdFactory())
        self.scheduler = BatchScheduler(self.graph, FixedDelayBackoff(FixedDelaySettings(2, 1.0)), clock)
        self.waiting: list[BatchAction] = []
        self.concluded = 0
        self.handle(BatchJobStarted(0.0))

    def handle(self, event: BatchEvent) -> None:
        for action in self.scheduler.handle(event):
            if isinstance(action, ConcludeJob):
                self.concluded += 1
            else:
                self.waiting.append(action)

    def carry_out(self) -> None:
        """Answers the oldest action that has an answer of its own."""
        match self.waiting.pop(0):
            case ReleaseSparkDriver(run):
                self.handle(SparkDriverEnded(0.0, run))
            case Pause():
                self.handle(PausePassed(0.0))
            case RequestSparkDriver(run):
                self.handle(SparkSessionStarted(0.0, run))


@given(st.lists(st.one_of(surprises, st.none()), max_size=30))
def test_every_course_ends_once_with_a_final_status(events: list[BatchEvent | None]) -> None:
    course = Course()
    for event in events:
        if event is not None:
            course.handle(event)
        elif course.waiting:
            course.carry_out()
        asked = sum(isinstance(action, RequestSparkDriver) for action in course.waiting)
        assert asked <= 1, "two drivers at a time"
        assert (course.concluded == 1) == (course.scheduler.phase is BatchPhase.ENDED)
    course.handle(BatchJobCancelled(0.0))
    if course.scheduler.commits:
        course.handle(BatchJobFailed(0.0, CAUSE))
    while course.waiting:
        course.carry_out()
    assert course.concluded == 1
    assert course.graph.status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED)
    assert course.graph.all_ended
    if course.graph.status is JobStatus.FAILED:
        assert course.graph.failure == CAUSE
    if course.graph.status is JobStatus.FINISHED:
        assert {each.state for each in course.graph.executions()} == {ExecutionState.FINISHED}


@given(
    st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=8),
    st.lists(st.integers(0, 40), max_size=3),
    st.integers(1, 4),
)
def test_text_of_repeated_runs_is_printed_once(lines: list[str], breaks: list[int], size: int) -> None:
    text, printed, found = "".join(lines), PrintedText(), ""
    for run, end in enumerate([*breaks, len(text)]):
        sent = text[:end]
        # Runs need not cut the text in the same places.
        width = size + run
        for begin in range(0, len(sent), width):
            found += printed.new_text(
                BatchOutput(
                    job_id=JobID("1"),
                    run=run,
                    vertex_id=JobVertexID("2"),
                    subtask=0,
                    first=begin,
                    text=sent[begin : begin + width],
                )
            )
    assert found == text
