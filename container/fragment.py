"""Fragment: subtasks of a JobGraph that run in the calling thread, without a worker, sockets or a JobMaster.

Owner: the calling thread. The subtasks are those of a cluster (gate, generated chain, exchange by reference).
The caller sends and reads the elements of channels to other subtasks. A reader gets no event from its
enumerator. It must not know its user, nor handle failures.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from yarrow.container.chain.chain_compiler import ChainCompiler
from yarrow.container.chain.pending_snapshot import PendingSubtaskSnapshot, TaskName
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.io_thread import IoThread
from yarrow.container.network.network_environment import NetworkEnvironment
from yarrow.container.network.output_channel import OutputChannel
from yarrow.container.network.result_partition import ResultPartition
from yarrow.container.operators.base import (
    NOTHING_RESTORED,
    CollectMessage,
    Operator,
    OperatorContext,
    RestoredState,
)
from yarrow.container.operators.registry import build_operator
from yarrow.container.protocol.worker_protocol import WorkerSettings
from yarrow.container.task.checkpointing.subtask_checkpoint_coordinator import NoSnapshots, SnapshotReceiver
from yarrow.container.task.stream_task import StreamTask
from yarrow.container.task.task_builder import TaskBuilder, TaskHooks
from yarrow.container.task.task_life import TaskStage
from yarrow.container.task.task_metrics import register_task_metrics
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import (
    AllocationID,
    ExecutionAttemptID,
    JobMasterID,
    JobVertexID,
    OperatorID,
    RandomIdFactory,
    ResourceID,
    WorkerID,
)
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import ArrowBatch, CheckpointBarrier, RowBatch, StreamElement
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.graph.distribution import consumers_of
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    Deployment,
    FailureCause,
    TaskDeploymentDescriptor,
    VertexPlacement,
    WorkerAddress,
)
from yarrow.runtime.snapshot.handles import OperatorSubtaskState
from yarrow.runtime.snapshot.output import SnapshotOutput

_WORKER: Final = WorkerID("fragment/0")
_RESOURCE: Final = ResourceID("fragment")
_ADDRESS: Final = WorkerAddress(
    worker_id=_WORKER, resource_id=_RESOURCE, host="", port=0, unix_path="", host_key=""
)
#: More steps than any fragment needs between two inputs: a task that never rests is a bug.
_MAX_STEPS: Final = 1_000_000
#: Bytes that an output takes before it is read; batches are bounded instead.
_ALL_BYTES: Final = 1 << 40
_AS_SAVEPOINT: Final = CheckpointOptions(
    kind=SnapshotKind.SAVEPOINT, location=CheckpointLocation(directory="")
)


class FragmentSubtask(NamedTuple):
    """A subtask of a graph."""

    vertex_id: JobVertexID
    #: From 0.
    number: int = 0


class FragmentFailedError(Exception):
    """A task of the fragment has failed; `cause` is the report of a worker."""

    def __init__(self, cause: FailureCause) -> None:
        super().__init__(cause.stacktrace)
        self.cause = cause


def subtasks_of(graph: JobGraph) -> list[FragmentSubtask]:
    """All subtasks, upstream first."""
    return [
        FragmentSubtask(vertex.id, index) for vertex in graph.vertices for index in range(vertex.parallelism)
    ]


def _nothing() -> None:
    return None


def _nowhere(text: str) -> None:
    """Drops the output of `print()`."""


class Fragment:
    """Some or all subtasks of a JobGraph. Use it as a context manager: operators are closed at its end.

    Before `start` it answers questions about its operators: `generated_code`, `context`, `operator`. From
    `start` on it runs as `run_until_idle` and `push` drive it.
    """

    def __init__(
        self,
        graph: JobGraph,
        settings: Settings,
        clock: Clock,
        *,
        subtasks: Collection[FragmentSubtask] | None = None,
        restored: Mapping[FragmentSubtask, RestoredState] | None = None,
        snapshots: SnapshotReceiver | None = None,
        write_output: Callable[[str], None] = _nowhere,
        output_credit: int = 1 << 20,
    ) -> None:
        """Makes a fragment of a JobGraph that runs in this process.

        `subtasks` are those that run here; without it, all do. `restored` holds their states; others begin
        empty. `snapshots` takes the parts that barriers cut, in place of `snapshot`. `write_output` takes the
        output of `print()`. `output_credit` is the number of batches that an output takes before one has been
        read.
        """
        self.graph = graph
        self._clock = clock
        self._output_credit = output_credit
        #: True: outputs are not read, so that their credit is used up.
        self.hold_outputs = False
        #: (task name, state) in the order of the reports.
        self.states: list[tuple[str, ExecutionState]] = []
        #: Names of tasks that wait at the end of their input for somebody outside.
        self.waiting: list[str] = []
        #: The cause of each failure.
        self.failures: list[FailureCause] = []
        here = [subtask for subtask in subtasks_of(graph) if subtasks is None or subtask in subtasks]
        outside = [subtask for subtask in subtasks_of(graph) if subtask not in here]
        #: Channels to and from other subtasks, by those subtasks.
        self.inputs: dict[FragmentSubtask, list[OutputChannel]] = {subtask: [] for subtask in outside}
        self.outputs: dict[FragmentSubtask, list[InputChannel]] = {subtask: [] for subtask in outside}
        #: All output elements so far, by receiving subtask.
        self.elements: dict[FragmentSubtask, list[StreamElement]] = {subtask: [] for subtask in outside}
        #: Those of them that came behind the barrier of the last snapshot, until it was written.
        self.behind_cut: dict[FragmentSubtask, list[StreamElement]] = {subtask: [] for subtask in outside}
        self._cuts = _Cuts()
        self._tasks: dict[FragmentSubtask, StreamTask] = {}
        self._closed = False
        placements = tuple(
            VertexPlacement(
                vertex_id=vertex.id,
                graph_id=graph.job_id,
                workers=(0,) * vertex.parallelism,
                attempts=(0,) * vertex.parallelism,
            )
            for vertex in graph.vertices
        )
        self._attempts = {
            FragmentSubtask(placement.vertex_id, index): ExecutionAttemptID(subtask.attempt_id)
            for placement in placements
            for index, subtask in enumerate(placement.subtasks)
        }
        #: Folder for files of state backends, which make it when needed.
        self._directory = Path(tempfile.gettempdir()) / f"yarrow-fragment-{RandomIdFactory().hex_id()}"
        self._io = IoThread()
        self._network = _without_sockets(self._io, self._directory)
        hooks = TaskHooks(self, write_output, _no_enumerator, _no_collect, snapshots or self._cuts)
        descriptors = {subtask: self._descriptor(subtask) for subtask in here}
        deployment = Deployment(
            job_id=graph.job_id,
            job_master_id=JobMasterID("0" * 32),
            job_graph=b"",
            workers=(_ADDRESS,),
            placements=placements,
            tasks=tuple(descriptors.values()),
        )
        self._builders: dict[FragmentSubtask, TaskBuilder] = {}
        for subtask, descriptor in descriptors.items():
            builder = TaskBuilder(
                deployment, graph, descriptor, settings, self._network, clock, hooks, _nothing
            )
            builder.restored = (restored or {}).get(subtask, NOTHING_RESTORED)
            self._builders[subtask] = builder

    def _descriptor(self, subtask: FragmentSubtask) -> TaskDeploymentDescriptor:
        return TaskDeploymentDescriptor(
            attempt_id=self._attempts[subtask],
            vertex_id=subtask.vertex_id,
            subtask=subtask.number,
            attempt_number=0,
            allocation_id=AllocationID("0" * 32),
        )

    # ------------------------------------------------------------------ before it runs

    def context(
        self, subtask: FragmentSubtask, operator: int = 0, *, key_groups: KeyGroupRange | None = None
    ) -> OperatorContext:
        """The context that an operator's task would give it, with restored state.

        `key_groups` are restored in place of those of the subtask, for callers that read state part by part.
        The caller disposes of the keyed backend. Mails run at once, because no task runs.
        """
        builder = self._builders[subtask]
        environment = dataclasses.replace(builder.task_environment(), post=_at_once)
        return OperatorContext.of(environment, builder.vertex.operators[operator], key_groups)

    def operator(self, subtask: FragmentSubtask, operator: int = 0) -> Operator:
        """A single operator of a vertex, set up and not opened; the caller closes it.

        Raises SnapshotError if it cannot be restored, and the errors of loading user code.
        """
        built = build_operator(self._builders[subtask].vertex.operators[operator])
        built.setup(self.context(subtask, operator))
        return built

    def generated_code(self, subtask: FragmentSubtask) -> list[str]:
        """The source of each function that a worker may generate for the rows of a subtask.

        User functions are loaded, but neither opened nor called. Raises RuntimeError once the fragment runs.
        """
        if self._tasks:
            raise RuntimeError("the fragment runs already, and its code is generated: ask before start()")
        builder = self._builders[subtask]
        vertex, graph = builder.vertex, self.graph
        operators = [self.operator(subtask, index) for index in range(len(vertex.operators))]
        partitions = [builder.result_partition(edge) for edge in graph.outputs_of(vertex.id)]
        compiler = ChainCompiler(
            vertex,
            operators,
            [partition for partition in partitions if isinstance(partition, ResultPartition)],
            lambda partition: graph.vertex(partition.edge.target),
            operators[0].context.environment.object_reuse,
            inlines=operators[0].context.environment.settings.get(pipeline.INLINE_FUNCTIONS),
        )
        stamped = any(operator.stamps_rows for operator in operators)
        found = []
        if operators[0].takes_rows:
            for index in range(
                1 + max((edge.target_input for edge in graph.inputs_of(vertex.id)), default=0)
            ):
                found.append(compiler.compile_input(index, with_timestamps=stamped))
        for index, operator in enumerate(operators):
            # Rows begin here without having come through generated code.
            begins_rows = operator.converts_to_rows or (vertex.is_source and index == 0)
            if begins_rows and (compiler.children(index, None) or compiler.partitions_of(index, None)):
                found.append(compiler.compile_behind(index, None, with_timestamps=stamped))
        for operator in operators:
            own = operator.compile_own_loop()
            found += [] if own is None else [own]
            operator.context.state.dispose()
        return [code.shown for code in found]

    # ------------------------------------------------------------------ running

    @property
    def tasks(self) -> tuple[StreamTask, ...]:
        """The tasks, upstream first; none before `build`."""
        return tuple(self._tasks.values())

    def build(self) -> None:
        """Builds the tasks and their channels; opens and calls no operator."""
        for subtask, builder in self._builders.items():
            task = self._tasks[subtask] = builder.build()
            register_task_metrics(task.environment.metrics, task)
        codec = ElementCodec(serializer_for(None))
        for edge, producer, consumer in self._connections():
            if producer in self._builders and consumer not in self._builders:
                reader = self._network.open_input(
                    (self._attempts[consumer], edge.index, producer.number),
                    codec,
                    self._output_credit,
                    _ALL_BYTES,
                    _nothing,
                )
                self.outputs[consumer].append(reader)
            elif consumer in self._builders and producer not in self._builders:
                writer = self._network.open_output(
                    (self._attempts[consumer], edge.index, producer.number),
                    self._attempts[producer],
                    _ADDRESS,
                    codec,
                    _nothing,
                    False,
                )
                self.inputs[producer].append(writer)

    def _connections(self) -> Iterator[tuple[JobEdge, FragmentSubtask, FragmentSubtask]]:
        """Every channel of the graph: (edge, producer, consumer)."""
        for edge in self.graph.edges:
            producers = self.graph.vertex(edge.source).parallelism
            consumers = self.graph.vertex(edge.target).parallelism
            for producer in range(producers):
                for consumer in consumers_of(edge.partitioner.kind, producers, consumers, producer):
                    yield edge, FragmentSubtask(edge.source, producer), FragmentSubtask(edge.target, consumer)

    def start(self) -> None:
        """Opens all tasks, downstream first. Raises FragmentFailedError."""
        if not self._tasks:
            self.build()
        for task in reversed(self.tasks):
            task.start()
        self._check()

    def push(self, element: StreamElement, producer: FragmentSubtask) -> None:
        """Sends an element of `producer`, which does not run here, to all its consumers here; then runs.

        Raises FragmentFailedError.
        """
        self._send(element, producer)
        self.run_until_idle()

    def _send(self, element: StreamElement, producer: FragmentSubtask) -> None:
        for channel in self.inputs[producer]:
            if isinstance(element, RowBatch | ArrowBatch):
                channel.send_batch(element)
            else:
                channel.send_control(element)

    def run_until_idle(self) -> None:
        """Steps all tasks, downstream first, until nothing moves. Raises FragmentFailedError."""
        for _ in range(_MAX_STEPS):
            moved = False
            for task in reversed(self.tasks):
                if task.life.stage is not TaskStage.ENDED and task.step():
                    moved = True
            for channels in self.inputs.values():
                for channel in channels:
                    channel.drain_overdraft()
            if not self.hold_outputs and self.read():
                moved = True
            if not moved:
                break
        else:
            raise AssertionError("the fragment does not come to rest")
        self._check()

    def read(self) -> bool:
        """Moves output into `elements`; True if there was any."""
        moved = False
        for consumer, channels in self.outputs.items():
            for channel in channels:
                while channel.queued:
                    element = channel.take()
                    self.elements[consumer].append(element)
                    if self._cuts.is_behind(channel, element):
                        self.behind_cut[consumer].append(element)
                    moved = True
        return moved

    def _check(self) -> None:
        if self.failures:
            raise FragmentFailedError(self.failures[0])

    # ------------------------------------------------------------------ snapshots

    def snapshot(
        self,
        checkpoint_id: int,
        output: SnapshotOutput,
        options: CheckpointOptions = _AS_SAVEPOINT,
        meanwhile: Callable[[], None] | None = None,
    ) -> dict[FragmentSubtask, dict[OperatorID, OperatorSubtaskState]]:
        """Cuts all live tasks, and writes their state to `output`; a savepoint without `options`.

        Ids must rise. `meanwhile` runs between the cut and the writing, when tasks go on and the snapshot holds state.
        Raises FragmentFailedError, or the reason why a task could not take part.
        """
        barrier = CheckpointBarrier(checkpoint_id, self._clock.epoch_ms(), options=options)
        self._cuts.begin(checkpoint_id)
        for elements in self.behind_cut.values():
            elements.clear()
        for producer in self.inputs:
            self._send(barrier, producer)
        for subtask, task in self._tasks.items():
            if not self.graph.inputs_of(subtask.vertex_id) and task.life.is_live:
                task.post(partial(task.trigger_checkpoint, barrier))
        self.run_until_idle()
        by_attempt = {attempt: subtask for subtask, attempt in self._attempts.items()}
        states = {}
        cuts = self._cuts.end()
        if meanwhile is not None:
            meanwhile()
        for snapshot in cuts:
            states[by_attempt[snapshot.task.attempt_id]] = dict(snapshot.write(output))
            snapshot.settled()
        # Mails of the backends return the content that was held for the snapshot.
        self.run_until_idle()
        self._cuts.written()
        return states

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

    # ------------------------------------------------------------------ end

    def close(self) -> None:
        """Cancels live tasks, which closes their operators."""
        for task in self.tasks:
            task.cancel()
        if not self._closed:
            self._closed = True
            # Never started as a thread: one run of its loop closes its resources.
            self._io.stop()
            self._io.run()
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Fragment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Cuts(NoSnapshots):
    """Keeps the parts of the present snapshot; drops parts that other barriers cut."""

    def __init__(self) -> None:
        self._wanted: int | None = None
        self._taken: list[PendingSubtaskSnapshot] = []
        self._declined: list[BaseException] = []
        #: The checkpoint whose snapshot is not written yet, and the outputs that have given its barrier.
        self._unwritten: int | None = None
        self._passed: set[InputChannel] = set()

    def begin(self, checkpoint_id: int) -> None:
        self._wanted = self._unwritten = checkpoint_id
        self._passed.clear()

    def is_behind(self, channel: InputChannel, element: StreamElement) -> bool:
        """Whether an element of an output came with the barrier of an unwritten snapshot, or behind it."""
        if isinstance(element, CheckpointBarrier) and element.checkpoint_id == self._unwritten:
            self._passed.add(channel)
        return channel in self._passed

    def written(self) -> None:
        """The snapshot is written."""
        self._unwritten = None
        self._passed.clear()

    def end(self) -> list[PendingSubtaskSnapshot]:
        """The parts; raises the reason why a task could not take part."""
        self._wanted = None
        taken, self._taken = self._taken, []
        declined, self._declined = self._declined, []
        if declined:
            for snapshot in taken:
                super().deliver(snapshot)
            raise declined[0]
        return taken

    def deliver(self, snapshot: PendingSubtaskSnapshot) -> None:
        if snapshot.barrier.checkpoint_id == self._wanted:
            self._taken.append(snapshot)
        else:
            super().deliver(snapshot)

    def decline(self, task: TaskName, checkpoint_id: int, error: BaseException) -> None:
        if checkpoint_id == self._wanted:
            self._declined.append(error)
        else:
            super().decline(task, checkpoint_id, error)


def _at_once(mail: Callable[[], None]) -> None:
    mail()


def _no_enumerator(builder: TaskBuilder, operator_id: str, target: int, source: int, payload: bytes) -> None:
    """Drops a reader's message to its enumerator."""


def _no_collect(builder: TaskBuilder, message: CollectMessage) -> None:
    raise AssertionError(
        "a fragment has no client: read its output from the fragment, not with execute_and_collect"
    )


def _without_sockets(io_thread: IoThread, directory: Path) -> NetworkEnvironment:
    settings = WorkerSettings(
        worker_id=_WORKER,
        resource_id=_RESOURCE,
        host="",
        host_key="",
        working_directory=str(directory),
        configuration={},
        data_secret=b"",
    )
    return NetworkEnvironment(settings, io_thread)
