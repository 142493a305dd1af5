"""SlotHolds: counts who still needs each shared slot. A slot that nobody needs is released.

Owner: the JobMaster's loop. Pure. A subtask holds its slot until it has ended for good; a restarting subtask
keeps it. The split enumerator of a source holds the slot of subtask 0. A result holds its slot while a
consumer still has to read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from yarrow.am.jobmaster.scheduling.regions import Subtask, shared_slot
from yarrow.am.jobmaster.scheduling.slot_pool import SharedSlot, SlotPool
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex


class SlotHolds:
    """Counts the holders of each shared slot."""

    def __init__(self, job: JobGraph, pool: SlotPool) -> None:
        self._pool = pool
        self._vertices: dict[JobVertexID, JobVertex] = {vertex.id: vertex for vertex in job.vertices}
        self._holders: Counter[SharedSlot] = Counter()
        self._subtasks: set[Subtask] = set()
        self._results: set[Subtask] = set()
        #: Holding subtasks of each vertex: a source's enumerator lives until the last reader has ended.
        self._readers: Counter[JobVertexID] = Counter()
        for vertex in job.vertices:
            for index in range(vertex.parallelism):
                self.hold(Subtask(vertex.id, index))

    def restore(self, subtasks: Iterable[Subtask], results: Iterable[Subtask]) -> None:
        """Replaces all holds by those of a snapshot; releases no slot."""
        self._holders.clear()
        self._readers.clear()
        self._subtasks.clear()
        self._results.clear()
        for subtask in subtasks:
            self.hold(subtask)
        for subtask in results:
            self.hold_result(subtask)

    def slot_of(self, subtask: Subtask) -> SharedSlot:
        """The shared slot in which the subtask runs."""
        return shared_slot(self._vertices[subtask.vertex], subtask.number)

    def is_held(self, shared: SharedSlot) -> bool:
        """Whether anything needs the slot."""
        return self._holders[shared] > 0

    def hold(self, subtask: Subtask) -> None:
        """Notes that the subtask runs or will run; may be repeated."""
        if subtask in self._subtasks:
            return
        self._subtasks.add(subtask)
        self._holders[self.slot_of(subtask)] += 1
        vertex = self._vertices[subtask.vertex]
        self._readers[vertex.id] += 1
        if vertex.is_source and self._readers[vertex.id] == 1:
            self._holders[shared_slot(vertex, 0)] += 1

    def let_go(self, subtask: Subtask, now: float) -> None:
        """Notes that the subtask has ended for good; may be repeated."""
        if subtask not in self._subtasks:
            return
        self._subtasks.remove(subtask)
        vertex = self._vertices[subtask.vertex]
        self._readers[vertex.id] -= 1
        self._leave(self.slot_of(subtask), now)
        if vertex.is_source and self._readers[vertex.id] == 0:
            self._leave(shared_slot(vertex, 0), now)

    def hold_result(self, subtask: Subtask) -> None:
        """Notes that consumers read the subtask's result in its worker; may be repeated."""
        if subtask not in self._results:
            self._results.add(subtask)
            self._holders[self.slot_of(subtask)] += 1

    def let_go_result(self, subtask: Subtask, now: float) -> None:
        """Notes that the result is lost or has no reader any more; may be repeated."""
        if subtask in self._results:
            self._results.remove(subtask)
            self._leave(self.slot_of(subtask), now)

    def subtasks(self) -> tuple[Subtask, ...]:
        """The subtasks that run or will run."""
        return tuple(self._subtasks)

    def results(self) -> tuple[Subtask, ...]:
        """The subtasks whose results hold slots."""
        return tuple(self._results)

    def _leave(self, shared: SharedSlot, now: float) -> None:
        self._holders[shared] -= 1
        if self._holders[shared] == 0:
            self._pool.release(shared, now)
