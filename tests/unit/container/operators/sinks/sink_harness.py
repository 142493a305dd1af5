"""Drives the operator of a sink at any parallelism through checkpoints, kills, restores and rescales, by hand.

The job's input is a list of rows; what a checkpoint covers of it is part of the checkpoint, and a restored job reads on
from there. State goes through the engine's own operator state, encoded and read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import cloudpickle

from tests.support.task_environments import task_environment
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.common.values.error_handling import FAILING, ErrorHandling
from yarrow.container.operators.base import NOTHING_RESTORED, OperatorContext, RestoredState
from yarrow.container.operators.registry import build_operator
from yarrow.container.operators.sinks.sink_writing import SinkWritingOperator
from yarrow.datastream.connectors.base import Sink
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.graph.connector_spec import SinkWriterOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.snapshot.handles import (
    NamedOperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
)

JOB = JobID("0" * 31 + "1")
OPERATOR = OperatorID("0" * 31 + "2")
WITH_CHECKPOINTS = {"execution.checkpointing.interval": "1 s"}


class Killed(BaseException):
    """The process has died where it stood."""


@dataclass
class KillAt:
    """Dies at the `occurrence`-th time that a process stands at `point`."""

    point: str
    occurrence: int = 1
    fired: bool = False

    def reached(self, point: str, detail: dict[str, object]) -> None:
        """FaultPlanner."""
        if point == self.point and not self.fired:
            self.occurrence -= 1
            if self.occurrence == 0:
                self.fired = True
                raise Killed(point)


@contextmanager
def faults(planner: fault_points.FaultPlanner | None) -> Iterator[None]:
    """Installs a plan."""
    fault_points.install(planner)
    try:
        yield
    finally:
        fault_points.install(None)


@dataclass(frozen=True)
class Checkpoint:
    """What a restore needs."""

    id: int
    #: Rows of the input that it covers.
    position: int
    states: tuple[OperatorSubtaskState, ...]


def sink_operator(
    sink: Sink[Any],
    clock: ManualClock,
    subtask: int = 0,
    parallelism: int = 1,
    *,
    attempt: int = 0,
    configuration: dict[str, str] | None = None,
    restored: RestoredState = NOTHING_RESTORED,
    job: JobID = JOB,
    errors: ErrorHandling = FAILING,
) -> SinkWritingOperator:
    """An operator that is set up and not open yet."""
    environment = task_environment(
        clock,
        configuration,
        job_id=job,
        attempt_id=ExecutionAttemptID(f"attempt-{attempt}"),
        task_name="Sink: Writer",
        subtask=subtask,
        parallelism=parallelism,
        attempt_number=attempt,
        restored=restored,
    )
    spec = SinkWriterOperator(sink=cloudpickle.dumps(sink), tells_rows=sink.tells_refused_rows)
    descriptor = OperatorDescriptor(id=OPERATOR, name="Sink: Writer", spec=spec, errors=errors)
    operator = cast(SinkWritingOperator, build_operator(descriptor))
    operator.setup(OperatorContext.of(environment, descriptor))
    return operator


def snapshot(operator: SinkWritingOperator, checkpoint_id: int) -> OperatorSubtaskState:
    """One subtask's part of a checkpoint, as a task makes it."""
    operator.prepare_snapshot(checkpoint_id)
    operator.snapshot_state(checkpoint_id)
    pending = operator.context.operator_state.snapshot(checkpoint_id)
    return OperatorSubtaskState(operator=pending.write(MemoryOutput()))


def restored_from(checkpoint_id: int, state: OperatorSubtaskState) -> RestoredState:
    """What a task gets that restores the state."""
    return RestoredState(checkpoint_id, {OPERATOR: state}, read_inline)


def dealt_out(states: Sequence[OperatorSubtaskState], parallelism: int) -> list[OperatorSubtaskState]:
    """List states at another parallelism: the elements of each name go round."""
    parts: list[list[OperatorStateHandle]] = [[] for _ in range(parallelism)]
    turn: dict[str, int] = {}
    for handle in (handle for state in states for handle in state.operator):
        for named in handle.states:
            for element in named.elements:
                to = turn.get(named.name, 0) % parallelism
                turn[named.name] = to + 1
                one = NamedOperatorState(
                    name=named.name, mode=named.mode, value=named.value, elements=(element,)
                )
                parts[to].append(OperatorStateHandle(states=(one,), handle=handle.handle))
    return [OperatorSubtaskState(operator=tuple(part)) for part in parts]


