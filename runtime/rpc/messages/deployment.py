"""Messages that start tasks: the graph, the place of every subtask, and the state to begin from.

Owner: none (frozen values). User code appears only as opaque bytes; values of state only as handles.
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    JobID,
    JobMasterID,
    JobVertexID,
    OperatorID,
    execution_attempt_id,
)
from yarrow.runtime.rpc.messages.base import Message
from yarrow.runtime.rpc.messages.slots import WorkerAddress
from yarrow.runtime.snapshot.handles import OperatorSubtaskState, StateHandle

#: Index of the worker of a subtask that has none yet: its region is deployed later.
NOT_PLACED = -1


class TaskPlacement(Message, frozen=True, kw_only=True):
    """Where one subtask runs: attempt id and index into the plan's `workers`."""

    attempt_id: ExecutionAttemptID
    worker: int


class VertexPlacement(Message, frozen=True, kw_only=True):
    """Placements of all subtasks of a vertex, by subtask index.

    On the wire as two rows of small numbers: every TaskExecutor of a job gets all placements, so their cost
    is that of subtasks times TaskExecutors.
    """

    vertex_id: JobVertexID
    #: First part of the attempt ids.
    graph_id: str
    #: Of each subtask, the index into the plan's `workers`; NOT_PLACED of one that waits for its slot.
    workers: tuple[int, ...]
    #: Of each subtask, the number of its attempt.
    attempts: tuple[int, ...]

    @property
    def subtasks(self) -> tuple[TaskPlacement, ...]:
        """The placements, made anew at each call: keep them."""
        return tuple(
            TaskPlacement(
                attempt_id=execution_attempt_id(self.graph_id, self.vertex_id, subtask, attempt),
                worker=worker,
            )
            for subtask, (worker, attempt) in enumerate(zip(self.workers, self.attempts, strict=True))
        )


class TaskDeploymentDescriptor(Message, frozen=True, kw_only=True):
    """One subtask to start; its channels follow from the job graph's edges and the placements."""

    attempt_id: ExecutionAttemptID
    vertex_id: JobVertexID
    subtask: int
    attempt_number: int
    allocation_id: AllocationID
    #: State to restore, by operator; empty where the task begins anew.
    restore: dict[OperatorID, OperatorSubtaskState] = msgspec.field(default_factory=dict)
    #: State of the split enumerator, for subtask 0 of a source whose enumerator starts with it.
    restore_coordinator: StateHandle | None = None
    #: Checkpoint that `restore` belongs to; -1 = none.
    restored_checkpoint_id: int = -1
    #: Base of relative paths in `restore`: the folder of its `_metadata`.
    restore_directory: str = ""
    #: Pickled values in it may be read.
    restore_trusted: bool = True
    #: The latest savepoint of this job, -1 = none: what it names outside of state may be needed by other jobs.
    latest_savepoint_id: int = -1
    #: True for a subtask that had finished at that checkpoint: it sends what its consumers wait for and ends.
    finished_before: bool = False
    #: True for subtask 0 of a source whose split enumerator has outlived the former attempt, in this same worker.
    enumerator_goes_on: bool = False


class Deployment(Message, frozen=True, kw_only=True):
    """All that one TaskExecutor starts of a job at once.

    The graph and all placements travel once, not once for each task.
    """

    job_id: JobID
    job_master_id: JobMasterID
    #: encode_job_graph(...), or empty with `job_graph_blob_key` set when larger than the inline limit.
    job_graph: bytes
    job_graph_blob_key: str = ""
    workers: tuple[WorkerAddress, ...]
    placements: tuple[VertexPlacement, ...]
    tasks: tuple[TaskDeploymentDescriptor, ...]
    #: Blob of what the tasks restore, where that is larger than the inline limit; "" = it is in the tasks.
    restored_blob_key: str = ""
