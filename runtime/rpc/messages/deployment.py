"""Messages that start tasks: the graph, the place of every subtask, and the state to restore.

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

#: The worker index of a subtask without a worker: its region is deployed later.
NOT_PLACED = -1


class TaskPlacement(Message, frozen=True, kw_only=True):
    """The place of one subtask: attempt id and index into the plan's `workers`."""

    attempt_id: ExecutionAttemptID
    worker: int


class VertexPlacement(Message, frozen=True, kw_only=True):
    """Placements of all subtasks of a vertex, by subtask index.

    On the wire it is two rows of small numbers. Every TaskExecutor of a job gets all placements, so their
    cost is subtasks times TaskExecutors.
    """

    vertex_id: JobVertexID
    #: First part of the attempt ids.
    graph_id: str
    #: For each subtask, the index into the plan's `workers`; NOT_PLACED if it waits for its slot.
    workers: tuple[int, ...]
    #: For each subtask, the number of its attempt.
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
    #: State to restore, by operator; empty if the task begins anew.
    restore: dict[OperatorID, OperatorSubtaskState] = msgspec.field(default_factory=dict)
    #: State of the split enumerator, for subtask 0 of a source whose enumerator starts with it.
    restore_coordinator: StateHandle | None = None
    #: Checkpoint of `restore`; -1 = none.
    restored_checkpoint_id: int = -1
    #: Base of relative paths in `restore`: the folder of its `_metadata`.
    restore_directory: str = ""
    #: True if pickled values in it may be read.
    restore_trusted: bool = True
    #: The latest savepoint of this job, -1 = none: other jobs may need the transactions that it names.
    latest_savepoint_id: int = -1
    #: True for a subtask that had finished at that checkpoint: it sends its consumers the end, and ends.
    finished_before: bool = False
    #: True for subtask 0 of a source whose split enumerator has outlived the former attempt in the same
    #: worker.
    enumerator_goes_on: bool = False


class Deployment(Message, frozen=True, kw_only=True):
    """The tasks of a job that one TaskExecutor starts at once.

    The graph and all placements are sent once, not once for each task.
    """

    job_id: JobID
    job_master_id: JobMasterID
    #: encode_job_graph(...), or empty with `job_graph_blob_key` set when larger than the inline limit.
    job_graph: bytes
    job_graph_blob_key: str = ""
    workers: tuple[WorkerAddress, ...]
    placements: tuple[VertexPlacement, ...]
    tasks: tuple[TaskDeploymentDescriptor, ...]
    #: Blob with the restored state, if it is larger than the inline limit; "" = the tasks contain it.
    restored_blob_key: str = ""
