"""The job of one run of a schedule: the job that was submitted, with the time to which the run belongs.

Owner: any thread; pure. A run that is submitted again, also by another master, belongs to the same time. Must not know
clocks.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from yarrow.runtime.config.options import pipeline
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.pipeline_plan import is_pipeline, with_pipeline_plan
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.graph.translation.plan import job_plan


def with_due_time(graph: JobGraph, due: Mapping[str, str]) -> JobGraph:
    """The graph with these global job parameters (Schedule.due_parameters).

    In a pipeline they also replace the parameters of the same names that the program has declared.
    """
    settings = Settings(graph.configuration, "the job")
    own = settings.get(pipeline.GLOBAL_JOB_PARAMETERS)
    parameters = {**({} if own is None else own), **due}
    configuration = settings.with_value(pipeline.GLOBAL_JOB_PARAMETERS, parameters).to_dict(redact=False)
    graph = msgspec.structs.replace(graph, configuration=configuration)
    if not is_pipeline(graph):
        return graph
    vertices = tuple(_with_parameters(vertex, due) for vertex in graph.vertices)
    graph = msgspec.structs.replace(graph, vertices=vertices)
    return msgspec.structs.replace(graph, plan=with_pipeline_plan(job_plan(graph), graph))


def _with_parameters(vertex: JobVertex, due: Mapping[str, str]) -> JobVertex:
    stage = vertex.head.spec.spark_stage
    assert stage is not None, "the job is a pipeline"
    declared = {name: due.get(name, value) for name, value in stage.parameters.items()}
    spec = msgspec.structs.replace(
        vertex.head.spec, stage=msgspec.structs.replace(stage, parameters=declared)
    )
    head = msgspec.structs.replace(vertex.head, spec=spec)
    return msgspec.structs.replace(vertex, operators=(head, *vertex.operators[1:]))
