"""Runs a fragment of a DataStream program in the calling thread, step by step: rows in, rows out, time by hand.

The fragment's operators run as their tasks in a cluster would (gate, generated chain, exchange by reference).
They run without worker, threads or sockets, at parallelism 1 unless the test says otherwise. Owner: the calling
thread. Must not be used to measure speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.fragment import FragmentFailedError as FragmentFailedError
from yarrow.container.fragment import FragmentSubtask
from yarrow.container.operators.base import RestoredState
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.container.sizing.slice_sizer import SliceSizer
from yarrow.container.task.checkpointing.subtask_checkpoint_coordinator import SnapshotReceiver
from yarrow.container.task.stream_task import StreamTask
from yarrow.container.task.task_life import TaskStage
from yarrow.embedded.open_fragment import OpenEnds, OpenFragment, StreamsOf
from yarrow.runtime.common.clock import ManualClock, perf_counter
from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.data.elements import (
    MAX_TIMESTAMP,
    ArrowBatch,
    CheckpointBarrier,
    ControlElement,
    RowBatch,
    StreamElement,
    WatermarkStatus,
)
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause
from yarrow.runtime.snapshot.handles import OperatorSubtaskState
from yarrow.testing.harness_snapshot import HarnessSnapshot, MemoryOutput, Subtask
from yarrow.testing.input_routing import InputRouting

#: Makes the streams to read from the input streams: one stream, or several (main output, side outputs).
Fragment = StreamsOf

#: The state with which the tasks of a graph begin, by vertex, and the graph with what it adopts from there.
Restore = Callable[[JobGraph], tuple[JobGraph, Mapping[JobVertexID, RestoredState]]]


#: Seconds after which `finish` gives up.
_FINISH_SECONDS = 60.0
#: Seconds for which it waits for results at a time.
_AWAIT_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class HarnessState:
    """The origin and the destination of a harness's state, and the subtasks among which it is divided."""

    #: Number of subtasks of each operator of the fragment.
    parallelism: int = 1
    #: The state with which the tasks begin; None = see `restore`.
    snapshot: HarnessSnapshot | None = None
    #: Return the graph to run and the state of its tasks; None = empty state.
    restore: Restore | None = None
    #: Hear of the snapshots that a barrier has cut.
    snapshots: SnapshotReceiver | None = None

    def restored(self, graph: JobGraph) -> tuple[JobGraph, Mapping[FragmentSubtask, RestoredState]]:
        """The graph to run, and the state of its subtasks."""
        if self.restore is not None:
            graph, of_vertices = self.restore(graph)
            return graph, {FragmentSubtask(vertex_id): own for vertex_id, own in of_vertices.items()}
        if self.snapshot is None:
            return graph, {}
        return graph, {FragmentSubtask(*place): own for place, own in self.snapshot.divided(graph).items()}


