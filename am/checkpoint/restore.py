"""Where a job begins: the storage of its checkpoints and the snapshot it restores; and what each task gets of it.

Owner: `starting_point` blocks and runs in the Dispatcher's threads before anything of the job is started;
`restore_plan` is pure and runs on the JobMaster's loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.checkpoint.plan import enumerator_of
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.checkpoint.snapshot_files import MemoryFiles, SnapshotFiles
from yarrow.am.checkpoint.targets import checked_path
from yarrow.am.jobmaster.execution_graph import Execution
from yarrow.am.jobmaster.restore import RestorePlan, TaskRestore
from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.graph.job_graph import JobGraph


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """What a JobMaster needs to take checkpoints and to restore them."""

    files: SnapshotFiles
    restored: CompletedCheckpoint | None = None


def in_memory(settings: CheckpointSettings) -> StartingPoint:
    """A job that begins anew and keeps its checkpoints in the master's memory."""
    return StartingPoint(MemoryFiles(settings.max_inline_state))


def starting_point(job: JobGraph, settings: CheckpointSettings) -> tuple[JobGraph, StartingPoint]:
    """The job, with the max parallelism of what it restores, and where it begins. Blocking.

    Raises RestoreError naming operator, state and path when it cannot begin there, or path and key when its checkpoints
    cannot be written.
    """
    return job, in_memory(settings)


def dispose_savepoint(path: str) -> None:
    """Deletes a savepoint or retained checkpoint; refused for a folder that is none. Blocking."""
    checked_path(path, "savepoint to dispose of")


def restore_plan(
    job: JobGraph, checkpoint: CompletedCheckpoint, executions: Sequence[Execution]
) -> RestorePlan:
    """The parts of `checkpoint` for executions that are about to be deployed."""
    metadata = checkpoint.metadata
    states = {state.operator_id: state for state in metadata.operators}
    tasks: dict[ExecutionAttemptID, TaskRestore] = {}
    for execution in executions:
        vertex, subtask = execution.vertex, execution.subtask
        found = [states[operator.id] for operator in vertex.operators if operator.id in states]
        own = {state.operator_id: state.subtasks[subtask] for state in found if subtask in state.subtasks}
        enumerators = enumerator_of(vertex) if subtask == 0 else ()
        coordinator = states[enumerators[0]].coordinator if enumerators and enumerators[0] in states else None
        finished = bool(found) and all(
            state.fully_finished
            or (state.parallelism == vertex.parallelism and subtask in state.finished_subtasks)
            for state in found
        )
        if own or coordinator is not None or finished:
            tasks[execution.attempt_id] = TaskRestore(own, coordinator, finished)
    return RestorePlan(checkpoint.checkpoint_id, checkpoint.directory, tasks)
