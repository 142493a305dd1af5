"""A CheckpointCoordinator with a job that a test drives by hand: tasks, storage and clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from tests.support.job_graphs import Stage, linear_job
from yarrow.am.checkpoint.coordinator import CheckpointCoordinator
from yarrow.am.checkpoint.events import (
    Action,
    Discard,
    DiscardLocation,
    Event,
    FailJob,
    LocationReady,
    MetadataStored,
    Notify,
    PrepareLocation,
    Refused,
    Requested,
    StoreMetadata,
    Succeeded,
    TasksFinished,
    TriggerCoordinators,
    TriggerTasks,
    Wake,
)
from yarrow.am.checkpoint.plan import CheckpointPlan
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.execution.errors import failure_of
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import CheckpointFailedError
from yarrow.runtime.common.ids import ExecutionAttemptID, JobVertexID, OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointType, SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CheckpointMetrics,
    DeclineCheckpoint,
    FailureCause,
)
from yarrow.runtime.snapshot.handles import (
    DatabaseFile,
    FileStateHandle,
    InlineStateHandle,
    NamedOperatorState,
    OperatorStateHandle,
    OperatorStateMode,
    OperatorSubtaskState,
    RocksDBSnapshot,
    SerializerConfig,
    ValueFormat,
)


def attempt(number: int) -> ExecutionAttemptID:
    return ExecutionAttemptID(f"task-{number}")


def failure(message: str = "it broke") -> FailureCause:
    return failure_of(CheckpointFailedError, message)


def shared(*paths: str) -> OperatorSubtaskState:
    """A subtask whose database has these files."""
    files = tuple(
        DatabaseFile(name=path, handle=FileStateHandle(path=path, offset=0, length=1, sha256=b""))
        for path in paths
    )
    snapshot = RocksDBSnapshot(key_groups=(0, 127), backend_id="db", states=(), shared=files, private=())
    return OperatorSubtaskState(keyed=(snapshot,))


def list_state(mode: OperatorStateMode) -> OperatorSubtaskState:
    """A subtask with one list of one element."""
    value = SerializerConfig(format=ValueFormat.TYPED, type_spec="LONG")
    named = NamedOperatorState(name="seen", mode=mode, value=value, elements=((0, 1),))
    return OperatorSubtaskState(
        operator=(OperatorStateHandle(states=(named,), handle=InlineStateHandle(data=b"x")),)
    )


class SimulatedTasks:
    """Participants as the test says."""

    def __init__(self, tasks: int) -> None:
        #: As an ExecutionGraph holds it: a rescale puts another one here.
        self.job: JobGraph = linear_job(Stage(tasks), Stage(1))
        self.trouble = ""
        self.attempts = [attempt(number) for number in range(tasks)]
        self.at_end: frozenset[ExecutionAttemptID] = frozenset()
        self.coordinators: tuple[OperatorID, ...] = ()
        self.finished: dict[JobVertexID, tuple[int, ...]] = {}
        #: By task that has producers: these.
        self.producers: dict[ExecutionAttemptID, frozenset[ExecutionAttemptID]] = {}

    def problem(self) -> str:
        return self.trouble

    def all_await_end(self) -> frozenset[ExecutionAttemptID]:
        return self.at_end if self.at_end == frozenset(self.attempts) else frozenset()

    def plan(self) -> CheckpointPlan:
        vertex = JobVertexID(f"{1:032x}")
        return CheckpointPlan(
            trigger=tuple(self.attempts[:1]),
            acknowledge={each: (vertex, number) for number, each in enumerate(self.attempts)},
            coordinators=self.coordinators,
            finished=self.finished,
        )

    def cut_off(
        self, attempts: Collection[ExecutionAttemptID], plan: CheckpointPlan
    ) -> list[ExecutionAttemptID]:
        return sorted(
            each
            for each in attempts
            if each in self.producers and self.producers[each].isdisjoint(plan.acknowledge)
        )


class Simulation:
    """Carries out nothing by itself: actions are kept until the test answers them."""

    def __init__(self, tasks: int = 2, **settings: object) -> None:
        self.clock = ManualClock(1_000_000)
        self.tasks = SimulatedTasks(tasks)
        self.job = self.tasks.job
        self.settings = CheckpointSettings(**{"interval": 10.0, **settings})  # type: ignore[arg-type]
        #: Why the master tries storage again, by checkpoint.
        self.retried: dict[int, str] = {}
        self.coordinator = CheckpointCoordinator(
            self.settings,
            self.tasks,
            self.clock,
            retried_by_master=lambda checkpoint_id: self.retried.get(checkpoint_id, ""),
        )
        self.actions: list[Action] = []
        self._requests = 0
        # All tasks run: the first interval begins.
        self.handle(Wake())

    def first_without_enumerator(self) -> JobVertex:
        """The first vertex, whose operator is that of the second one from now on: no source."""
        first, second = self.job.vertices
        operators = (msgspec.structs.replace(first.operators[0], spec=second.operators[0].spec),)
        changed = msgspec.structs.replace(first, operators=operators)
        self.tasks.job = msgspec.structs.replace(self.job, vertices=(changed, second))
        return changed

    def handle(self, *events: Event) -> list[Action]:
        """The actions of these events; they are kept too."""
        found: list[Action] = []
        for event in events:
            found += self.coordinator.handle(event)
        self.actions += found
        return found

    def after(self, seconds: float) -> list[Action]:
        """Time passes; the coordinator is woken when it wants to be."""
        found: list[Action] = []
        end = self.clock.monotonic() + seconds
        while (due := self.coordinator.next_wake()) is not None and due <= end:
            self.clock.advance(max(0.0, due - self.clock.monotonic()))
            found += self.handle(Wake())
        self.clock.advance(max(0.0, end - self.clock.monotonic()))
        return [*found, *self.handle(Wake())]

    def request(
        self,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        cancel_job: bool = False,
        native: bool = False,
        checkpoint_type: CheckpointType = CheckpointType.CONFIGURED,
    ) -> list[Action]:
        self._requests += 1
        return self.handle(
            Requested(
                request_id=str(self._requests),
                kind=kind,
                directory="/sp",
                cancel_job=cancel_job,
                native=native,
                checkpoint_type=checkpoint_type,
            )
        )

    def located(self, checkpoint_id: int) -> list[Action]:
        return self.handle(
            LocationReady(checkpoint_id, CheckpointLocation(directory=f"/chk-{checkpoint_id}"))
        )

    def acknowledge(
        self, checkpoint_id: int, number: int, *files: str, finished: bool = False, inline: bytes = b""
    ) -> list[Action]:
        states = {OperatorID(f"{1:032x}"): shared(*files)} if files else {}
        return self.handle(
            AcknowledgeCheckpoint(
                job_id=self.job.job_id,
                checkpoint_id=checkpoint_id,
                attempt_id=attempt(number),
                states=states,
                metrics=CheckpointMetrics(checkpointed_size=5),
                finished=finished,
            )
        )

    def acknowledge_coordinator(self, checkpoint_id: int, operator: OperatorID) -> list[Action]:
        return self.handle(
            AcknowledgeCoordinator(
                job_id=self.job.job_id,
                checkpoint_id=checkpoint_id,
                operator_id=operator,
                state=InlineStateHandle(data=b"splits"),
            )
        )

    def decline(
        self,
        checkpoint_id: int,
        number: int | None = 0,
        message: str = "it broke",
        not_ready: bool = False,
        still_tried: bool = False,
    ) -> list[Action]:
        return self.handle(
            DeclineCheckpoint(
                job_id=self.job.job_id,
                checkpoint_id=checkpoint_id,
                attempt_id=ExecutionAttemptID("") if number is None else attempt(number),
                cause=failure(message),
                not_ready=not_ready,
                still_tried=still_tried,
            )
        )

    def finish(self, number: int, latest_checkpoint: int = -1) -> list[Action]:
        """A task ends by itself, after it has cut or declined that checkpoint."""
        return self.handle(TasksFinished({attempt(number): latest_checkpoint}))

    def stored(self, checkpoint_id: int) -> list[Action]:
        return self.handle(MetadataStored(checkpoint_id, f"/chk-{checkpoint_id}", 1000 + checkpoint_id))

    def complete(self, checkpoint_id: int, *files: str) -> list[Action]:
        """From the folder to the end."""
        self.located(checkpoint_id)
        for number in range(len(self.tasks.attempts)):
            self.acknowledge(checkpoint_id, number, *(files if number == 0 else ()))
        return self.stored(checkpoint_id)


def of(actions: Iterable[Action], kind: type[Action] | tuple[type[Action], ...]) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def names(actions: Sequence[Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


__all__ = [
    "Discard",
    "DiscardLocation",
    "FailJob",
    "Notify",
    "PrepareLocation",
    "Refused",
    "Simulation",
    "StoreMetadata",
    "Succeeded",
    "TriggerCoordinators",
    "TriggerTasks",
    "names",
    "of",
]
