"""From declared stages to the JobGraph of a pipeline: one vertex a stage, one edge for each stage that it waits for.

Owner: the thread that builds the program. Pure: ids and user code are passed in. Names are resolved here, and a
pipeline that could not end is refused. Must not look at storage.
"""

from __future__ import annotations

import dataclasses
import hashlib
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from yarrow.common.pipelines.stage import Stage
from yarrow.common.pipelines.stage_data import AnyData, parameters_in, with_parameters
from yarrow.common.values.schedule import DUE_PARAMETERS, DUE_TIME
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.ids import JobID, JobVertexID, OperatorID
from yarrow.runtime.common.paths import scheme_of
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.pipeline_plan import with_pipeline_plan
from yarrow.runtime.graph.batch.spark_options import check_spark_options
from yarrow.runtime.graph.data_set_spec import SparkStageOperator
from yarrow.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorDescriptor,
    ResultPartitionType,
    UserCode,
)
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec, StreamKind
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.graph.translation.plan import job_plan

#: A stage is one task: Spark divides its work.
_TASKS, _KEY_GROUPS = 1, 1
_GROUP = "default"
#: Paths that name these parameters get their values when the pipeline runs.
_LEFT = {name: f"{{{name}}}" for name in DUE_PARAMETERS}


class PipelineError(InvalidProgramError):
    """A pipeline cannot run; the message names the stage or the data, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredStage:
    """A stage as the program declares it: it names data and other stages, which may be declared later."""

    name: str
    function: bytes
    #: Arguments without a default that the function takes besides the session, and those with one.
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    #: It takes any argument by name.
    takes_all: bool = False
    inputs: tuple[str, ...] = ()
    outputs: tuple[AnyData, ...] = ()
    after: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 0


def pipeline_graph(
    stages: Sequence[DeclaredStage],
    sources: Sequence[AnyData],
    parameters: Mapping[str, Any],
    *,
    job_id: JobID,
    name: str,
    user_code: UserCode,
    configuration: Mapping[str, str],
) -> JobGraph:
    """The JobGraph. `sources` is data that is there before the pipeline begins.

    Raises PipelineError for the first fault, and InvalidOptionValue for a key of Spark that no job may set so.
    """
    check_spark_options(Settings(configuration, "the pipeline"))
    if not stages:
        raise PipelineError(f"The pipeline {name!r} has no stages: add one with pipeline.stage(...).")
    stages = [_with_paths(stage, parameters) for stage in stages]
    producers = _producers(stages, sources)
    waits = {stage.name: _waits_for(stage, stages, producers) for stage in stages}
    ordered = _in_order(stages, waits)
    data = {each.name: each for each in (*sources, *(each for stage in stages for each in stage.outputs))}
    vertices = tuple(_vertex(_stage(stage, data, producers, parameters)) for stage in ordered)
    graph = JobGraph(
        job_id=job_id,
        name=name,
        vertices=vertices,
        edges=_edges(ordered, waits),
        user_code=user_code,
        job_type=JobType.BATCH,
        batch_runner_reason="its stages are functions of a SparkSession",
        configuration=dict(configuration),
    )
    return msgspec.structs.replace(graph, plan=with_pipeline_plan(job_plan(graph), graph))


def vertex_id_of(stage: str) -> JobVertexID:
    """The id of a stage's vertex: it follows from the name, so that each submission has the same."""
    return JobVertexID(hashlib.sha256(stage.encode()).hexdigest()[:32])


def _with_paths(stage: DeclaredStage, parameters: Mapping[str, Any]) -> DeclaredStage:
    """The stage with all its parameters, and with the whole path of each output: whoever reads it finds it there."""
    for name in DUE_PARAMETERS:
        if name in stage.parameters:
            raise PipelineError(
                f"Stage {stage.name!r} has a parameter {name!r} of its own: a schedule sets it for all stages. Give it"
                " to the Pipeline instead."
            )
    own = {**parameters, **stage.parameters}
    outputs = tuple(_in_its_place(output, stage.name, own) for output in stage.outputs)
    return dataclasses.replace(stage, outputs=outputs)


