"""The graph of a program for a comparison: its sinks keep their rows, and rolling aggregates emit their last rows.

Owner: the main thread; pure: makes new graphs. Must not run anything. Sinks of the program never leave this process,
so nothing is written to where they write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import msgspec

from yarrow.cli.verification.captured_rows import CapturedRows, KeyOfRows
from yarrow.runtime.config.options import batch, checkpointing, execution, restart_strategy
from yarrow.runtime.graph.connector_spec import SinkWriterOperator
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex, OperatorDescriptor
from yarrow.runtime.graph.operator_spec import OperatorSpec, StreamKind
from yarrow.runtime.graph.states import JobType


class Place(NamedTuple):
    """An operator in a graph: the position of its vertex, and its own in there."""

    vertex: int
    operator: int


class CapturedSink(msgspec.Struct, frozen=True):
    """A sink of the program."""

    place: Place
    #: Its name, with a number where several have it.
    name: str
    key: KeyOfRows
    #: The process function on keyed input whose rows it gets, and no others; None = there is none.
    keyed_function: Place | None = None


def sinks_of(graph: JobGraph) -> tuple[CapturedSink, ...]:
    """The sinks, in order of the graph."""
    places = [
        Place(at, index)
        for at, vertex in enumerate(graph.vertices)
        for index, operator in enumerate(vertex.operators)
        if operator.spec.is_sink
    ]
    names = Counter(operator_at(graph, place).name for place in places)
    seen: Counter[str] = Counter()
    found = []
    for place in places:
        name = operator_at(graph, place).name
        seen[name] += 1
        shown = name if names[name] == 1 else f"{name} ({seen[name]})"
        found.append(CapturedSink(place, shown, _key_of(graph, place), _keyed_function(graph, place)))
    return tuple(found)


def operator_at(graph: JobGraph, place: Place) -> OperatorDescriptor:
    """The operator of a place."""
    return graph.vertices[place.vertex].operators[place.operator]


def inputs_of(graph: JobGraph, place: Place) -> Iterator[tuple[Place, bool]]:
    """The operators that feed one, each with whether their ordinary rows do, not those of a side output."""
    vertex = graph.vertices[place.vertex]
    for chained in vertex.chained_edges:
        if chained.target == place.operator:
            yield Place(place.vertex, chained.source), chained.side_output is None
    if place.operator == 0:
        positions = {vertex.id: at for at, vertex in enumerate(graph.vertices)}
        for edge in graph.inputs_of(vertex.id):
            yield Place(positions[edge.source], edge.source_operator), edge.side_output is None


def upstream_of(graph: JobGraph, place: Place) -> list[Place]:
    """All operators whose rows reach one, the nearest first."""
    found: dict[Place, None] = {}
    waiting = [place]
    while waiting:
        for source, _ in inputs_of(graph, waiting.pop(0)):
            if source not in found:
                found[source] = None
                waiting.append(source)
    return list(found)


def _key_of(graph: JobGraph, place: Place) -> KeyOfRows:
    """The key of rows that come from a rolling aggregate unchanged; rows of others are their own keys."""
    sources = list(inputs_of(graph, place))
    if len(sources) != 1 or not sources[0][1]:
        return KeyOfRows()
    source = sources[0][0]
    spec: Any = operator_at(graph, source).spec
    if spec.is_rolling:
        columns = getattr(spec, "key_column", None)
        if columns is None:
            return KeyOfRows(selector=spec.key_selector)
        return KeyOfRows(columns=1 if isinstance(columns, str) else len(columns))
    return _key_of(graph, source) if spec.keeps_rows else KeyOfRows()


def _keyed_function(graph: JobGraph, place: Place) -> Place | None:
    sources = list(inputs_of(graph, place))
    if len(sources) != 1 or not sources[0][1]:
        return None
    source = sources[0][0]
    spec = operator_at(graph, source).spec
    if spec.calls_process_function and any(spec.selector_of_each_input):
        return source
    return _keyed_function(graph, source) if spec.is_conversion else None


def with_functions(graph: JobGraph, functions: Mapping[Place, object], **fields: object) -> JobGraph:
    """The graph with other objects in place of the functions of some operators; `fields` of their specs change too."""
    vertices = list(graph.vertices)
    for place, function in functions.items():
        operator = operator_at(graph, place)
        spec: Any = operator.spec
        changed = msgspec.structs.replace(spec, function=cloudpickle.dumps(function), **fields)
        operators = list(vertices[place.vertex].operators)
        operators[place.operator] = msgspec.structs.replace(operator, spec=changed)
        vertices[place.vertex] = msgspec.structs.replace(vertices[place.vertex], operators=tuple(operators))
    return msgspec.structs.replace(graph, vertices=tuple(vertices))


def captured(
    graph: JobGraph, job_type: JobType, sinks: Sequence[CapturedSink], folders: Sequence[Path]
) -> JobGraph:
    """The graph as it runs for the comparison in a mode; the rows of each sink go to its folder.

    A stream's rolling aggregates emit the last row of each key alone: that is what BATCH emits. Checkpoints are off, so
    that no folder of the program gets any, and a failure ends the job.
    """
    instead = {
        sink.place: SinkWriterOperator(sink=_pickled(graph, sink, folder))
        for sink, folder in zip(sinks, folders, strict=True)
    }
    streaming = job_type is JobType.STREAMING
    vertices = tuple(
        msgspec.structs.replace(vertex, operators=tuple(_operators(vertex, at, instead, streaming)))
        for at, vertex in enumerate(graph.vertices)
    )
    rolling = any(operator.spec.is_rolling for vertex in vertices for operator in vertex.operators)
    return msgspec.structs.replace(
        graph,
        vertices=vertices,
        job_type=job_type,
        configuration=settings_of(graph.configuration, job_type, rolling),
    )


def settings_of(configuration: Mapping[str, str], job_type: JobType, rolling: bool) -> dict[str, str]:
    """The program's settings for a run; `rolling`: it has rolling aggregates, whose last rows the heap keeps."""
    found = {key: value for key, value in configuration.items() if key not in _WITHOUT}
    # Both modes run here: without it, Spark runs in the driver.
    if not found.get(batch.SPARK_MASTER.key, "").startswith("local"):
        found.pop(batch.SPARK_MASTER.key, None)
    found[execution.RUNTIME_MODE.key] = job_type.name
    found[restart_strategy.TYPE.key] = "none"
    if rolling:
        found[checkpointing.STATE_BACKEND.key] = "hashmap"
    return found


