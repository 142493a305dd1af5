"""A JobScheduler with its time, fed with offers and reports."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tests.support.counting_ids import CountingIdFactory
from tests.unit.am.jobmaster.scheduling.test_slot_pool import offer
from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.replay import read_dump, replay
from yarrow.am.jobmaster.scheduling.restart_strategies import RestartBackoff
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions, SlotsAccepted
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    JobStarted,
    RestartDue,
    SchedulerEvent,
    SlotsOffered,
    TasksUpdated,
)
from yarrow.am.jobmaster.scheduling.scheduler_log import SchedulerLog
from yarrow.am.jobmaster.scheduling.settings import FailoverScope, SchedulerMode
from yarrow.am.jobmaster.scheduling.slot_pool import HeldSlot, SlotPool
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import AllocationID, ResourceID, WorkerID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause, SlotOffer, TaskExecutionStateUpdate

T = TypeVar("T")
BROKEN = FailureCause(exception_name="builtins.ValueError", message="broken", stacktrace="trace")


class Scheduling:
    """Drives one job."""

    def __init__(
        self,
        job: JobGraph,
        mode: SchedulerMode = SchedulerMode.EAGER,
        backoff: RestartBackoff | None = None,
        scope: FailoverScope = FailoverScope.REGION,
    ) -> None:
        self.clock = ManualClock(1000)
        self.graph = ExecutionGraph(job, self.clock, CountingIdFactory())
        self.pool = SlotPool(idle_timeout=50)
        self.scheduler = JobScheduler(self.graph, self.pool, mode, backoff, scope)
        #: Of few events, so that most tests replay from a snapshot that is not the first.
        self.log = SchedulerLog(self.scheduler, self.clock, events_kept=3)
        self._offers = 0
        #: False where a test changes the scheduler otherwise than by events.
        self.is_replayed = True

    @property
    def offers_made(self) -> int:
        """How many slots were offered so far: the next allocation is `a<number>`."""
        return self._offers

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def handle(self, event: SchedulerEvent) -> Actions:
        """Tells the scheduler."""
        return self.log.handle(event)

    def replay(self) -> None:
        """Decides the last events again, from the snapshot before them."""
        data = self.log.dump("a test has ended")
        assert data is not None
        replay(read_dump(data))

    def handle_due(self, restart_id: int) -> Actions:
        """The pause of a restart is over."""
        return self.handle(RestartDue(self.now, restart_id))

    def accepted(self, resource_id: ResourceID, *offers: SlotOffer) -> tuple[AllocationID, ...]:
        """Those of the slots that the job takes."""
        first = self.handle(SlotsOffered(self.now, resource_id, offers))[0]
        assert isinstance(first, SlotsAccepted)
        return first.allocations

    def start(self) -> Actions:
        return self.handle(JobStarted(self.now))

    def offer(self, slots: int, resource: str = "te") -> Actions:
        """Offers new slots of one TaskExecutor."""
        offers = [offer(f"a{self._offers + i}", i) for i in range(slots)]
        self._offers += slots
        return self.handle(SlotsOffered(self.now, ResourceID(resource), tuple(offers)))[1:]

    def offer_again(self, slot: HeldSlot, worker: str) -> Actions:
        """Offers the same slot, with the same allocation, with a new worker."""
        address = msgspec.structs.replace(slot.worker, worker_id=WorkerID(worker))
        again = SlotOffer(
            allocation_id=slot.allocation_id, slot_index=slot.slot_index, profile=slot.profile, worker=address
        )
        return self.handle(SlotsOffered(self.now, slot.resource_id, (again,)))[1:]

    def report(
        self, state: ExecutionState, *executions: Execution, cause: FailureCause | None = None
    ) -> Actions:
        """Reports a state of these executions, or of all that live."""
        chosen = executions or tuple(e for e in self.graph.executions() if not e.state.is_terminal)
        updates = tuple(
            TaskExecutionStateUpdate(attempt_id=e.attempt_id, state=state, timestamp_ms=0, cause=cause)
            for e in chosen
        )
        return self.handle(TasksUpdated(self.now, updates))

    def running(self, slots: int) -> None:
        """Brings the whole job to RUNNING."""
        self.start()
        self.offer(slots)
        self.report(ExecutionState.RUNNING)

    def status(self) -> JobStatus:
        """The job's, asked anew at each call."""
        return self.graph.status

    def states(self) -> list[str]:
        return [execution.state.name for execution in self.graph.executions()]

    def execution(self, vertex: int, subtask: int) -> Execution:
        return list(self.graph.vertices.values())[vertex].executions[subtask]


def of_kind(actions: Actions, kind: type[T]) -> list[T]:
    """Those of the actions that are of one kind."""
    return [action for action in actions if isinstance(action, kind)]
