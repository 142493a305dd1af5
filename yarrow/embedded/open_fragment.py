"""OpenFragment: operators of a program that run in the calling thread, with open ends: the caller sends and reads.

The operators run as their tasks in a cluster would (gate, generated chain, exchange by reference), without worker,
threads or sockets. Time moves by hand. Owner: the calling thread. It must not know its user, nor handle failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from yarrow.common.configuration import Configuration
from yarrow.common.typeinfo import TypeInformation
from yarrow.container.fragment import Fragment, FragmentSubtask, subtasks_of
from yarrow.container.operators.base import RestoredState
from yarrow.container.task.checkpointing.subtask_checkpoint_coordinator import SnapshotReceiver
from yarrow.container.task.stream_task import StreamTask
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.functions import SinkFunction
from yarrow.datastream.program.arrow_schemas import schema_bytes
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.elements import ArrowBatch, EndOfData, RowBatch, StreamElement, Watermark
from yarrow.runtime.data.row_names import namer_for
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import StreamKind
from yarrow.runtime.graph.transformations import SourceTransformation

#: Makes the streams to read from the input streams: one stream, or several (main output, side outputs).
StreamsOf = Callable[..., "DataStream | Sequence[DataStream]"]

#: The graph to run, with what it adopts from a snapshot, and the state with which its subtasks begin.
RestoreGraph = Callable[[JobGraph], tuple[JobGraph, Mapping[FragmentSubtask, RestoredState]]]

#: Most key groups of a fragment with several subtasks, whatever their number.
_KEY_GROUPS: Final = 128


@dataclass(frozen=True, slots=True)
class OpenEnds:
    """The inputs of an OpenFragment, and the size of what it is: see OpenFragment."""

    #: Number of input streams; 0 = the program begins with a source of its own.
    inputs: int = 1
    #: Of each input its declared type, a pyarrow Schema of record batches, or None = undeclared. None = all undeclared.
    types: Sequence[TypeInformation | Any | None] | None = None
    #: Number of subtasks of each operator.
    parallelism: int = 1
    #: Number of batches that an output takes before one has been read.
    credit: int = 1 << 20


class _Unread(SinkFunction[Any]):
    """Stands behind an output while the graph is built; the caller reads in its place."""

    def invoke(self, value: Any, context: Any) -> None:
        raise AssertionError("the caller reads outputs itself")


def _unread(batch: Any) -> Any:
    """Stands behind a columnar output in the same way."""
    raise AssertionError("the caller reads outputs itself")


class OpenFragment:
    """Operators that run here. Use it as a context manager: operators are closed at its end.

    `streams_of` is called with the input streams. Without any it is called with the environment, and begins with a
    source of its own, whose reader hears nothing from its enumerator. If an input has record batches, then record
    batches that the program puts out are read as such, not as rows.
    """

    def __init__(
        self,
        streams_of: StreamsOf,
        ends: OpenEnds,
        configuration: Mapping[str, str],
        clock: ManualClock,
        restore: RestoreGraph | None = None,
        snapshots: SnapshotReceiver | None = None,
    ) -> None:
        """Starts the operators. Raises FragmentFailedError, and SnapshotError where state cannot be restored.

        `configuration` holds options of the job. `clock` moves by `advance` alone. Without `restore` operators begin
        empty. `snapshots` hears of the parts that barriers cut, in place of `Fragment.snapshot`.
        """
        self.clock = clock
        self.parallelism = ends.parallelism
        declared = list(ends.types) if ends.types is not None else [None] * ends.inputs
        self._input_types = [each if isinstance(each, TypeInformation) else None for each in declared]
        self._schemas = [None if isinstance(each, TypeInformation) else each for each in declared]
        self._columnar_outputs = any(schema is not None for schema in self._schemas)
        graph, outputs = self._build_graph(streams_of, ends.inputs, configuration)
        restored: Mapping[FragmentSubtask, RestoredState] = {}
        if restore is not None:
            graph, restored = restore(graph)
        by_name = {vertex.operators[0].name: FragmentSubtask(vertex.id) for vertex in graph.vertices}
        self._inputs = [by_name[_input(index)] for index in range(ends.inputs)]
        self._outputs = [by_name[_output(index)] for index in range(outputs)]
        outside = {*self._inputs, *self._outputs}
        #: The operators themselves.
        self.fragment = Fragment(
            graph,
            Settings({}, "the fragment").overlay(graph.configuration, "the job"),
            self.clock,
            subtasks=[subtask for subtask in subtasks_of(graph) if subtask not in outside],
            restored={subtask: own for subtask, own in restored.items() if subtask not in outside},
            snapshots=snapshots,
            write_output=self._write_output,
            output_credit=ends.credit,
        )
        try:
            self.fragment.build()
            self._built()
            self.fragment.start()
        except BaseException:
            self.close()
            raise

    def _built(self) -> None:
        """Called when tasks and channels are made, and no operator is open."""

    def _write_output(self, text: str) -> None:
        """Takes the output of `print()`: nobody reads it."""

    def _build_graph(
        self, streams_of: StreamsOf, inputs: int, configuration: Mapping[str, str]
    ) -> tuple[JobGraph, int]:
        made = Configuration()
        for key, value in {"rest.bind-port": "0", **configuration}.items():
            made.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(made).set_parallelism(self.parallelism)
        if self.parallelism > 1:
            env.set_max_parallelism(_KEY_GROUPS)
        env.set_buffer_timeout(0)
        streams = [self._input_stream(env, index) for index in range(inputs)]
        read = streams_of(*streams) if inputs else streams_of(env)
        outputs = [read] if isinstance(read, DataStream) else list(read)
        for index, stream in enumerate(outputs):
            if self._columnar_outputs and stream.is_columnar:
                end = stream.map_batches(_unread).disable_chaining().name(_output(index))
                end.set_parallelism(1)
            else:
                sink = stream.add_sink(_Unread()).disable_chaining()
                sink.name(_output(index).removeprefix("Sink: ")).set_parallelism(1)
        return env.get_job_graph("fragment"), len(outputs)

    def _input_stream(self, env: StreamExecutionEnvironment, index: int) -> DataStream:
        stream = env.from_collection([], self._input_types[index]).disable_chaining().set_parallelism(1)
        stream.name(_input(index).removeprefix("Source: "))
        source = stream.transformation
        assert isinstance(source, SourceTransformation)
        # The caller may send timestamps.
        source.without_time = False
        schema = self._schemas[index]
        if schema is not None:
            # The source never runs: the caller sends what it would emit.
            stream.transformation.output_kind = StreamKind.COLUMNAR
            stream.transformation.output_schema = schema_bytes(schema)
        return stream

    @property
    def graph(self) -> JobGraph:
        """The graph that runs, with its open ends."""
        return self.fragment.graph

    @property
    def tasks(self) -> tuple[StreamTask, ...]:
        """The tasks in topological order."""
        return self.fragment.tasks

    # ------------------------------------------------------------------ input

    def push(self, *rows: Any, input: int = 0, timestamps: Sequence[int | None] | None = None) -> None:
        """Sends rows as one batch and runs until nothing moves. Raises FragmentFailedError.

        Rows of a declared type bear its names, as a source gives them.
        """
        name = namer_for(self._input_types[input])
        named = list(rows) if name is None else list(map(name, rows))
        self.send(RowBatch(named, None if timestamps is None else list(timestamps)), input)

    def watermark(self, timestamp: int, input: int = 0) -> None:
        """Sends a watermark (ms)."""
        self.send(Watermark(timestamp), input)

    def end(self, input: int | None = None) -> None:
        """Ends one input, or all of them."""
        for index in range(len(self._inputs)) if input is None else (input,):
            self.send(EndOfData(), index)

    def send(self, element: StreamElement, input: int = 0) -> None:
        """Sends any element and runs until nothing moves."""
        self.fragment.push(element, self._inputs[input])

    def advance(self, seconds: float) -> None:
        """Moves the clock and runs: due timers fire."""
        self.clock.advance(seconds)
        self.run()

    def run(self) -> None:
        """Steps all tasks, downstream first, until nothing moves."""
        self.fragment.run_until_idle()

    # ------------------------------------------------------------------ output

    def outputs(self, index: int) -> list[Any]:
        """Rows of an output so far."""
        return [row for element in self._batches(index) for row in element.rows]

    def elements(self, index: int = 0) -> list[StreamElement]:
        """All elements of an output, control elements in their places."""
        return list(self._elements(index))

    def record_batches(self, index: int = 0) -> list[Any]:
        """The pyarrow RecordBatches of a columnar output."""
        return [element.batch for element in self._elements(index) if isinstance(element, ArrowBatch)]

    def take(self, index: int = 0) -> list[Any]:
        """Rows of an output since the last `take`; forgets them."""
        self.fragment.read()
        rows = self.outputs(index)
        self._elements(index).clear()
        return rows

    def _elements(self, index: int) -> list[StreamElement]:
        return self.fragment.elements[self._outputs[index]]

    def _batches(self, index: int) -> list[RowBatch]:
        return [element for element in self._elements(index) if isinstance(element, RowBatch)]

    # ------------------------------------------------------------------ end

    def close(self) -> None:
        """Cancels the tasks that still run, which closes their operators."""
        self.fragment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _input(index: int) -> str:
    return f"Source: fragment input {index}"


def _output(index: int) -> str:
    return f"Sink: fragment output {index}"
