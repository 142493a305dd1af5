"""Failover: which subtasks restart after a failure (jobmanager.execution.failover-strategy).

Owner: the JobMaster's loop. Pure decisions. restart_strategies.py decides when subtasks restart, restarts.py
how. The rules are Flink's, except that consumers of a restarted region restart only where they must.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.scheduling.regions import Subtask, SubtaskGraph, is_blocking
from yarrow.am.jobmaster.scheduling.settings import FailoverScope
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.job_graph import JobEdge
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.runtime.graph.states import ExecutionState

#: Partitioners whose channels hold other rows, or another order, when the producer runs again.
_NOT_REPRODUCIBLE = frozenset(
    {PartitionerKind.REBALANCE, PartitionerKind.SHUFFLE, PartitionerKind.RESCALE, PartitionerKind.CUSTOM}
)
#: States in which a source's enumerator may have begun. It may begin shortly after its subtask is
#: INITIALIZING; the report of the subtask's end tells.
_HAS_BEGUN = frozenset({ExecutionState.INITIALIZING, ExecutionState.RUNNING, ExecutionState.CANCELING})
_NOT_STARTED = frozenset({ExecutionState.CREATED, ExecutionState.SCHEDULED})


class Failover:
    """The regions of one job, and how they depend on each other."""

    def __init__(self, graph: ExecutionGraph, scope: FailoverScope) -> None:
        self._graph = graph
        self._scope = scope
        #: Finished producers whose results are gone.
        self._lost_results: set[Subtask] = set()
        self.has_blocking_edges = any(is_blocking(edge) for edge in graph.job.edges)

    @cached_property
    def subtasks(self) -> SubtaskGraph:
        """The graph of subtasks. It is made at the first failure, because most jobs never need it."""
        return SubtaskGraph(self._graph.job)

    def everything(self) -> frozenset[Subtask]:
        """All subtasks of the job."""
        return frozenset(self.subtasks.all())

    def tasks_to_restart(self, failed: Iterable[Subtask]) -> frozenset[Subtask]:
        """The regions of the failed subtasks, with all regions that have to restart with them."""
        if self._scope is FailoverScope.FULL:
            return self.everything()
        subtasks = self.subtasks
        todo = {subtasks.region_of(subtask) for subtask in failed}
        regions: set[int] = set()
        #: Sources whose readers all restart: each is looked at once, not once a reader.
        whole: set[JobVertexID] = set()
        while todo:
            region = todo.pop()
            regions.add(region)
            for member in subtasks.members(region):
                todo |= {subtasks.region_of(other) for other in self._along_with(member, whole)} - regions
        return frozenset(member for region in regions for member in subtasks.members(region))

    def _along_with(self, member: Subtask, whole: set[JobVertexID]) -> Iterable[Subtask]:
        has_enumerator = self._graph.vertices[member.vertex].vertex.has_enumerator
        if has_enumerator and member.vertex not in whole and not self._enumerator_lives(member.vertex):
            whole.add(member.vertex)
            # A new enumerator begins from a checkpoint, and does not know the splits given to other readers
            # since.
            yield from self.subtasks.of_vertex(member.vertex)
        if not self.has_blocking_edges:
            return
        for _, producer in self.subtasks.blocking_producers(member):
            if producer in self._lost_results:
                yield producer
        reproducible = self.subtasks.region_of(member) not in self._not_reproducible
        for edge, consumer in self.subtasks.blocking_consumers(member):
            if self._reads_anew(edge, consumer, reproducible):
                yield consumer

    def _reads_anew(self, edge: JobEdge, consumer: Subtask, reproducible: bool) -> bool:
        """True if a consumer must restart when its producer recomputes the result.

        `reproducible`: with identical rows.
        """
        state = self._execution(consumer).state
        if state in _NOT_STARTED:
            return False
        return not reproducible or edge.partitioner.kind in _NOT_REPRODUCIBLE or not state.is_terminal

    @cached_property
    def _not_reproducible(self) -> frozenset[int]:
        """Regions whose subtasks receive other rows when they run again, and so emit other rows.

        These are regions behind a partitioner that distributes rows differently each time, and all regions
        behind them.
        """
        subtasks, found = self.subtasks, set[int]()
        todo = {
            subtasks.region_of(target)
            for edge in self._graph.job.edges
            if edge.partitioner.kind in _NOT_REPRODUCIBLE
            for target in subtasks.of_vertex(edge.target)
        }
        while todo:
            region = todo.pop()
            found.add(region)
            for member in subtasks.members(region):
                todo |= {subtasks.region_of(each) for _, each in subtasks.blocking_consumers(member)} - found
        return frozenset(found)

    # Results of blocking edges.

    def result_lost(self, producer: Subtask) -> None:
        """Notes that the result of a finished producer is gone or corrupt."""
        self._lost_results.add(producer)

    def lost_results(self) -> tuple[Subtask, ...]:
        """Finished producers whose results are gone."""
        return tuple(self._lost_results)

    def result_restarts(self, members: Iterable[Subtask]) -> None:
        """Notes that these subtasks will produce their results anew."""
        self._lost_results.difference_update(members)

    def is_result_needed(self, producer: Subtask) -> bool:
        """Whether a consumer still has to read the producer's result."""
        if not self.has_blocking_edges:
            return False
        return any(
            self._execution(consumer).state is not ExecutionState.FINISHED
            for _, consumer in self.subtasks.blocking_consumers(producer)
        )

    def _execution(self, subtask: Subtask) -> Execution:
        return self._graph.vertices[subtask.vertex].executions[subtask.number]

    # Split enumerators.

    def readers_without_coordinator(self, lost: Iterable[Execution]) -> set[Subtask]:
        """Unfinished readers of the sources whose enumerator lived beside one of the `lost` subtasks."""
        found: set[Subtask] = set()
        for execution in lost:
            if execution.subtask == 0 and execution.vertex.has_enumerator and self._is_unfinished(execution):
                found.update(self.subtasks.of_vertex(execution.vertex.id))
        return found

    def _is_unfinished(self, execution: Execution) -> bool:
        readers = self._graph.vertices[execution.vertex.id]
        return readers.counts[ExecutionState.FINISHED] < len(readers.executions)

    def _enumerator_lives(self, vertex: JobVertexID) -> bool:
        first = self._execution(Subtask(vertex, 0))
        return first.enumerator_lives if first.state.is_terminal else first.state in _HAS_BEGUN

    def readers_lost_since(self, members: frozenset[Subtask]) -> frozenset[Subtask]:
        """Subtasks that must restart with these, because an enumerator has ended since they were chosen."""
        late = {
            reader
            for vertex in {member.vertex for member in members}
            if self._graph.vertices[vertex].vertex.has_enumerator and not self._enumerator_lives(vertex)
            for reader in self.subtasks.of_vertex(vertex)
        }
        return self.tasks_to_restart(late) - members if late - members else frozenset()

    def readers_left_behind(self, execution: Execution) -> frozenset[Subtask]:
        """Readers that must start again because their enumerator has ended.

        The enumerator ended when all its readers had finished, but one reader has a new attempt that nobody
        would answer.
        """
        if execution.finished_readers is None:
            return frozenset()
        done = set(execution.finished_readers)
        others = self._graph.vertices[execution.vertex.id].executions[1:]
        if all(other.attempt_id in done for other in others):
            return frozenset()
        return self.tasks_to_restart(self.subtasks.of_vertex(execution.vertex.id))

    def readers_to_reset(self, members: frozenset[Subtask]) -> list[Subtask]:
        """Readers whose enumerator runs on and has to take back their splits.

        An enumerator whose readers all restart is started anew.
        """
        sources = {
            vertex
            for vertex in {member.vertex for member in members}
            if self._graph.vertices[vertex].vertex.has_enumerator
            and not members.issuperset(self.subtasks.of_vertex(vertex))
        }
        return sorted(member for member in members if member.vertex in sources)