def _in_its_place(data: AnyData, stage: str, parameters: Mapping[str, Any]) -> AnyData:
    """The data with the values of parameters in its path, but for those that each run of a schedule sets.

    Raises PipelineError for a value that no path can have.
    """
    for name in parameters_in(data.path):
        if name not in parameters:
            raise PipelineError(
                f"Stage {stage!r}: the path {data.path} of {data.name!r} names the parameter {name!r}, which"
                f" the stage does not have; it has: {_names(parameters)}."
            )
        value = parameters[name]
        parts = str(value).split("/")
        if (
            not isinstance(value, str | int | float)
            or isinstance(value, bool)
            or {"", ".", ".."} & {*parts}
            or parameters_in(str(value))
        ):
            raise PipelineError(
                f"Stage {stage!r}: the path {data.path} of {data.name!r} names the parameter {name!r}, which is"
                f" {value!r}: a path takes numbers, and texts such as '2013-12-01' or '2013/12'."
            )
        if scheme_of(data.path) == "hdfs" and (":" in str(value) or name == DUE_TIME):
            raise PipelineError(
                f"Stage {stage!r}: the path {data.path} of {data.name!r} names the parameter {name!r}, whose values"
                " have a colon: HDFS takes none. Name one without a colon, as 'due_date'."
            )
    _check_braces(data, stage)
    return msgspec.structs.replace(data, path=with_parameters(data.path, {**parameters, **_LEFT}))


def _check_braces(data: AnyData, stage: str) -> None:
    """Braces that name no parameter, as {} and {0}, were meant to."""
    if {"{", "}"} & {*with_parameters(data.path, dict.fromkeys(parameters_in(data.path), ""))}:
        raise PipelineError(
            f"Stage {stage!r}: the path {data.path} of {data.name!r} has a brace that names no parameter: write"
            " {name}, with a parameter's name alone."
        )


def _producers(stages: Sequence[DeclaredStage], sources: Sequence[AnyData]) -> dict[str, str]:
    """The stage that leaves each data; "" for what was there before."""
    producers = {source.name: "" for source in sources}
    if len(producers) < len(sources):
        twice = next(each.name for each in sources if [one.name for one in sources].count(each.name) > 1)
        raise PipelineError(f"pipeline.read declares {twice!r} twice: give one of them another name.")
    names: set[str] = set()
    paths: dict[str, str] = {}
    for stage in stages:
        if stage.name in names:
            raise PipelineError(f"Two stages have the name {stage.name!r}: give one of them another name.")
        names.add(stage.name)
        for output in stage.outputs:
            if output.name in producers:
                other = producers[output.name]
                left = f"stage {other!r} leaves it" if other else "pipeline.read declares it"
                raise PipelineError(
                    f"Stage {stage.name!r}: its output {output.name!r} has a name that is taken, since {left}: give it"
                    " another name."
                )
            producers[output.name] = stage.name
            _check_path(output, stage, paths)
    return producers


def _check_path(output: AnyData, stage: DeclaredStage, paths: dict[str, str]) -> None:
    path = output.path.rstrip("/")
    if path.startswith("file:"):
        # Flink writes local files as file:/path, too.
        path = posixpath.normpath("/" + path.removeprefix("file:").lstrip("/"))
    for other, name in paths.items() if path else ():
        if path == other or _is_within(path, other) or _is_within(other, path):
            raise PipelineError(
                f"Stage {stage.name!r}: its output {output.name!r} goes to {output.path}, and {name!r} to {other}."
                " Give each output a folder of its own, in which no other one lies."
            )
    if path:
        paths[path] = output.name


def _is_within(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.rstrip('/')}/")


def _waits_for(
    stage: DeclaredStage, stages: Sequence[DeclaredStage], producers: Mapping[str, str]
) -> tuple[str, ...]:
    """The stages that have to end before this one begins, each once."""
    found: dict[str, None] = {}
    for name in stage.inputs:
        if name not in producers:
            raise PipelineError(
                f"Stage {stage.name!r} reads {name!r}, which no stage leaves and no pipeline.read declares; there are:"
                f" {_names(producers)}."
            )
        if producers[name]:
            found[producers[name]] = None
    known = [each.name for each in stages]
    for name in stage.after:
        if name not in known:
            raise PipelineError(
                f"Stage {stage.name!r} comes after {name!r}, which is no stage; there are: {_names(known)}."
            )
        found[name] = None
    return tuple(found)


