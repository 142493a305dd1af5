"""JobScheduler under random failures, losses, late messages and cancels: one live attempt a subtask, and an end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import BROKEN, Scheduling
from tests.unit.am.jobmaster.scheduling.test_failover import PLAIN, edges, restarting
from yarrow.am.execution.execution_graph import Execution
from yarrow.am.jobmaster.scheduling.scheduler_actions import (
    Actions,
    ArmCancellationTimeout,
    ArmRestart,
    CancelTasksAction,
    DeclareRequirements,
    Deploy,
    FreeSlot,
    JobEnded,
)
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    CancellationTimedOut,
    JobCancelled,
    RestartDue,
    SlotLost,
    TaskExecutorLost,
)
from yarrow.am.jobmaster.scheduling.settings import FailoverScope
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, ResourceID
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.runtime.graph.states import ExecutionState

KINDS = st.sampled_from(
    [PartitionerKind.FORWARD, PartitionerKind.REBALANCE, PartitionerKind.KEY_GROUP, PartitionerKind.RESCALE]
)


class World:
    """TaskExecutors and timers around a scheduler: does what it asks for, in an order that a test draws."""

    def __init__(self, job: Scheduling) -> None:
        self.job = job
        self.live: dict[ExecutionAttemptID, Execution] = {}
        self.cancels: list[ExecutionAttemptID] = []
        self.timers: list[Callable[[], Actions]] = []
        self.declared = 0
        self.granted: set[AllocationID] = set()
        self.ended: list[JobStatus] = []
        self.carry_out(job.start())

    def carry_out(self, actions: Actions) -> None:
        for action in actions:
            match action:
                case Deploy(executions):
                    for execution in executions:
                        self._deploy(execution)
                case CancelTasksAction(_, attempts):
                    self.cancels += attempts
                case FreeSlot(slot, _):
                    self._end_worker(slot.allocation_id)
                case DeclareRequirements(slots):
                    self.declared = slots
                case ArmRestart(restart_id, _):
                    self.timers.append(partial(self._restart_due, restart_id))
                case ArmCancellationTimeout(None):
                    self.timers.append(lambda: self.job.handle(CancellationTimedOut(self.job.now, "late")))
                case JobEnded(status):
                    self.ended.append(status)
        self.check()

    def _restart_due(self, restart_id: int) -> Actions:
        return self.job.handle(RestartDue(self.job.now, restart_id))

    def _deploy(self, execution: Execution) -> None:
        same = [
            other
            for other in self.live.values()
            if (other.vertex.id, other.subtask) == (execution.vertex.id, execution.subtask)
        ]
        assert not same, (
            f"{execution.title}: attempts {same[0].attempt_number} and {execution.attempt_number} live"
        )
        assert execution.allocation_id in self.granted
        self.live[execution.attempt_id] = execution

    def check(self) -> None:
        graph = self.job.graph
        assert graph.live == sum(not execution.state.is_terminal for execution in graph.executions())
        assert len(self.ended) <= 1
        if self.ended:
            assert self.job.pool.held == 0 and not self.live and not self.granted and self.declared == 0

    # What may happen.

    def offer(self) -> bool:
        if len(self.granted) >= self.declared:
            return False
        name = AllocationID(f"a{self.job.offers_made}")
        self.granted.add(name)
        actions = self.job.offer(1, f"te{self.job.offers_made % 3}")
        taken = self.job.pool.allocation(name) is not None
        if not taken:
            self.granted.discard(name)
        self.carry_out(actions)
        return True

    def lose_slot(self, draw: int) -> bool:
        if not self.granted:
            return False
        name = sorted(self.granted)[draw % len(self.granted)]
        self._end_worker(name)
        self.carry_out(self.job.handle(SlotLost(self.job.now, name, BROKEN)))
        return True

    def lose_task_executor(self, draw: int) -> bool:
        name = ResourceID(f"te{draw % 3}")
        for slot in self.job.pool.held_slots():
            if slot.resource_id == name:
                self._end_worker(slot.allocation_id)
        self.carry_out(self.job.handle(TaskExecutorLost(self.job.now, name, BROKEN)))
        return True

    def _end_worker(self, allocation: AllocationID) -> None:
        self.granted.discard(allocation)
        self.live = {
            attempt: execution
            for attempt, execution in self.live.items()
            if execution.allocation_id != allocation
        }

    def report(self, state: ExecutionState, draw: int) -> bool:
        if not self.live:
            return False
        execution = self.live[sorted(self.live)[draw % len(self.live)]]
        if state.is_terminal:
            del self.live[execution.attempt_id]
        self.carry_out(self.job.report(state, execution, cause=BROKEN))
        return True

    def answer_cancel(self, draw: int) -> bool:
        if not self.cancels:
            return False
        attempt = self.cancels.pop(draw % len(self.cancels))
        execution = self.live.pop(attempt, None)
        if execution is not None:
            self.carry_out(self.job.report(ExecutionState.CANCELED, execution))
        return True

    def fire(self, draw: int) -> bool:
        if not self.timers:
            return False
        self.carry_out(self.timers.pop(draw % len(self.timers))())
        return True

    def settle(self) -> None:
        """No more faults: everything that was asked for happens, and every task finishes."""
        for _ in range(10_000):
            if self.ended:
                return
            moved = self.answer_cancel(0) or self.fire(0) or self.offer()
            moved = moved or self.report(ExecutionState.FINISHED, 0)
            assert moved, f"nothing happens any more: {self.job.graph.status}, {self.job.states()}"
        raise AssertionError("the job does not end")


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["offer", "offer", "run", "finish", "fail", "cancel", "fire", "slot", "executor"]),
        st.integers(0, 50),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), KINDS, st.booleans(), st.booleans()), min_size=1, max_size=3),
    EVENTS,
    st.sampled_from([0.0, 1.0]),
    st.sampled_from(FailoverScope),
    st.booleans(),
    st.integers(0, 60),
)
def test_one_live_attempt_a_subtask_and_an_end(
    shape: list[tuple[int, PartitionerKind, bool, bool]],
    events: list[tuple[str, int]],
    delay: float,
    scope: FailoverScope,
    plain_source: bool,
    cancelled_at: int,
) -> None:
    parallelism = [entry[0] for entry in shape]
    for index, (_, kind, _, _) in enumerate(shape[1:], start=1):
        if kind is PartitionerKind.FORWARD:
            parallelism[index] = parallelism[index - 1]
    stages = [
        Stage(
            parallelism[index],
            group="other" if other else "default",
            blocking=blocking and index > 0,
            operator=PLAIN if plain_source and index == 0 else None,
        )
        for index, (_, _, blocking, other) in enumerate(shape)
    ]
    job = edges(linear_job(*stages), *(kind for _, kind, _, _ in shape[1:]))
    world = World(restarting(job, attempts=3, delay=delay, scope=scope))
    cancelled = False
    for number, (event, draw) in enumerate(events):
        if world.ended:
            break
        if number == cancelled_at:
            cancelled = world.job.graph.machine.can(JobStatus.CANCELLING)
            world.carry_out(world.job.handle(JobCancelled(world.job.now)))
        match event:
            case "offer":
                world.offer()
            case "run":
                world.report(ExecutionState.RUNNING, draw)
            case "finish":
                world.report(ExecutionState.FINISHED, draw)
            case "fail":
                world.report(ExecutionState.FAILED, draw)
            case "cancel":
                world.answer_cancel(draw)
            case "fire":
                world.fire(draw)
            case "slot":
                world.lose_slot(draw)
            case "executor":
                world.lose_task_executor(draw)
    world.settle()
    (status,) = world.ended
    assert status is JobStatus.CANCELED or not cancelled
    world.job.replay()
