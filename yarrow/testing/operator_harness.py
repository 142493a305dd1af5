"""Runs a fragment of a DataStream program in the calling thread, step by step: rows in, rows out, time by hand.

The fragment's operators run as the tasks they would be in a cluster (gate, generated chain, exchange by reference), at
parallelism 1 and without worker, threads or sockets. Owner: the calling thread. Must not be used to measure speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from yarrow.common.configuration import Configuration
from yarrow.common.typeinfo import TypeInformation
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.io_thread import IoThread
from yarrow.container.network.network_environment import NetworkEnvironment
from yarrow.container.network.output_channel import OutputChannel
from yarrow.container.operators.base import NOTHING_RESTORED, CollectMessage, RestoredState
from yarrow.container.protocol.worker_protocol import WorkerSettings
from yarrow.container.task.checkpointing.subtask_checkpoint_coordinator import SnapshotReceiver
from yarrow.container.task.slice_sizer import SliceSizer
from yarrow.container.task.stream_task import StreamTask
from yarrow.container.task.task_builder import TaskBuilder, TaskHooks
from yarrow.container.task.task_life import TaskStage
from yarrow.container.task.task_metrics import register_task_metrics
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.functions import SinkFunction
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import AllocationID, JobMasterID, JobVertexID, ResourceID, WorkerID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.elements import (
    ArrowBatch,
    CheckpointBarrier,
    ControlElement,
    EndOfData,
    RowBatch,
    StreamElement,
    Watermark,
    WatermarkStatus,
)
from yarrow.runtime.data.row_names import namer_for
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    Deployment,
    FailureCause,
    TaskDeploymentDescriptor,
    VertexPlacement,
    WorkerAddress,
)

#: Makes the streams to read from the input streams: one stream, or several (main output, side outputs).
Fragment = Callable[..., "DataStream | Sequence[DataStream]"]

#: What the tasks of a graph begin with, by vertex, and the graph with what it adopts from there.
Restore = Callable[[JobGraph], tuple[JobGraph, Mapping[JobVertexID, RestoredState]]]

_WORKER = WorkerID("harness/0")
#: More steps than any fragment needs between two inputs: a task that never comes to rest is a bug.
_MAX_STEPS = 1_000_000


class FragmentFailedError(Exception):
    """A task of the fragment has failed; `cause` is what a worker would report."""

    def __init__(self, cause: FailureCause) -> None:
        super().__init__(cause.stacktrace)
        self.cause = cause


class _Unread(SinkFunction[Any]):
    """Stands behind an output while the graph is built; the harness reads in its place."""

    def invoke(self, value: Any, context: Any) -> None:
        raise AssertionError("the harness reads outputs itself")


class OperatorHarness:
    """A running fragment. Use it as a context manager: operators are closed at its end.

    `fragment` is called with `inputs` streams; without any it is called with the environment, and begins with a source
    of its own, whose reader hears nothing from its enumerator. `types` declares the types of the inputs,
    `configuration` holds options of the job, `chunk_rows` caps the rows that a generated loop gets at once. `clock`
    moves by `advance` alone.
    """

    def __init__(
        self,
        fragment: Fragment,
        *,
        inputs: int = 1,
        types: Sequence[TypeInformation | None] | None = None,
        configuration: dict[str, str] | None = None,
        chunk_rows: int | None = None,
        clock: ManualClock | None = None,
        output_credit: int = 1 << 20,
        restore: Restore | None = None,
        snapshots: SnapshotReceiver | None = None,
    ) -> None:
        """`restore` gives the graph to run and what its tasks begin with; `snapshots` takes what a barrier has cut."""
        self.clock = clock if clock is not None else ManualClock()
        #: Batches that an output takes before the harness has read one.
        self._output_credit = output_credit
        #: True: outputs are not read, so that their credit runs out.
        self.hold_outputs = False
        #: What `print()` wrote.
        self.printed: list[str] = []
        #: (task name, state) in the order reported.
        self.states: list[tuple[str, ExecutionState]] = []
        #: Tasks that wait for somebody outside at the end of their input.
        self.waiting: list[str] = []
        #: The cause of each FAILED.
        self.failures: list[FailureCause] = []
        self._input_types = list(types) if types is not None else [None] * inputs
        self._snapshots = snapshots
        self._restored: Mapping[JobVertexID, RestoredState] = {}
        self.graph, outputs = self._build_graph(fragment, inputs, configuration or {})
        if restore is not None:
            self.graph, self._restored = restore(self.graph)
        self._io = IoThread()
        self._network = _without_sockets(self._io)
        self._tasks: list[StreamTask] = []
        self._closed = False
        #: Everything that came out, by output.
        self._elements: list[list[StreamElement]] = [[] for _ in range(outputs)]
        self._readers: list[list[InputChannel]] = []
        self._writers: list[list[OutputChannel]] = []
        try:
            self._deploy(inputs, outputs, chunk_rows)
        except BaseException:
            self.close()
            raise

    def _build_graph(
        self, fragment: Fragment, inputs: int, configuration: dict[str, str]
    ) -> tuple[JobGraph, int]:
        made = Configuration()
        for key, value in {"rest.bind-port": "0", **configuration}.items():
            made.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(made).set_parallelism(1)
        env.set_buffer_timeout(0)
        streams = [
            env.from_collection([], self._input_types[i])
            .disable_chaining()
            .name(_input(i).removeprefix("Source: "))
            for i in range(inputs)
        ]
        read = fragment(*streams) if inputs else fragment(env)
        outputs = [read] if isinstance(read, DataStream) else list(read)
        for index, stream in enumerate(outputs):
            stream.add_sink(_Unread()).disable_chaining().name(_output(index).removeprefix("Sink: "))
        return env.get_job_graph("operator harness"), len(outputs)

    def _deploy(self, inputs: int, outputs: int, chunk_rows: int | None) -> None:
        graph = self.graph
        cut = {_input(i) for i in range(inputs)} | {_output(i) for i in range(outputs)}
        placements = tuple(
            VertexPlacement(vertex_id=vertex.id, graph_id="harness", workers=(0,), attempts=(0,))
            for vertex in graph.vertices
        )
        attempts = {placement.vertex_id: placement.subtasks[0].attempt_id for placement in placements}
        address = WorkerAddress(
            worker_id=_WORKER, resource_id=ResourceID("harness"), host="", port=0, unix_path="", host_key=""
        )
        kept = [vertex for vertex in graph.vertices if vertex.operators[0].name not in cut]
        descriptors = [
            TaskDeploymentDescriptor(
                attempt_id=attempts[vertex.id],
                vertex_id=vertex.id,
                subtask=0,
                attempt_number=0,
                allocation_id=AllocationID("0" * 32),
            )
            for vertex in kept
        ]
        deployment = Deployment(
            job_id=graph.job_id,
            job_master_id=JobMasterID("0" * 32),
            job_graph=encode_job_graph(graph),
            workers=(address,),
            placements=placements,
            tasks=tuple(descriptors),
        )
        settings = Settings({}, "the operator harness").overlay(graph.configuration, "the job")
        hooks = TaskHooks(self, self._print, _no_enumerator, _no_collect, self._snapshots)
        for descriptor in descriptors:
            builder = TaskBuilder(
                deployment, graph, descriptor, settings, self._network, self.clock, hooks, _nothing
            )
            builder.restored = self._restored.get(descriptor.vertex_id, NOTHING_RESTORED)
            task = builder.build()
            register_task_metrics(task.environment.metrics, task)
            if chunk_rows is not None:
                task.slices.sizer = SliceSizer(1.0, chunk_rows)
            self._tasks.append(task)
        by_name = {vertex.operators[0].name: vertex for vertex in graph.vertices}
        codec = ElementCodec(serializer_for(None))
        for index in range(outputs):
            vertex = by_name[_output(index)]
            self._readers.append(
                [
                    self._network.open_input(
                        (attempts[vertex.id], edge.index, 0), codec, self._output_credit, 1 << 40, _nothing
                    )
                    for edge in graph.inputs_of(vertex.id)
                ]
            )
        for index in range(inputs):
            vertex = by_name[_input(index)]
            self._writers.append(
                [
                    self._network.open_output(
                        (attempts[edge.target], edge.index, 0),
                        attempts[vertex.id],
                        address,
                        codec,
                        _nothing,
                        False,
                    )
                    for edge in graph.outputs_of(vertex.id)
                ]
            )
        for task in reversed(self._tasks):
            task.start()
        self._check()

    # ------------------------------------------------------------------ what the tasks call

    def task_state_changed(self, task: StreamTask, state: ExecutionState, cause: FailureCause | None) -> None:
        """TaskListener."""
        self.states.append((task.environment.task_name, state))
        if state is ExecutionState.FAILED:
            assert cause is not None
            self.failures.append(cause)

    def end_of_data_reached(self, task: StreamTask) -> None:
        """TaskListener."""
        self.waiting.append(task.environment.task_name)

    def _print(self, text: str) -> None:
        self.printed += text.splitlines()

    # ------------------------------------------------------------------ input

    def push(self, *rows: Any, input: int = 0, timestamps: Sequence[int | None] | None = None) -> None:
        """Sends rows as one batch and runs until nothing moves. Raises FragmentFailedError.

        Rows of a declared type bear its names, as a source gives them.
        """
        name = namer_for(self._input_types[input])
        named = list(rows) if name is None else list(map(name, rows))
        self.send(RowBatch(named, None if timestamps is None else list(timestamps)), input)

    def push_batch(self, batch: Any, input: int = 0) -> None:
        """The same for a pyarrow RecordBatch, where the input leads to a columnar operator."""
        self.send(ArrowBatch(batch), input)

    def watermark(self, timestamp: int, input: int = 0) -> None:
        """Sends a watermark."""
        self.send(Watermark(timestamp), input)

    def idle(self, idle: bool = True, input: int = 0) -> None:
        """Declares an input idle, or active again."""
        self.send(WatermarkStatus(idle), input)

    def barrier(self, checkpoint_id: int, input: int = 0) -> None:
        """Sends a checkpoint barrier."""
        self.send(CheckpointBarrier(checkpoint_id, self.clock.epoch_ms()), input)

    def end(self, input: int | None = None) -> None:
        """Ends one input, or all of them."""
        for index in range(len(self._writers)) if input is None else (input,):
            self.send(EndOfData(), index)

    def send(self, element: StreamElement, input: int = 0) -> None:
        """Sends any element and runs until nothing moves."""
        for channel in self._writers[input]:
            if isinstance(element, RowBatch | ArrowBatch):
                channel.send_batch(element)
            else:
                channel.send_control(element)
        self.run()

    def advance(self, seconds: float) -> None:
        """Moves the clock and runs: due timers fire."""
        self.clock.advance(seconds)
        self.run()

    def run(self) -> None:
        """Steps all tasks, downstream first, until nothing moves."""
        for _ in range(_MAX_STEPS):
            moved = False
            for task in reversed(self._tasks):
                if task.life.stage is not TaskStage.ENDED and task.step():
                    moved = True
            for channels in self._writers:
                for channel in channels:
                    channel.drain_overdraft()
            if not self.hold_outputs and self._read():
                moved = True
            if not moved:
                break
        else:
            raise AssertionError("the fragment does not come to rest")
        self._check()

    def _read(self) -> bool:
        moved = False
        for elements, channels in zip(self._elements, self._readers, strict=True):
            for channel in channels:
                while channel.queued:
                    elements.append(channel.take())
                    moved = True
        return moved

    def _check(self) -> None:
        if self.failures:
            raise FragmentFailedError(self.failures[0])

    # ------------------------------------------------------------------ output

    @property
    def output(self) -> list[Any]:
        """Rows of the first output so far."""
        return self.outputs(0)

    def outputs(self, index: int) -> list[Any]:
        """Rows of an output so far."""
        return [row for element in self._batches(index) for row in element.rows]

    def timestamps(self, index: int = 0) -> list[int | None]:
        """Timestamps of the rows of an output."""
        found: list[int | None] = []
        for batch in self._batches(index):
            found += batch.timestamps if batch.timestamps is not None else [None] * len(batch)
        return found

    def _batches(self, index: int) -> list[RowBatch]:
        return [element for element in self._elements[index] if isinstance(element, RowBatch)]

    def record_batches(self, index: int = 0) -> list[Any]:
        """The pyarrow RecordBatches of a columnar output."""
        return [element.batch for element in self._elements[index] if isinstance(element, ArrowBatch)]

    def elements(self, index: int = 0) -> list[StreamElement]:
        """Everything of an output, control elements in their places."""
        return list(self._elements[index])

    def controls(self, index: int = 0) -> list[ControlElement]:
        """The control elements of an output."""
        return [e for e in self._elements[index] if not isinstance(e, RowBatch | ArrowBatch)]

    def take(self, index: int = 0) -> list[Any]:
        """Rows of an output since the last `take`; forgets them."""
        self._read()
        rows = self.outputs(index)
        self._elements[index].clear()
        return rows

    def metrics(self, task: int = 0) -> dict[str, float]:
        """Metrics of a task by name; tasks in topological order."""
        return self._tasks[task].environment.metrics.values()

    @property
    def tasks(self) -> tuple[StreamTask, ...]:
        """The tasks in topological order."""
        return tuple(self._tasks)

    @property
    def generated_code(self) -> str:
        """Source of the loops compiled so far."""
        return "\n".join(code.source for task in self._tasks for code in task.chain.loops.generated_sources())

    # ------------------------------------------------------------------ end

    def close(self) -> None:
        """Cancels what still runs, which closes its operators."""
        for task in self._tasks:
            task.cancel()
        if not self._closed:
            self._closed = True
            # Never started as a thread: one run of its loop closes what it holds.
            self._io.stop()
            self._io.run()

    def __enter__(self) -> OperatorHarness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _input(index: int) -> str:
    return f"Source: harness input {index}"


def _output(index: int) -> str:
    return f"Sink: harness output {index}"


def _nothing() -> None:
    return None


def _no_enumerator(builder: TaskBuilder, operator_id: str, target: int, source: int, payload: bytes) -> None:
    """What a reader tells its enumerator is not heard."""


def _no_collect(builder: TaskBuilder, message: CollectMessage) -> None:
    raise AssertionError("a fragment is read by the harness, not by execute_and_collect")


def _without_sockets(io_thread: IoThread) -> NetworkEnvironment:
    settings = WorkerSettings(
        worker_id=_WORKER,
        resource_id="harness",
        host="",
        host_key="",
        working_directory="",
        memory_budget_bytes=0,
        cpu_cores=1.0,
        configuration={},
        data_secret=b"",
    )
    return NetworkEnvironment(settings, io_thread)