class SinkJob:
    """All subtasks of a sink. Row i of the input goes to subtask i modulo parallelism."""

    def __init__(
        self,
        sink: Sink[Any],
        parallelism: int = 1,
        *,
        release: Callable[[SinkWritingOperator], None],
        configuration: dict[str, str] | None = None,
        job: JobID = JOB,
        start_from: Checkpoint | None = None,
        errors: ErrorHandling = FAILING,
        given: Callable[[list[Any]], list[Any]] = list,
    ) -> None:
        """`release` closes the open files of a subtask whose process was killed, as the system would.

        `errors` is what `on_error` says. `given` makes what the sink is given of rows of the input.
        """
        self.clock = ManualClock(1_700_000_000_000)
        self.completed = start_from
        self.position = 0
        #: Checkpoints are numbered over the whole life of the job.
        self.last_id = start_from.id if start_from is not None else 0
        self._sink = sink
        self._job = job
        self._release = release
        self._errors = errors
        self._given = given
        self._configuration = WITH_CHECKPOINTS if configuration is None else configuration
        self._attempt = 0
        self._parallelism = parallelism
        self.subtasks: list[SinkWritingOperator] = []
        self.start(parallelism)

    def start(self, parallelism: int | None = None) -> None:
        """Starts all subtasks from the last completed checkpoint."""
        self._parallelism = parallelism or self._parallelism
        checkpoint = self.completed
        self.position = checkpoint.position if checkpoint is not None else 0
        states = dealt_out(checkpoint.states, self._parallelism) if checkpoint is not None else None
        for subtask in range(self._parallelism):
            operator = sink_operator(
                self._sink,
                self.clock,
                subtask,
                self._parallelism,
                attempt=self._attempt,
                configuration=self._configuration,
                restored=NOTHING_RESTORED
                if checkpoint is None or states is None
                else restored_from(checkpoint.id, states[subtask]),
                job=self._job,
                errors=self._errors,
            )
            self.subtasks.append(operator)
            operator.open()
        self._attempt += 1

    def write(self, rows: Sequence[Any]) -> None:
        """Takes the input up to its first len(rows) rows: those before `position` are known already."""
        for subtask, operator in enumerate(self.subtasks):
            mine = [rows[i] for i in range(self.position, len(rows)) if i % len(self.subtasks) == subtask]
            if mine:
                operator.take_rows(self._given(mine), None)
        self.position = max(self.position, len(rows))

    def take_checkpoint(self) -> Checkpoint:
        """All subtasks acknowledge; whether it is complete is not decided yet."""
        self.last_id += 1
        states = tuple(snapshot(operator, self.last_id) for operator in self.subtasks)
        return Checkpoint(self.last_id, self.position, states)

    def complete(self, checkpoint: Checkpoint) -> None:
        """The coordinator knows that the checkpoint is complete; nobody is told."""
        self.completed = checkpoint

    def notify(self, checkpoint: Checkpoint) -> None:
        """All subtasks are told."""
        for operator in self.subtasks:
            operator.notify_checkpoint_complete(checkpoint.id)

    def abort(self, checkpoint: Checkpoint) -> None:
        """The checkpoint will never be complete."""
        for operator in self.subtasks:
            operator.notify_checkpoint_aborted(checkpoint.id)

    def checkpoint(self) -> None:
        """One that goes well."""
        taken = self.take_checkpoint()
        self.complete(taken)
        self.notify(taken)

    def kill(self) -> None:
        """All processes die; nothing is closed in order."""
        for operator in self.subtasks:
            self._release(operator)
        self.subtasks = []

    def cancel(self) -> None:
        """All subtasks are closed in order."""
        for operator in self.subtasks:
            operator.close()
        self.subtasks = []

    def advance(self, seconds: float) -> None:
        """Moves the clock; due upkeep is done."""
        self.clock.advance(seconds)
        for operator in self.subtasks:
            due = operator.seconds_until_upkeep()
            if due is not None and due <= 0:
                operator.upkeep()

    def end(self) -> None:
        """The input ends; the final checkpoint commits the tail."""
        for operator in self.subtasks:
            operator.finish()
        self.checkpoint()
        assert all(operator.is_drained for operator in self.subtasks)
        self.cancel()
