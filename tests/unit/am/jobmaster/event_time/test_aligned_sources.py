"""AlignedSources: when bounds leave, whom they reach, and what a lost message or an ended reader does."""

from __future__ import annotations

from tests.support.job_graphs import Stage, linear_job
from tests.support.manual_timers import ManualTimers
from tests.unit.am.jobmaster.scheduling.scheduling import Scheduling
from yarrow.am.jobmaster.event_time.aligned_sources import AlignedSources
from yarrow.am.jobmaster.links.named_timers import NamedTimers
from yarrow.common.watermark_strategy import MAX_TIMESTAMP
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import ExecutionAttemptID, ResourceID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import WatermarkBounds, WatermarkReport


class Receiver:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.bounds: list[WatermarkBounds] = []

    def send_bounds(self, bounds: WatermarkBounds) -> None:
        self.bounds.append(bounds)


class Aligned:
    """A running job whose source has two readers, and the bounds that reached its TaskExecutor."""

    def __init__(self) -> None:
        self.scheduling = Scheduling(linear_job(Stage(2)))
        self.scheduling.running(2)
        self.receiver = Receiver()
        self.links: dict[ResourceID, Receiver] = {}
        for execution in self.scheduling.graph.executions():
            assert execution.worker is not None
            self.links[execution.worker.resource_id] = self.receiver
        self.timers = ManualTimers(ManualClock())
        self.sources = AlignedSources(self.scheduling.graph, self.links, NamedTimers(self.timers))

    def report(self, subtask: int, reached: int | None, *, needs_bound: bool = False) -> None:
        self.sources.report(
            WatermarkReport(
                job_id=self.scheduling.graph.job.job_id,
                attempt_id=self.attempt(subtask),
                group="group",
                reached=reached,
                max_drift_ms=10,
                interval_ms=500,
                needs_bound=needs_bound,
            )
        )

    def attempt(self, subtask: int) -> ExecutionAttemptID:
        return self.scheduling.execution(0, subtask).attempt_id

    @property
    def last(self) -> list[int]:
        bounds = self.receiver.bounds[-1].bounds
        return [bounds[execution.attempt_id] for execution in self.scheduling.graph.executions()]


def test_a_reader_that_waits_for_its_first_bound_gets_it_at_once() -> None:
    aligned = Aligned()
    aligned.report(0, 100, needs_bound=True)
    aligned.report(1, 40, needs_bound=True)
    assert aligned.last == [50, 50]
    assert len(aligned.receiver.bounds) == 2


def test_bounds_follow_at_the_interval() -> None:
    aligned = Aligned()
    aligned.report(0, 100, needs_bound=True)
    aligned.report(1, 40, needs_bound=True)
    sent = len(aligned.receiver.bounds)
    aligned.report(1, 90)
    assert len(aligned.receiver.bounds) == sent, "a report that nobody waits for is answered at the interval"
    aligned.timers.advance(0.5)
    assert aligned.last == [100, 100]
    aligned.timers.advance(0.5)
    assert len(aligned.receiver.bounds) == sent + 2, "a bound is repeated: an earlier one may have been lost"


def test_idle_readers_do_not_count() -> None:
    aligned = Aligned()
    aligned.report(0, 100, needs_bound=True)
    aligned.report(1, None)
    aligned.timers.advance(0.5)
    assert aligned.last == [110, 110]
    aligned.report(0, None)
    aligned.timers.advance(0.5)
    assert aligned.last == [MAX_TIMESTAMP, MAX_TIMESTAMP]
    assert aligned.sources.least_of("group") is None
    assert aligned.sources.least_of("another") is None


def test_a_reader_that_has_ended_is_forgotten_and_the_last_one_ends_the_timer() -> None:
    aligned = Aligned()
    aligned.report(0, 100, needs_bound=True)
    aligned.report(1, 40, needs_bound=True)
    aligned.scheduling.report(ExecutionState.FINISHED, aligned.scheduling.execution(0, 1))
    aligned.timers.advance(0.5)
    assert aligned.receiver.bounds[-1].bounds == {aligned.attempt(0): 110}
    aligned.scheduling.report(ExecutionState.FINISHED, aligned.scheduling.execution(0, 0))
    aligned.timers.advance(0.5)
    sent = len(aligned.receiver.bounds)
    aligned.timers.advance(5)
    assert len(aligned.receiver.bounds) == sent
