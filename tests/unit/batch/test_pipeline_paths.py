"""Paths of a pipeline are looked at before it is submitted, as far as they mean the same for the SparkDriver."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from yarrow.batch import IfExists, Pipeline, PipelineError, StageFiles, StageTable
from yarrow.common.configuration import Configuration
from yarrow.common.job_client import JobClient
from yarrow.runtime.graph.batch.pipeline_plan import stage_of
from yarrow.runtime.graph.batch.pipeline_storage import MissingInputError, OutputExistsError, check_storage
from yarrow.runtime.graph.executor import DetachedJobClient, LocalFile, executor_in_place, plan_only
from yarrow.runtime.graph.job_graph import JobGraph


class Submitted:
    """An executor that keeps what it gets."""

    def __init__(self) -> None:
        self.graphs: list[JobGraph] = []

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        self.graphs.append(job_graph)
        return DetachedJobClient(job_graph.job_id)


def stage(spark: Any, **arguments: Any) -> None:
    """A stage that is never run."""


def pipeline_to(
    path: str, if_exists: IfExists = IfExists.FAIL, configuration: Mapping[str, str] | None = None
) -> Pipeline:
    pipeline = Pipeline("nightly", configuration=Configuration.from_dict(dict(configuration or {})))
    pipeline.stage("write", stage, outputs=StageTable("out", "n int", path, if_exists=if_exists))
    return pipeline


def submitted(pipeline: Pipeline) -> list[JobGraph]:
    executor = Submitted()
    with executor_in_place(executor):
        pipeline.execute()
    return executor.graphs


def test_an_output_that_exists_is_refused_before_anything_starts(tmp_path: Path) -> None:
    executor = Submitted()
    with (
        executor_in_place(executor),
        pytest.raises(OutputExistsError, match=f"'write': its output 'out': the path {tmp_path} exists"),
    ):
        pipeline_to(str(tmp_path)).execute()
    assert executor.graphs == []
    assert len(submitted(pipeline_to(str(tmp_path / "new")))) == 1
    assert len(submitted(pipeline_to(str(tmp_path), IfExists.REPLACE))) == 1


def test_an_input_that_is_missing_is_refused(tmp_path: Path) -> None:
    pipeline = Pipeline("nightly")
    pipeline.read(StageFiles("model", str(tmp_path / "model")))
    pipeline.stage("use", stage, inputs=["model"])
    with pytest.raises(MissingInputError, match="Stage 'use': its input 'model' does not exist"):
        submitted(pipeline)
    (tmp_path / "model").mkdir()
    assert len(submitted(pipeline)) == 1


def test_local_paths_of_another_cluster_are_not_looked_at(tmp_path: Path) -> None:
    pipeline = pipeline_to(
        str(tmp_path), configuration={"execution.target": "remote", "parallelism.default": "1"}
    )
    (graph,) = submitted(pipeline)
    # The SparkDriver looks at them.
    with pytest.raises(OutputExistsError):
        check_storage(graph)
    check_storage(graph, in_place={vertex.id for vertex in graph.vertices})


def test_relative_paths_are_those_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = pipeline_to("out").get_job_graph()
    assert stage_of(graph.vertices[0]).outputs[0].path == os.path.join(tmp_path, "out")


def test_plain_paths_lie_in_the_default_file_system() -> None:
    pipeline = pipeline_to("/out", configuration={"fs.default-scheme": "hdfs://name:8020/"})
    assert stage_of(pipeline.get_job_graph().vertices[0]).outputs[0].path == "hdfs://name:8020/out"


def test_a_plan_is_shown_whatever_the_storage_holds(tmp_path: Path) -> None:
    with plan_only(), pytest.raises(BaseException, match="was planned"):
        pipeline_to(str(tmp_path)).execute()


@pytest.mark.parametrize(
    ("path", "told"), [("{}/note.txt/out", "Not a directory"), ("s3://bucket/out", "no file system")]
)
def test_a_path_that_cannot_be_looked_at_is_told_with_stage_and_output(
    tmp_path: Path, path: str, told: str
) -> None:
    (tmp_path / "note.txt").touch()
    place = path.format(tmp_path)
    with pytest.raises(
        PipelineError, match=f"Stage 'write': the path {place} of 'out' cannot be looked at: .*{told}"
    ):
        submitted(pipeline_to(place))
