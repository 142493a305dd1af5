"""A keyed operator at one parallelism after another, each begun from what the one before has written.

The operator runs in fragments, one a subtask, without an exchange: the job sends each row to the subtask of its key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.container.fragment import Fragment, FragmentSubtask
from yarrow.container.operators.base import Operator, RestoredState
from yarrow.datastream import DataStream
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import RowBatch, StreamElement, Watermark
from yarrow.runtime.data.key_groups import key_group_of
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.transformations import SourceTransformation
from yarrow.runtime.snapshot.assignment import assign
from yarrow.runtime.snapshot.handles import CheckpointMetadata, OperatorState, OperatorSubtaskState

MAX_PARALLELISM = 16
CANONICAL = CheckpointOptions(kind=SnapshotKind.SAVEPOINT, location=CheckpointLocation(directory=""))
OWN = CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=CheckpointLocation(directory=""))
#: Elements of a subtask that come once more behind its last cut.
REPEATED = 8
#: A watermark behind all that tests send, except the end of event time.
FAR_AHEAD = 2**50


class RestartedJob:
    """Runs what `build` puts behind its streams; that must end in one keyed operator with a uid.

    `inputs`: the number of streams. `key_of` gives the key of a row as it reaches the operator; it stands in front if
    nothing else is said. Rows and watermarks of an input come from whatever stands before the operator there.
    """

    def __init__(
        self,
        build: Callable[..., DataStream],
        configuration: Mapping[str, str] | None = None,
        *,
        inputs: int = 1,
        key_of: Callable[[Any], Any] = itemgetter(0),
    ) -> None:
        self._build = build
        self._inputs = inputs
        self._key_of = key_of
        self._configuration = configuration or {}
        self._checkpoint_id = 0
        self.metadata: CheckpointMetadata | None = None
        self.fragments: list[Fragment] = []
        self._backend = ""
        #: The last elements of each subtask, with the one that sent them.
        self._sent: dict[int, deque[tuple[StreamElement, FragmentSubtask]]] = {}

    def start(self, parallelism: int, backend: str) -> None:
        """Starts all subtasks, from the state of the last `stop`."""
        self._backend = backend
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
        env.set_max_parallelism(MAX_PARALLELISM)
        env.set_buffer_timeout(0)
        sources = [env.from_collection([1]) for _ in range(self._inputs)]
        for source in sources:
            # The job sends timestamps in its place.
            assert isinstance(source.transformation, SourceTransformation)
            source.transformation.without_time = False
        self._build(*(source.rebalance() for source in sources)).print().disable_chaining()
        self.graph: JobGraph = env.get_job_graph("restarted")
        *_, self._keyed, self._sink = self.graph.vertices
        edges = [edge for edge in self.graph.edges if edge.target == self._keyed.id]
        edges.sort(key=lambda edge: (edge.target_input, edge.index))
        self._feeders = [FragmentSubtask(edge.source) for edge in edges]
        subtasks = [FragmentSubtask(self._keyed.id, number) for number in range(parallelism)]
        restored = {}
        if self.metadata is not None:
            tasks = assign(self.metadata, self.graph).tasks
            for subtask in subtasks:
                states = tasks.get((subtask.vertex_id, subtask.number), {})
                restored[subtask] = RestoredState(self._checkpoint_id, states, read_inline)
        settings = Settings({**self._configuration, "state.backend.type": backend})
        self.clock = ManualClock()
        self.fragments = [
            Fragment(
                self.graph, settings, self.clock, subtasks=[subtask],
                restored={subtask: restored[subtask]} if restored else None,
            )
            for subtask in subtasks
        ]  # fmt: skip
        self._sent = {number: deque(maxlen=REPEATED) for number in range(parallelism)}
        for fragment in self.fragments:
            fragment.start()

    @property
    def operators(self) -> list[Operator]:
        """The keyed operator of each subtask."""
        return [operator for f in self.fragments for task in f.tasks for operator in task.chain.operators]

    def push(
        self, rows: Sequence[Any], timestamps: Sequence[int | None] | None = None, input: int = 0
    ) -> None:
        """Sends each row to the subtask of its key."""
        stamps = [None] * len(rows) if timestamps is None else timestamps
        for number, operator in enumerate(self.operators):
            state: Any = operator.context.state
            groups = state.context.key_groups
            of_rows = [key_group_of(canonicalize(self._key_of(row)), MAX_PARALLELISM) for row in rows]
            own = [at for at, group in enumerate(of_rows) if groups.holds(group)]
            if own:
                chosen = None if timestamps is None else [stamps[at] for at in own]
                batch = RowBatch([rows[at] for at in own], chosen)
                self.send(number, batch, self._feeders[input])

    def watermark(self, timestamp: int, subtask: int | None = None) -> None:
        """Sends a watermark of all inputs to all subtasks, or to one."""
        for number in range(len(self.fragments)):
            if subtask is None or subtask == number:
                for feeder in self._feeders:
                    self.send(number, Watermark(timestamp), feeder)

    def send(self, subtask: int, element: StreamElement, feeder: FragmentSubtask) -> None:
        """Sends an element to a subtask."""
        self._sent[subtask].append((element, feeder))
        self.fragments[subtask].push(element, feeder)

    def _go_on(self, subtask: int) -> None:
        """Repeats the last elements, and lets timers fire: what a subtask does behind a cut must not reach the cut."""
        for element, feeder in tuple(self._sent[subtask]):
            self.fragments[subtask].push(element, feeder)
        for feeder in self._feeders:
            self.fragments[subtask].push(Watermark(FAR_AHEAD), feeder)

    def restart(self, parallelism: int, backend: str, options: CheckpointOptions) -> None:
        """Stops all subtasks, and starts others from their state.

        A native snapshot goes to the same backend, whatever `backend` is: no other one can read it.
        """
        self.stop(options)
        self.start(parallelism, self._backend if options is OWN else backend)

    def take(self) -> list[tuple[Any, int | None]]:
        """Rows of the main output with their timestamps since the last call."""
        found: list[tuple[Any, int | None]] = []
        for number, fragment in enumerate(self.fragments):
            found += taken_rows(fragment, FragmentSubtask(self._sink.id, number))
        return found

    def stop(self, options: CheckpointOptions, *, goes_on: bool = True) -> OperatorState:
        """Cuts all subtasks, lets them go on and crash, and keeps what was cut for the next start.

        They must not go on if the test has called the operator itself, which then does not expect what comes.
        """
        self._checkpoint_id += 1
        subtasks = {}
        operator = self._keyed.operators[0]
        for number, fragment in enumerate(self.fragments):
            with fragment:
                states = fragment.snapshot(
                    self._checkpoint_id,
                    MemoryOutput(),
                    options,
                    partial(self._go_on, number) if goes_on else None,
                )
                of_subtask = states[FragmentSubtask(self._keyed.id, number)]
                subtasks[number] = of_subtask.get(operator.id, OperatorSubtaskState())
        state = OperatorState(
            operator_id=operator.id, name=operator.name, uid=operator.uid,
            parallelism=len(self.fragments), max_parallelism=MAX_PARALLELISM, subtasks=subtasks,
            kind=operator.spec.state_kind,
        )  # fmt: skip
        self.metadata = CheckpointMetadata(
            engine_version="test", job_id=self.graph.job_id, job_name="restarted", checkpoint_id=self._checkpoint_id,
            timestamp_ms=0, kind=options.kind, operators=(state,),
        )  # fmt: skip
        return state


def taken_rows(fragment: Fragment, sink: FragmentSubtask) -> list[tuple[Any, int | None]]:
    """Takes the elements that a fragment has sent to a subtask outside; returns the rows with their timestamps."""
    found: list[tuple[Any, int | None]] = []
    elements = fragment.elements[sink]
    for element in elements:
        if isinstance(element, RowBatch):
            found += zip(element.rows, element.timestamps or [None] * len(element.rows), strict=True)
    elements.clear()
    return found
