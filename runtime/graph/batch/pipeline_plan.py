"""A pipeline of Spark stages as a JobGraph says it: which jobs are pipelines, their stages, and their plan for people.

Owner: any thread; pure. Must not look into user code, nor at storage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from yarrow.common.pipelines.stage import Stage
from yarrow.common.pipelines.stage_data import AnyData, with_parameters
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex


def is_pipeline(graph: JobGraph) -> bool:
    """Whether the job is a pipeline of Spark stages: then all its vertices are stages."""
    return all(vertex.head.spec.spark_stage is not None for vertex in graph.vertices)


def stage_of(vertex: JobVertex) -> Stage:
    """The stage that a vertex of a pipeline is."""
    stage = vertex.head.spec.spark_stage
    assert stage is not None, "the job is a pipeline"
    return stage


def waits_for(graph: JobGraph) -> dict[JobVertexID, frozenset[JobVertexID]]:
    """The stages that have to finish before each stage begins."""
    return {
        vertex.id: frozenset(edge.source for edge in graph.inputs_of(vertex.id)) for vertex in graph.vertices
    }


def path_of(data: AnyData, stage: Stage) -> str:
    """The path of the data with the parameters of a stage; "" = it is temporary."""
    return with_parameters(data.path, stage.parameters)


def tasks_at_a_time(graph: JobGraph) -> int:
    """How many tasks Spark runs at a time where no option says so: the parallelism of the widest vertex.

    A stage of a pipeline is one vertex, whose work Spark divides: there it is `parallelism.default`.
    """
    if is_pipeline(graph):
        return Settings(graph.configuration, "the job").get(pipeline.DEFAULT_PARALLELISM)
    return max(vertex.parallelism for vertex in graph.vertices)


def lines_of_pipeline(graph: JobGraph) -> Iterator[str]:
    """The pipeline as text: each stage with what it reads and leaves, and for which others it waits."""
    numbers = {vertex.id: number for number, vertex in enumerate(graph.vertices, 1)}
    for vertex in graph.vertices:
        stage = stage_of(vertex)
        yield f"Stage {numbers[vertex.id]}: {vertex.name}"
        for data in stage.inputs:
            yield f"    reads: {_text(data, stage)}"
        sources = sorted(numbers[edge.source] for edge in graph.inputs_of(vertex.id))
        if sources:
            yield f"    waits for: stage {', '.join(map(str, sources))}"
        for data in stage.outputs:
            yield f"    leaves: {_text(data, stage)}"
        if stage.retries:
            yield f"    retries: {stage.retries}"


def with_pipeline_plan(job_plan: Mapping[str, Any], graph: JobGraph) -> dict[str, Any]:
    """The plan of a JobGraph (`plan.job_plan`) with what its stages leave."""
    leaves = {
        vertex.id: ", ".join(_text(data, stage_of(vertex)) for data in stage_of(vertex).outputs)
        for vertex in graph.vertices
    }
    nodes = [{**node, "operator_strategy": leaves[node["id"]]} for node in job_plan["nodes"]]
    return {**job_plan, "type": "BATCH", "nodes": nodes}


def _text(data: AnyData, stage: Stage) -> str:
    path = path_of(data, stage)
    return f"{data.name} ({path})" if path else f"{data.name} (temporary)"
