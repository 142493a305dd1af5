"""PendingCheckpoint: one checkpoint from its decision to its end, as a state machine with a transition table.

Owner: the JobMaster's loop. Pure: knows the missing parts, and makes the metadata when none is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

import msgspec

from yarrow import __version__
from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.checkpoint.plan import CheckpointPlan
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobVertexID, OperatorID
from yarrow.runtime.common.state_machine import StateMachine, transitions
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointType, SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.rpc.messages import AcknowledgeCheckpoint
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    OperatorState,
    OperatorStateMode,
    OperatorSubtaskState,
    StateHandle,
)


class CheckpointState(StrEnum):
    """The stages of a checkpoint; each checkpoint ends once, COMPLETED or ABORTED."""

    #: Its folder is being made.
    LOCATING = "LOCATING"
    #: Split enumerators have been asked for their states.
    COORDINATORS = "COORDINATORS"
    #: Barriers are flowing; tasks acknowledge.
    TASKS = "TASKS"
    #: All have acknowledged; its metadata is being written.
    STORING = "STORING"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"


_S = CheckpointState
CHECKPOINT_TRANSITIONS: Mapping[CheckpointState, frozenset[CheckpointState]] = transitions(
    {
        _S.LOCATING: (_S.COORDINATORS, _S.TASKS, _S.ABORTED),
        _S.COORDINATORS: (_S.TASKS, _S.ABORTED),
        _S.TASKS: (_S.STORING, _S.ABORTED),
        _S.STORING: (_S.COMPLETED, _S.ABORTED),
        _S.COMPLETED: (),
        _S.ABORTED: (),
    }
)


class PendingCheckpoint:
    """A checkpoint from its begin to its end."""

    def __init__(
        self,
        checkpoint_id: int,
        kind: SnapshotKind,
        clock: Clock,
        expires: float,
        request_id: str | None = None,
        *,
        native: bool = False,
        checkpoint_type: CheckpointType = CheckpointType.CONFIGURED,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.kind = kind
        #: Monotonic time in seconds at which it is aborted.
        self.expires = expires
        #: The id of its request; None = the interval began it.
        self.request_id = request_id
        self.native = native
        self.checkpoint_type = checkpoint_type
        self.timestamp_ms = clock.epoch_ms()
        self.machine: StateMachine[CheckpointState] = StateMachine(
            f"checkpoint {checkpoint_id}", CheckpointState.LOCATING, CHECKPOINT_TRANSITIONS, clock
        )
        self.location: CheckpointLocation | None = None
        self.plan: CheckpointPlan | None = None
        self.coordinator_states: dict[OperatorID, StateHandle] = {}
        self.acknowledgements: dict[ExecutionAttemptID, AcknowledgeCheckpoint] = {}
        #: By task: why storage is being retried, "" = not any more; the latest report is last. The key ""
        #: stands for enumerators.
        self.retried: dict[ExecutionAttemptID, str] = {}
        #: The metadata that are being written, from STORING on.
        self.stored: CheckpointMetadata | None = None

    @property
    def state(self) -> CheckpointState:
        """The present state."""
        return self.machine.state

    @property
    def has_ended(self) -> bool:
        """True when it is COMPLETED or ABORTED."""
        return self.machine.is_terminal

    @property
    def missing_coordinators(self) -> frozenset[OperatorID]:
        """Enumerators that have not acknowledged."""
        plan = self.plan
        return frozenset(plan.coordinators if plan else ()) - self.coordinator_states.keys()

    @property
    def missing_tasks(self) -> frozenset[ExecutionAttemptID]:
        """Tasks that have not acknowledged."""
        plan = self.plan
        return frozenset(plan.acknowledge if plan else ()) - self.acknowledgements.keys()

    def tasks_ended(self, ended: Collection[ExecutionAttemptID]) -> None:
        """Takes the end of missing tasks to which no barrier came: they count as ended before the checkpoint."""
        assert self.plan is not None
        self.plan = self.plan.without(ended)

    def trigger_also(self, attempts: Collection[ExecutionAttemptID]) -> tuple[ExecutionAttemptID, ...]:
        """Adds tasks to those that get the trigger; returns the ones that did not get it before."""
        assert self.plan is not None
        triggered = frozenset(self.plan.trigger)
        more = tuple(attempt for attempt in attempts if attempt not in triggered)
        if more:
            self.plan = self.plan.triggering(more)
        return more

    @property
    def last_retry(self) -> str:
        """Why a missing part's storage is being retried, from the latest report; "" = no report."""
        missing = self.missing_tasks | ({ExecutionAttemptID("")} if self.missing_coordinators else set())
        said = [reason for attempt, reason in self.retried.items() if reason and attempt in missing]
        return said[-1] if said else ""

    def shared_paths(self) -> Iterator[str]:
        """Shared files of the acknowledged parts."""
        directory = self.location.directory if self.location else ""
        for acknowledgement in self.acknowledgements.values():
            yield from shared_paths(acknowledgement, directory)

    def partly_ended_union(self, job: JobGraph) -> str:
        """The operator whose union list lacks the elements of subtasks that ended earlier; "" = none.

        A restore gives every subtask all elements of such a list, so a list without those of ended subtasks
        would be wrong. Sources keep their readers' progress in a union list. That list lacks nothing, because
        ended readers have no progress to keep.
        """
        assert self.plan is not None
        for attempt_id, (vertex_id, _) in self.plan.acknowledge.items():
            if not self.plan.finished.get(vertex_id):
                continue
            states = self.acknowledgements[attempt_id].states
            for operator in job.vertex(vertex_id).operators:
                state = states.get(operator.id)
                if (
                    state is not None
                    and _has_union(state)
                    and not operator.spec.ended_subtasks_leave_no_unions
                ):
                    return operator.name
        return ""

    def metadata(self, job: JobGraph, latest_savepoint_id: int = -1) -> CheckpointMetadata:
        """The metadata to write; every task has acknowledged."""
        parts: dict[tuple[JobVertexID, int], AcknowledgeCheckpoint] = {}
        assert self.plan is not None
        for attempt_id, place in self.plan.acknowledge.items():
            parts[place] = self.acknowledgements[attempt_id]
        states = [
            state
            for vertex in job.vertices
            for state in self._operators(vertex, parts, self.plan.finished.get(vertex.id, ()))
        ]
        return CheckpointMetadata(
            engine_version=__version__,
            job_id=job.job_id,
            job_name=job.name,
            checkpoint_id=self.checkpoint_id,
            timestamp_ms=self.timestamp_ms,
            kind=self.kind,
            operators=tuple(states),
            latest_savepoint_id=latest_savepoint_id if latest_savepoint_id >= 0 else msgspec.UNSET,
        )

    def completed(self, pointer: str) -> CompletedCheckpoint:
        """The completed checkpoint, whose metadata are written and found by `pointer`."""
        metadata, location = self.stored, self.location
        assert metadata is not None and location is not None
        return CompletedCheckpoint(
            checkpoint_id=self.checkpoint_id,
            kind=self.kind,
            metadata=metadata,
            directory=location.directory,
            pointer=pointer,
            shared=tuple(
                sorted({absolute(file.path, location.directory) for file in metadata.shared_files()})
            ),
            owned=not self.kind.is_savepoint,
        )

    def _operators(
        self,
        vertex: JobVertex,
        parts: Mapping[tuple[JobVertexID, int], AcknowledgeCheckpoint],
        finished: tuple[int, ...],
    ) -> Iterator[OperatorState]:
        own = {
            subtask: parts[vertex.id, subtask]
            for subtask in range(vertex.parallelism)
            if (vertex.id, subtask) in parts
        }
        ended = {*finished, *(subtask for subtask, part in own.items() if part.finished)}
        for operator in vertex.operators:
            subtasks: dict[int, OperatorSubtaskState] = {
                subtask: part.states[operator.id]
                for subtask, part in own.items()
                if operator.id in part.states and not part.states[operator.id].is_empty
            }
            coordinator = self.coordinator_states.get(operator.id)
            if subtasks or ended or coordinator is not None:
                yield OperatorState(
                    operator_id=operator.id,
                    name=operator.name,
                    uid=operator.uid,
                    parallelism=vertex.parallelism,
                    max_parallelism=vertex.max_parallelism,
                    subtasks=subtasks,
                    coordinator=coordinator,
                    finished_subtasks=tuple(sorted(ended)),
                    kind=operator.spec.state_kind or msgspec.UNSET,
                )


def _has_union(state: OperatorSubtaskState) -> bool:
    return any(named.mode is OperatorStateMode.UNION for part in state.operator for named in part.states)


def shared_paths(acknowledgement: AcknowledgeCheckpoint, directory: str) -> Iterator[str]:
    """Absolute paths of the shared files in a task's part."""
    for state in acknowledgement.states.values():
        for file in state.shared_files():
            yield absolute(file.path, directory)


def absolute(path: str, directory: str) -> str:
    """The absolute path of a file that a snapshot in `directory` names."""
    if path.startswith("/") or "://" in path or not directory:
        return path
    return f"{directory.rstrip('/')}/{path}"
