"""A job with a loop in the calling thread, task by task in a drawn order, cut and killed wherever a test says.

All subtasks but those of the source run in one fragment. The run sends the rows of the source and its barriers, keeps
what the tasks hand over, and begins again from the last complete checkpoint, at any parallelism.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.container.chain.pending_snapshot import PendingSubtaskSnapshot, TaskName
from yarrow.container.fragment import Fragment, FragmentSubtask, subtasks_of
from yarrow.container.operators.base import RestoredState
from yarrow.container.sizing.slice_sizer import SliceSizer
from yarrow.container.task.task_life import TaskStage
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import (
    MAX_TIMESTAMP,
    BarrierAlignment,
    CheckpointBarrier,
    ControlElement,
    EndOfData,
    RowBatch,
    Watermark,
)
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.snapshot.assignment import assign
from yarrow.runtime.snapshot.handles import CheckpointMetadata, OperatorState, OperatorSubtaskState

#: More steps than any of these jobs needs.
_MOST_STEPS = 20_000

Parts = dict[FragmentSubtask, Mapping[OperatorID, OperatorSubtaskState]]


class Cut:
    """One checkpoint: how far the source had come, and what the tasks have handed over."""

    def __init__(self, number: int, sent: int) -> None:
        self.number = number
        self.sent = sent
        self.parts: Parts = {}

    def of(self, operator_id: OperatorID) -> list[OperatorSubtaskState]:
        """The state of an operator in all subtasks that have some."""
        return [states[operator_id] for states in self.parts.values() if operator_id in states]


class LoopRun:
    """One run of a job, over several attempts. `build(parallelism)` gives the graph, whose first vertex is the source.

    `rows` come one a batch. `seed` draws the order of the tasks.
    """

    def __init__(
        self, build: Callable[[int], JobGraph], rows: Sequence[Any], seed: int, settings: Mapping[str, str]
    ) -> None:
        self._build = build
        self._rows = rows
        self._random = random.Random(seed)
        self._settings = settings
        self.clock = ManualClock()
        self.cuts: dict[int, Cut] = {}
        self._number = 0
        self._complete: Cut | None = None
        self._killed_output: list[Any] = []

    # ------------------------------------------------------------------ attempts

    def start(self, parallelism: int) -> None:
        """Begins an attempt from the last complete checkpoint."""
        self.graph = self._build(parallelism)
        self._source = FragmentSubtask(self.graph.vertices[0].id)
        subtasks = [s for s in subtasks_of(self.graph) if s.vertex_id != self._source.vertex_id]
        self.sent = 0 if self._complete is None else self._complete.sent
        self.fragment = Fragment(
            self.graph,
            # A slice is one batch, so that feedback also waits when a head cuts.
            Settings(
                {
                    "taskmanager.network.channel.credit-batches": "1",
                    "execution.batch.slice-time": "1 ns",
                    **self._settings,
                }
            ),
            self.clock,
            subtasks=subtasks,
            restored=self._restored(subtasks),
            snapshots=self,
            write_output=self.printed.append,
        )
        self.fragment.build()
        for task in self.fragment.tasks:
            task.slices.sizer = SliceSizer(1.0, 2)
        self.fragment.start()
        self._ended = False

    @property
    def printed(self) -> list[str]:
        """Text that sinks of all attempts have written."""
        return self._killed_output

    def _restored(self, subtasks: Sequence[FragmentSubtask]) -> dict[FragmentSubtask, RestoredState] | None:
        cut = self._complete
        if cut is None:
            return None
        operators = tuple(
            OperatorState(
                operator_id=operator.id,
                name=operator.name,
                uid=operator.uid,
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                subtasks={
                    subtask.number: states[operator.id]
                    for subtask, states in cut.parts.items()
                    if subtask.vertex_id == vertex.id and operator.id in states
                },
            )
            for vertex in self._cut_graph.vertices
            for operator in vertex.operators
        )
        metadata = CheckpointMetadata(
            engine_version="test", job_id=self._cut_graph.job_id, job_name="loop", checkpoint_id=cut.number,
            timestamp_ms=0, kind=SnapshotKind.CHECKPOINT, operators=operators,
        )  # fmt: skip
        tasks = assign(metadata, self.graph).tasks
        return {
            subtask: RestoredState(
                cut.number, tasks.get((subtask.vertex_id, subtask.number), {}), read_inline
            )
            for subtask in subtasks
        }

    def kill(self) -> None:
        """Ends the attempt without any notice."""
        self.fragment.close()
        self.cuts = {number: cut for number, cut in self.cuts.items() if cut is self._complete}

    # ------------------------------------------------------------------ steps

    def send(self, element: ControlElement) -> None:
        """Sends a control element of the source; nothing takes it before a step."""
        for channel in self.fragment.inputs[self._source]:
            channel.send_control(element)

    def send_row(self) -> None:
        """Sends the next row, or the end behind the last one."""
        if self.sent < len(self._rows):
            channels = self.fragment.inputs[self._source]
            channels[self.sent % len(channels)].send_batch(RowBatch([self._rows[self.sent]]))
            self.sent += 1
        elif not self._ended:
            self._ended = True
            self.send(Watermark(MAX_TIMESTAMP))
            self.send(EndOfData())

    def begin_checkpoint(
        self, *, unaligned: bool = False, kind: SnapshotKind = SnapshotKind.CHECKPOINT
    ) -> Cut:
        """Sends a barrier behind the rows so far."""
        self._number += 1
        cut = self.cuts[self._number] = Cut(self._number, self.sent)
        options = CheckpointOptions(
            kind=kind, location=CheckpointLocation(directory=""), unaligned=unaligned, aligned_timeout_ms=0
        )
        alignment = BarrierAlignment.UNALIGNED if unaligned else BarrierAlignment.ALIGNED
        barrier = CheckpointBarrier(self._number, self.clock.epoch_ms(), alignment, options)
        self.send(barrier)
        # Behind the end of the source the JobMaster triggers the tasks that read it.
        if self._ended:
            for task, subtask in zip(self.fragment.tasks, self._subtasks, strict=True):
                reads = [edge.source for edge in self.graph.inputs_of(subtask.vertex_id)]
                if self._source.vertex_id in reads and task.life.is_live:
                    task.post(lambda task=task: task.trigger_checkpoint(barrier))  # type: ignore[misc]
        return cut

    @property
    def _subtasks(self) -> list[FragmentSubtask]:
        return [s for s in subtasks_of(self.graph) if s.vertex_id != self._source.vertex_id]

    def step(self) -> None:
        """One slice of a task that is drawn; tasks downstream come more often, so that feedback has to wait."""
        live = [task for task in self.fragment.tasks if task.life.stage is not TaskStage.ENDED]
        if live:
            self._random.choices(live, [number**2 for number in range(1, 1 + len(live))])[0].step()
        for channel in self.fragment.inputs[self._source]:
            channel.drain_overdraft()
        assert not self.fragment.failures, self.fragment.failures[0].stacktrace

    def finish(self) -> None:
        """Sends the rest, and runs until all tasks have ended."""
        while not self._ended:
            self.send_row()
            self.step()
        for _ in range(_MOST_STEPS):
            if all(task.life.stage is TaskStage.ENDED for task in self.fragment.tasks):
                break
            self.step()
        found = {task.environment.task_name: task.life.stage for task in self.fragment.tasks}
        assert set(found.values()) == {TaskStage.ENDED}, found
        assert {state for _, state in self.fragment.states} >= {ExecutionState.FINISHED}

    # ------------------------------------------------------------------ SnapshotReceiver

    def deliver(self, snapshot: PendingSubtaskSnapshot) -> None:
        """Keeps a part; the checkpoint is complete with the part of the last task."""
        cut = self.cuts.get(snapshot.checkpoint_id)
        if cut is None:
            snapshot.discard()
            snapshot.settled()
            return
        attempts = [task.environment.attempt_id for task in self.fragment.tasks]
        subtask = self._subtasks[attempts.index(snapshot.task.attempt_id)]
        cut.parts[subtask] = dict(snapshot.write(MemoryOutput()))
        snapshot.settled()
        if len(cut.parts) == len(self.fragment.tasks):
            self._complete, self._cut_graph = cut, self.graph
            for task in self.fragment.tasks:
                if task.life.is_live:
                    task.post(lambda task=task: task.checkpoint_completed(cut.number))  # type: ignore[misc]

    def decline(self, task: TaskName, checkpoint_id: int, error: BaseException) -> None:
        """No task of these jobs may decline while it runs."""
        if "is finishing" not in str(error):
            raise AssertionError(f"{task.name} declined checkpoint {checkpoint_id}") from error

    @property
    def completed(self) -> Cut | None:
        """The last complete checkpoint."""
        return self._complete

    def held_by(self, uid: str) -> int:
        """Number of elements that the last complete checkpoint holds as operator state of an operator."""
        assert self._complete is not None
        operator = next(o.id for v in self._cut_graph.vertices for o in v.operators if o.uid == uid)
        return sum(
            len(state.elements)
            for states in self._complete.of(operator)
            for handle in states.operator
            for state in handle.states
        )

    @property
    def channels_held(self) -> int:
        """Number of channels whose records the last complete checkpoint holds."""
        assert self._complete is not None
        parts = self._complete.parts.values()
        return sum(len(state.channels) for states in parts for state in states.values())

    def abort(self, cut: Cut) -> None:
        """Gives a checkpoint up at all tasks."""
        del self.cuts[cut.number]
        for task in self.fragment.tasks:
            task.post(lambda task=task: task.checkpoint_aborted(cut.number))  # type: ignore[misc]

    def end_stopped(self) -> None:
        """Runs until a savepoint that stops the job has ended all tasks."""
        for _ in range(_MOST_STEPS):
            if all(task.life.stage is TaskStage.ENDED for task in self.fragment.tasks):
                break
            self.step()
        stages = {task.environment.task_name: task.life.stage for task in self.fragment.tasks}
        assert set(stages.values()) == {TaskStage.ENDED}, stages
