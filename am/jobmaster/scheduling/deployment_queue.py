"""DeploymentQueue: subtasks that are to be deployed and wait for inputs or slots.

Owner: the JobMaster's loop, through the JobScheduler. Pure like the scheduler: returns actions. A unit is a
pipelined region or the whole job. Its subtasks are deployed together, once its inputs are complete and all
its slots are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.scheduling.failover import Failover
from yarrow.am.jobmaster.scheduling.regions import PipelinedRegion, Subtask, one_region, pipelined_regions
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions, DeclareRequirements, Deploy
from yarrow.am.jobmaster.scheduling.settings import SchedulerMode
from yarrow.am.jobmaster.scheduling.slot_holds import SlotHolds
from yarrow.am.jobmaster.scheduling.slot_pool import SlotPool
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.states import ExecutionState


class DeploymentUnit(msgspec.Struct, frozen=True):
    """Subtasks that are deployed together."""

    subtasks: tuple[Subtask, ...]
    #: Vertices that must have finished before the unit is deployed.
    inputs: frozenset[JobVertexID]


class DeploymentQueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state of a DeploymentQueue."""

    mode: SchedulerMode
    later: tuple[DeploymentUnit, ...]
    waiting: tuple[DeploymentUnit, ...]
    #: Slots of the last DeclareRequirements.
    declared: int


class DeploymentQueue:
    """The units of one job that wait for inputs or slots. At first the whole job waits."""

    def __init__(
        self,
        graph: ExecutionGraph,
        pool: SlotPool,
        holds: SlotHolds,
        failover: Failover,
        mode: SchedulerMode,
    ) -> None:
        self._graph = graph
        self._pool = pool
        self._holds = holds
        self._failover = failover
        self._mode = mode
        #: Units whose slots have not been asked for.
        self._later: list[DeploymentUnit] = self._all_units()
        #: Units that wait for slots.
        self._waiting: list[DeploymentUnit] = []
        self._declared = 0

    def snapshot(self) -> DeploymentQueueSnapshot:
        """What is to be deployed now."""
        return DeploymentQueueSnapshot(
            mode=self._mode,
            later=tuple(self._later),
            waiting=tuple(self._waiting),
            declared=self._declared,
        )

    def restore(self, snapshot: DeploymentQueueSnapshot) -> None:
        """Continues from a snapshot."""
        self._later, self._waiting = list(snapshot.later), list(snapshot.waiting)
        self._declared = snapshot.declared

    def job_replaced(self, holds: SlotHolds, failover: Failover) -> None:
        """Queues everything again, because the job continues at another parallelism."""
        self._holds = holds
        self._failover = failover
        self._later, self._waiting = self._all_units(), []

    @property
    def has_later(self) -> bool:
        """True while a unit waits for its inputs."""
        return bool(self._later)

    def waiting(self) -> Iterator[Subtask]:
        """Subtasks that wait for slots."""
        return (subtask for unit in self._waiting for subtask in unit.subtasks)

    def add(self, members: frozenset[Subtask]) -> None:
        """Queues these again, region by region, so that a region with all its slots need not wait for another."""
        subtasks = self._failover.subtasks
        order = {vertex: position for position, vertex in enumerate(self._graph.vertices)}
        by_region: dict[int, list[Subtask]] = {}
        for subtask in sorted(members, key=lambda each: (order[each.vertex], each.number)):
            by_region.setdefault(subtasks.region_of(subtask), []).append(subtask)
        for region in by_region.values():
            producers = (producer for each in region for _, producer in subtasks.blocking_producers(each))
            self._later.append(
                DeploymentUnit(tuple(region), frozenset(producer.vertex for producer in producers))
            )

    def forget(self, members: frozenset[Subtask]) -> None:
        """Drops subtasks that restart; their restart queues them again."""

        def without(units: list[DeploymentUnit]) -> list[DeploymentUnit]:
            kept = []
            for unit in units:
                left = tuple(subtask for subtask in unit.subtasks if subtask not in members)
                if left:
                    kept.append(DeploymentUnit(left, unit.inputs))
            return kept

        self._later = without(self._later)
        self._waiting = without(self._waiting)

    def clear(self) -> None:
        """Drops everything."""
        self._later.clear()
        self._waiting.clear()

    def schedule(self, one_by_one: bool) -> Actions:
        """Asks for the slots of units whose inputs are complete, and deploys units whose slots are there.

        `one_by_one`: the queue only waits for missing slots, which come one at a time.
        """
        ready = [unit for unit in self._later if self._inputs_complete(unit)]
        for unit in ready:
            self._later.remove(unit)
            self._waiting.append(unit)
            for subtask in unit.subtasks:
                self._execution(subtask).machine.transition(ExecutionState.SCHEDULED)
            self.require(sorted(unit.subtasks, key=lambda subtask: subtask.number))
        actions = self.declare()
        if self._pool.waiting and len(self._waiting) == 1 and one_by_one:
            # The common case while offers come in: there is no need to look at each subtask.
            return actions
        for unit in list(self._waiting):
            if self._place(unit):
                self._waiting.remove(unit)
                actions.append(Deploy(tuple(map(self._execution, unit.subtasks))))
        return actions

    def require(self, subtasks: Iterable[Subtask]) -> None:
        """Asks for the slots of these."""
        self._pool.require(self._holds.slot_of(subtask) for subtask in subtasks)

    def declare(self) -> Actions:
        """Declares the number of needed slots to the ResourceManager if it has changed."""
        required = self._pool.required
        if required == self._declared:
            return []
        self._declared = required
        return [DeclareRequirements(required)]

    def _all_units(self) -> list[DeploymentUnit]:
        eager = self._mode is SchedulerMode.EAGER and not self._failover.has_blocking_edges
        regions = one_region(self._graph.job) if eager else pipelined_regions(self._graph.job)
        return [self._unit_of(region) for region in regions]

    def _unit_of(self, region: PipelinedRegion) -> DeploymentUnit:
        return DeploymentUnit(
            tuple(
                Subtask(vertex, index)
                for vertex in region.vertices
                for index in range(len(self._graph.vertices[vertex].executions))
            ),
            region.blocking_inputs,
        )

    def _execution(self, subtask: Subtask) -> Execution:
        return self._graph.vertices[subtask.vertex].executions[subtask.number]

    def _inputs_complete(self, unit: DeploymentUnit) -> bool:
        return all(
            self._graph.vertices[source].counts[ExecutionState.FINISHED]
            == self._graph.vertices[source].vertex.parallelism
            for source in unit.inputs
        )

    def _place(self, unit: DeploymentUnit) -> bool:
        """Gives each execution its slot if all slots are there; else changes nothing."""
        slots = []
        for subtask in unit.subtasks:
            slot = self._pool.slot(self._holds.slot_of(subtask))
            if slot is None:
                return False
            slots.append(slot)
        for subtask, slot in zip(unit.subtasks, slots, strict=True):
            execution = self._execution(subtask)
            execution.worker = slot.worker
            execution.allocation_id = slot.allocation_id
            execution.machine.transition(ExecutionState.DEPLOYING)
        return True