#: Options, with their older names, that a comparison sets itself or leaves out.
_WITHOUT = frozenset(
    key
    for option in (
        execution.RUNTIME_MODE,
        checkpointing.INTERVAL,
        checkpointing.STATE_BACKEND,
        restart_strategy.TYPE,
        # A stream would restore a savepoint, and BATCH does not. A claimed one would be deleted.
        execution.SAVEPOINT_PATH,
        execution.CLAIM_MODE,
        execution.IGNORE_UNCLAIMED_STATE,
    )
    for key in option.names
)


def _operators(
    vertex: JobVertex, at: int, instead: Mapping[Place, OperatorSpec], streaming: bool
) -> Iterator[OperatorDescriptor]:
    for index, operator in enumerate(vertex.operators):
        spec = instead.get(Place(at, index), operator.spec)
        if streaming and spec.is_rolling:
            # Each rolling spec has the field; the class variable of the base cannot say so.
            changed: Any = spec
            spec = msgspec.structs.replace(changed, last_only=True)
        yield msgspec.structs.replace(operator, spec=spec)


def _pickled(graph: JobGraph, sink: CapturedSink, folder: Path) -> bytes:
    columns = any(
        operator_at(graph, source).output_kind is StreamKind.COLUMNAR
        for source, _ in inputs_of(graph, sink.place)
    )
    pickled: bytes = cloudpickle.dumps(CapturedRows(sink.name, str(folder), sink.key, columns=columns))
    return pickled