def _in_order(
    stages: Sequence[DeclaredStage], waits: Mapping[str, Sequence[str]]
) -> tuple[DeclaredStage, ...]:
    """The stages, each behind those for which it waits. Raises PipelineError for a cycle, which it shows."""
    placed: dict[str, DeclaredStage] = {}
    while len(placed) < len(stages):
        ready = [
            stage
            for stage in stages
            if stage.name not in placed and all(name in placed for name in waits[stage.name])
        ]
        if not ready:
            left = next(stage.name for stage in stages if stage.name not in placed)
            raise PipelineError(
                f"The stages wait for each other in a circle: {_circle(left, placed, waits)}. Take out one input or"
                " 'after' of these."
            )
        placed |= {stage.name: stage for stage in ready[:1]}
    return tuple(placed.values())


def _circle(left: str, placed: Iterable[str], waits: Mapping[str, Sequence[str]]) -> str:
    """One circle behind the stage `left`, which cannot begin."""
    way = [left]
    while way[-1] not in way[:-1]:
        way.append(next(name for name in waits[way[-1]] if name not in placed))
    circle = way[way.index(way[-1]) :]
    return " waits for ".join(repr(name) for name in circle)


def _stage(
    stage: DeclaredStage,
    data: Mapping[str, AnyData],
    producers: Mapping[str, str],
    parameters: Mapping[str, Any],
) -> Stage:
    own = {**parameters, **stage.parameters}
    files = tuple(output.name for output in stage.outputs if not output.is_table)
    given = (*stage.inputs, *files)
    for name in given:
        if name in own:
            raise PipelineError(f"Stage {stage.name!r}: {name!r} is the name of a parameter and of data.")
    _check_arguments(stage, given, own)
    inputs = tuple(
        data[name] if producers[name] else _in_its_place(data[name], stage.name, own) for name in stage.inputs
    )
    taken = own if stage.takes_all else {*stage.required, *stage.optional} & own.keys()
    return Stage(
        name=stage.name,
        function=stage.function,
        inputs=inputs,
        outputs=stage.outputs,
        parameters=own,
        arguments=tuple(sorted(taken)),
        retries=stage.retries,
    )


def _check_arguments(stage: DeclaredStage, given: Sequence[str], parameters: Mapping[str, Any]) -> None:
    """What the function takes has to be there, and what it is given has to be taken."""
    known = {*stage.required, *stage.optional}
    for name in stage.required:
        if name not in given and name not in parameters:
            raise PipelineError(
                f"Stage {stage.name!r}: its function takes the argument {name!r}, which is no input, no StageFiles that"
                f" it leaves, and no parameter; there are: {_names([*given, *parameters])}."
            )
    for name in (*given, *stage.parameters):
        if name not in known and not stage.takes_all:
            raise PipelineError(
                f"Stage {stage.name!r}: its function has no argument {name!r}: it gets all inputs, StageFiles and"
                " parameters of the stage by name, after the session."
            )


def _vertex(stage: Stage) -> JobVertex:
    vertex_id = vertex_id_of(stage.name)
    descriptor = OperatorDescriptor(
        id=OperatorID(vertex_id), name=stage.name, spec=SparkStageOperator(stage=stage), uid=stage.name
    )
    return JobVertex(
        id=vertex_id,
        name=stage.name,
        operators=(descriptor,),
        chained_edges=(),
        parallelism=_TASKS,
        max_parallelism=_KEY_GROUPS,
        slot_sharing_group=_GROUP,
        buffer_timeout_ms=-1,
    )


def _edges(stages: Sequence[DeclaredStage], waits: Mapping[str, Sequence[str]]) -> tuple[JobEdge, ...]:
    pairs = [(source, stage.name) for stage in stages for source in waits[stage.name]]
    return tuple(
        JobEdge(
            index=index,
            source=vertex_id_of(source),
            source_operator=0,
            target=vertex_id_of(target),
            target_input=0,
            partitioner=PartitionerSpec(kind=PartitionerKind.FORWARD),
            result_type=ResultPartitionType.BLOCKING,
            stream_kind=StreamKind.COLUMNAR,
        )
        for index, (source, target) in enumerate(pairs)
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
