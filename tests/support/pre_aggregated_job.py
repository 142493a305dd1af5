"""A stream with windows at one parallelism after another: the operators before the exchange, and those behind it.

Each subtask before the exchange gets rows, watermarks and idleness of its own. A restart begins from what was cut. The
subtasks go on behind each cut, as in `restarted_job`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tests.support.restarted_job import CANONICAL, FAR_AHEAD, MAX_PARALLELISM, REPEATED, taken_rows
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.container.fragment import Fragment, FragmentSubtask
from yarrow.container.operators.base import Operator, RestoredState
from yarrow.container.operators.pre_aggregation.pre_aggregating import PreAggregatingOperator
from yarrow.container.operators.window.windowing_base import WindowingBase
from yarrow.datastream import DataStream
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.elements import RowBatch, StreamElement, Watermark, WatermarkStatus
from yarrow.runtime.graph.transformations import SourceTransformation
from yarrow.runtime.snapshot.assignment import assign
from yarrow.runtime.snapshot.handles import CheckpointMetadata, OperatorState, OperatorSubtaskState

Build = Callable[[DataStream], DataStream]


class PreAggregatedJob:
    """Runs what `build` puts behind a stream; it must end in windows with a uid."""

    def __init__(self, build: Build, max_entries: int = 1 << 16) -> None:
        self.build = build
        self._max_entries = max_entries
        self._checkpoint_id = 0
        self.metadata: CheckpointMetadata | None = None
        self._fragment: Fragment | None = None

    def start(self, parallelism: int, backend: str) -> None:
        """Starts all subtasks, from the state of the last `stop`."""
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
        env.set_max_parallelism(MAX_PARALLELISM).set_buffer_timeout(0)
        source = env.from_sequence(1, 1)
        # The job sends timestamps in its place.
        assert isinstance(source.transformation, SourceTransformation)
        source.transformation.without_time = False
        rows = source.map(lambda row: row).start_new_chain().uid("rows")
        self.build(rows).print().disable_chaining()
        graph = env.get_job_graph("pre-aggregated")
        first, *self._running, self._sink = graph.vertices
        subtasks = [
            FragmentSubtask(vertex.id, number)
            for vertex in self._running
            for number in range(vertex.parallelism)
        ]
        restored = {}
        if self.metadata is not None:
            tasks = assign(self.metadata, graph).tasks
            for subtask in subtasks:
                states = tasks.get((subtask.vertex_id, subtask.number), {})
                restored[subtask] = RestoredState(self._checkpoint_id, states, read_inline)
        settings = Settings({"state.backend.type": backend})
        self._fragment = Fragment(graph, settings, ManualClock(), subtasks=subtasks, restored=restored)
        self._graph, self._source = graph, first.id
        self.parallelism = parallelism
        self._sent: deque[tuple[StreamElement, int]] = deque(maxlen=REPEATED)
        self._fragment.start()
        for operator in self.pre_aggregating:
            operator._spec = msgspec.structs.replace(operator._spec, max_entries=self._max_entries)

    @property
    def fragment(self) -> Fragment:
        """The subtasks that run."""
        assert self._fragment is not None
        return self._fragment

    @property
    def operators(self) -> list[Operator]:
        """All operators of all subtasks."""
        return [operator for task in self.fragment.tasks for operator in task.chain.operators]

    @property
    def pre_aggregating(self) -> list[PreAggregatingOperator]:
        """The operators that pre-aggregate."""
        return [each for each in self.operators if isinstance(each, PreAggregatingOperator)]

    @property
    def windows(self) -> list[Any]:
        """The operators of the windows."""
        return [each for each in self.operators if isinstance(each, WindowingBase)]

    @property
    def rows_into_windows(self) -> int:
        """Rows and partial values that have come to the windows since the start."""
        heads = ((task, task.chain.head) for task in self.fragment.tasks)
        return sum(task.chain.counts.records_in for task, head in heads if isinstance(head, WindowingBase))

    def push(self, rows: Sequence[Any], timestamps: Sequence[int | None], subtask: int = 0) -> None:
        """Sends rows to a subtask before the exchange."""
        self._send(RowBatch(list(rows), list(timestamps)), subtask)

    def watermark(self, timestamp: int, subtask: int | None = None) -> None:
        """Sends a watermark to all subtasks before the exchange, or to one."""
        for number in range(self.parallelism) if subtask is None else (subtask,):
            self._send(Watermark(timestamp), number)

    def idle(self, subtask: int, *, idle: bool = True) -> None:
        """Tells a subtask that its input is idle, or not any more."""
        self._send(WatermarkStatus(idle), subtask)

    def _send(self, element: StreamElement, subtask: int) -> None:
        self._sent.append((element, subtask))
        self.fragment.push(element, FragmentSubtask(self._source, subtask))

    def _go_on(self) -> None:
        """Repeats the last elements, and lets windows fire: what tasks do behind a cut must not reach the cut."""
        for element, subtask in [*self._sent, *((Watermark(FAR_AHEAD), n) for n in range(self.parallelism))]:
            self.fragment.push(element, FragmentSubtask(self._source, subtask))

    def take(self) -> list[tuple[Any, int | None]]:
        """Rows of the main output with their timestamps since the last call."""
        self.fragment.run_until_idle()
        found: list[tuple[Any, int | None]] = []
        for number in range(self._sink.parallelism):
            found += taken_rows(self.fragment, FragmentSubtask(self._sink.id, number))
        return found

    def stop(self, options: CheckpointOptions = CANONICAL) -> list[OperatorState]:
        """Cuts all subtasks, lets them go on and crash, and keeps what was cut for the next start.

        `take` still gives the rows that left before the barriers.
        """
        self._checkpoint_id += 1
        with self.fragment as fragment:
            states = fragment.snapshot(self._checkpoint_id, MemoryOutput(), options, self._go_on)
        found = []
        for vertex in self._running:
            for operator in vertex.operators:
                subtasks = {
                    number: states[FragmentSubtask(vertex.id, number)].get(
                        operator.id, OperatorSubtaskState()
                    )
                    for number in range(vertex.parallelism)
                }
                found.append(
                    OperatorState(
                        operator_id=operator.id, name=operator.name, uid=operator.uid,
                        parallelism=vertex.parallelism, max_parallelism=vertex.max_parallelism, subtasks=subtasks,
                        kind=operator.spec.state_kind,
                    )
                )  # fmt: skip
        self.metadata = CheckpointMetadata(
            engine_version="test", job_id=self._graph.job_id, job_name="pre-aggregated",
            checkpoint_id=self._checkpoint_id, timestamp_ms=0, kind=options.kind, operators=tuple(found),
        )  # fmt: skip
        return found

    def close(self) -> None:
        """Ends all subtasks."""
        self.fragment.close()
