"""Checks of a pipeline's paths before any of its stages runs: what it reads is there, what it leaves is not.

Owner: any thread; it looks at storage and changes nothing. The client checks the paths that it reaches as the
SparkDriver would, and the SparkDriver checks all of them again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from yarrow.common.pipelines.stage import Stage
from yarrow.common.pipelines.stage_data import AnyData, IfExists
from yarrow.runtime.common.errors import FileSystemError, InvalidProgramError
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.graph.batch.pipeline_plan import path_of, stage_of
from yarrow.runtime.graph.job_graph import JobGraph


class OutputExistsError(InvalidProgramError):
    """The path of an output exists; the message names it and says what to do."""


class MissingInputError(InvalidProgramError):
    """Data that a pipeline reads is not there; the message names stage, input and path."""


def check_storage(
    graph: JobGraph,
    in_place: Container[JobVertexID] = (),
    is_reached: Callable[[str], bool] = lambda path: True,
) -> None:
    """Looks at all paths that `is_reached` says can be seen from here.

    `in_place`: stages of which nothing is checked, since they have left their outputs. Raises OutputExistsError,
    MissingInputError, and FileSystemError for a path that cannot be looked at.
    """
    for stage, data, path in _paths(graph, in_place):
        if not is_reached(path):
            continue
        try:
            is_there = exists(file_system_for(path), path)
        except (OSError, FileSystemError) as error:
            raise FileSystemError(
                f"Stage {stage.name!r}: the path {path} of {data.name!r} cannot be looked at: {error}"
            ) from None
        if data not in stage.outputs and not is_there:
            raise missing_input(stage, data, path)
        if data in stage.outputs and is_there and data.if_exists is IfExists.FAIL:
            raise OutputExistsError(f"Stage {stage.name!r}: its output {data.name!r}: {exists_already(path)}")


def _paths(graph: JobGraph, in_place: Container[JobVertexID]) -> Iterator[tuple[Stage, AnyData, str]]:
    """The paths outside of the pipeline: none of its stages leaves what is read there."""
    stages = {vertex.id: stage_of(vertex) for vertex in graph.vertices}
    left = {output.name for stage in stages.values() for output in stage.outputs}
    for vertex_id, stage in stages.items():
        if vertex_id in in_place:
            continue
        read = tuple(data for data in stage.inputs if data.name not in left)
        for data in (*read, *stage.outputs):
            if data.path:
                yield stage, data, path_of(data, stage)


def exists_already(path: str) -> str:
    """What is wrong with an output that is there, and what to do."""
    return f"the path {path} exists. Remove it, name another one, or declare if_exists=IfExists.REPLACE"


def missing_input(stage: Stage, data: AnyData, path: str) -> MissingInputError:
    """The error for data that is not there."""
    return MissingInputError(
        f"Stage {stage.name!r}: its input {data.name!r} does not exist: there is nothing at {path}. Put it there, or"
        " name another path in pipeline.read"
    )