class OperatorHarness(OpenFragment):
    """A running fragment. Use it as a context manager: operators are closed at its end.

    `fragment` is called with `inputs` streams. Without any it is called with the environment, and begins with a source
    of its own, whose reader hears nothing from its enumerator. `types` declares the types of the inputs: a pyarrow
    Schema declares one of record batches. Then record batches that the fragment puts out are read
    as such, not as rows. `configuration` holds options of the job, `chunk_rows` caps the rows that a generated loop
    gets at once. `clock` moves by `advance` alone, `state` says what tasks begin with and who takes their snapshots.
    """

    def __init__(
        self,
        fragment: Fragment,
        *,
        inputs: int = 1,
        types: Sequence[TypeInformation | Any | None] | None = None,
        configuration: dict[str, str] | None = None,
        chunk_rows: int | None = None,
        clock: ManualClock | None = None,
        output_credit: int = 1 << 20,
        state: HarnessState | None = None,
    ) -> None:
        state = state if state is not None else HarnessState()
        #: The output of `print()`.
        self.printed: list[str] = []
        self._made_by = (fragment, inputs, types, configuration)
        self._chunk_rows = chunk_rows
        #: The last checkpoint that a barrier has begun.
        self._checkpoint_id = 0 if state.snapshot is None else state.snapshot.metadata.checkpoint_id
        self._routings: list[InputRouting | None] = []
        super().__init__(
            fragment,
            OpenEnds(inputs, types, state.parallelism, output_credit),
            configuration or {},
            clock if clock is not None else ManualClock(),
            state.restored,
            state.snapshots,
        )

    def _built(self) -> None:
        if self._chunk_rows is not None:
            for task in self.tasks:
                task.slices.sizer = SliceSizer(1.0, self._chunk_rows)
        self._routings = [self._routing(subtask) for subtask in self._inputs]

    def _routing(self, producer: FragmentSubtask) -> InputRouting | None:
        """How the elements of an input are divided among subtasks; None = there is one."""
        if self.parallelism == 1:
            return None
        graph = self.fragment.graph
        edges = [edge for edge in graph.edges if edge.source == producer.vertex_id]
        return InputRouting(graph, edges, self.fragment.inputs[producer])

    # ------------------------------------------------------------------ the fragment

    @property
    def states(self) -> list[tuple[str, ExecutionState]]:
        """(task name, state) in the order reported."""
        return self.fragment.states

    @property
    def waiting(self) -> list[str]:
        """Tasks that wait for somebody outside at the end of their input."""
        return self.fragment.waiting

    @property
    def failures(self) -> list[FailureCause]:
        """The cause of each FAILED."""
        return self.fragment.failures

    @property
    def hold_outputs(self) -> bool:
        """True: outputs are not read, so that their credit runs out."""
        return self.fragment.hold_outputs

    @hold_outputs.setter
    def hold_outputs(self, held: bool) -> None:
        self.fragment.hold_outputs = held

    def _write_output(self, text: str) -> None:
        self.printed += text.splitlines()

    # ------------------------------------------------------------------ input

    def push_batch(self, batch: Any, input: int = 0) -> None:
        """The same for a pyarrow RecordBatch, of an input that is declared by a Schema."""
        self.send(ArrowBatch(batch), input)

    def idle(self, idle: bool = True, input: int = 0) -> None:
        """Declares an input idle, or active again."""
        self.send(WatermarkStatus(idle), input)

    def barrier(self, checkpoint_id: int, input: int = 0) -> None:
        """Sends a checkpoint barrier."""
        self.send(CheckpointBarrier(checkpoint_id, self.clock.epoch_ms()), input)

    def send(self, element: StreamElement, input: int = 0) -> None:
        """Sends any element and runs until nothing moves."""
        if isinstance(element, CheckpointBarrier):
            self._checkpoint_id = max(self._checkpoint_id, element.checkpoint_id)
        routing = self._routings[input]
        if routing is None:
            super().send(element, input)
        else:
            routing.send(element)
            self.run()

    def finish(self) -> None:
        """Ends all inputs, at the maximum of event time, and runs until all tasks have finished.

        Waits for asynchronous functions. Raises FragmentFailedError, and TimeoutError if a task does not finish.
        """
        for index in range(len(self._inputs)):
            self.watermark(MAX_TIMESTAMP, index)
        self.end()
        until = perf_counter() + _FINISH_SECONDS
        while not all(task.life.stage is TaskStage.ENDED for task in self.tasks):
            if perf_counter() > until:
                raise TimeoutError(f"tasks have not finished: {self.states}")
            for task in self.tasks:
                if task.chain.awaits_results:
                    self._await_results(task)
            self.run()

    def _await_results(self, task: StreamTask) -> None:
        """Waits a moment for results of an asynchronous function. A call that has failed fails the task."""
        try:
            task.chain.head.await_results(_AWAIT_SECONDS)
        except OperatorFailure as error:
            task.fail(error)

    # ------------------------------------------------------------------ state

    def snapshot(self, meanwhile: Callable[[], object] | None = None) -> HarnessSnapshot:
        """The state of all operators now, as a savepoint has it.

        A job goes on while a checkpoint is written. So `meanwhile` is called when all tasks are cut and nothing is
        written yet. The snapshot must not have what it sends. Tasks end when it is written at the earliest.
        Raises RuntimeError if a task cannot be cut, because records wait before it that it has no room for.
        """
        self._checkpoint_id += 1
        live: list[StreamTask] = []
        epoch_ms = self.clock.epoch_ms()

        def go_on() -> None:
            live.extend(task for task in self.tasks if task.life.is_live)
            if meanwhile is not None:
                meanwhile()

        cut = self.fragment.snapshot(self._checkpoint_id, MemoryOutput(), meanwhile=go_on)
        missing = len(live) - len(cut)
        if missing > 0:
            raise RuntimeError(
                f"{missing} tasks could not be cut, because records wait before them: let the tasks go on first"
            )
        states: dict[Subtask, Mapping[OperatorID, OperatorSubtaskState]] = {
            (place.vertex_id, place.number): own for place, own in cut.items()
        }
        return HarnessSnapshot.of(self.graph, self._checkpoint_id, epoch_ms, states)

    def restarted(
        self,
        snapshot: HarnessSnapshot | None = None,
        *,
        parallelism: int = 1,
        fragment: Fragment | None = None,
    ) -> OperatorHarness:
        """A harness that begins with the state of a snapshot, by default of one that is made now. This one is closed.

        What came behind the snapshot is lost, as in a crash, and the clock is that of the snapshot. `fragment` is
        another version of the program; None = that of this harness.
        """
        snapshot = snapshot or self.snapshot()
        state = HarnessState(parallelism=parallelism, snapshot=snapshot)
        clock = ManualClock(snapshot.metadata.timestamp_ms)
        self.close()
        own, inputs, types, configuration = self._made_by
        return OperatorHarness(
            fragment or own, inputs=inputs, types=types, configuration=configuration, clock=clock, state=state
        )

    # ------------------------------------------------------------------ output

    @property
    def number_of_outputs(self) -> int:
        """Number of streams that the fragment has made."""
        return len(self._outputs)

    @property
    def output(self) -> list[Any]:
        """Rows of the first output so far."""
        return self.outputs(0)

    def timestamps(self, index: int = 0) -> list[int | None]:
        """Timestamps of the rows of an output."""
        found: list[int | None] = []
        for batch in self._batches(index):
            found += batch.timestamps if batch.timestamps is not None else [None] * len(batch)
        return found

    def before_cut(self, index: int = 0) -> list[StreamElement]:
        """The elements of an output so far, without those that came behind the cut of the last snapshot.

        It knows that until the next element is sent.
        """
        behind = set(map(id, self.fragment.behind_cut[self._outputs[index]]))
        return [element for element in self._elements(index) if id(element) not in behind]

    def controls(self, index: int = 0) -> list[ControlElement]:
        """The control elements of an output."""
        return [e for e in self._elements(index) if not isinstance(e, RowBatch | ArrowBatch)]

    def metrics(self, task: int = 0) -> dict[str, float]:
        """Metrics of a task by name; tasks in topological order."""
        return self.tasks[task].environment.metrics.values()

    @property
    def generated_code(self) -> str:
        """Source of the loops compiled so far."""
        return "\n".join(code.source for task in self.tasks for code in task.chain.loops.generated_sources())
