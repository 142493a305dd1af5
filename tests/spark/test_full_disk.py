"""A full disk is named with its folder and the remedy, whether Java or a sink has filled it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.batch_runner import collecting_graph
from tests.support.small_disk import small_disk
from tests.support.spark_driver import LIMIT, DriverUnderTest, spark_driver
from tests.unit.runtime.graph.programs import environment
from yarrow.batch import Pipeline, StageTable
from yarrow.batch.pipeline_graph import vertex_id_of
from yarrow.common import Encoder
from yarrow.datastream.connectors.file_system import FileSink
from yarrow.runtime.rpc.messages import StageSubmission

pytestmark = pytest.mark.spark

MEGABYTE = 1 << 20


def test_java_that_fills_its_disk_is_told(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 24) as disk, spark_driver(tmp_path / "disk") as driver:
        # Tasks put no rows on the disk themselves: they have memory for all, and rows are small.
        env = environment(2, {"execution.batch.sort-memory": "1g"})
        texts = env.from_sequence(1, 30_000).map(lambda n: os.urandom(2048))
        outcome = driver.run(collecting_graph(env, texts.rebalance().map(len)))
        cause = outcome.failure
        assert cause is not None and not cause.is_final
        assert cause.exception_name.endswith("FullDiskError")
        assert cause.message.startswith("Java, which runs Spark, cannot write its files: the disk of ")
        assert f"{disk}/work/spark is full (mounted on {disk}, " in cause.message
        assert "24 MB, of which" in cause.message
        assert "(process.working-dir)" in cause.message
        # The driver takes the next job.
        env = environment(1)
        assert driver.run(collecting_graph(env, env.from_collection([1]))).collected() == [1]


def test_sparks_own_files_that_fill_a_disk_under_a_stage_are_told_with_their_folder(tmp_path: Path) -> None:
    def shuffled(spark: Any) -> Any:
        return spark.range(2_000_000).selectExpr("id", "uuid() as text").repartition(2, "text")

    with small_disk(tmp_path / "disk", 24) as disk, spark_driver(tmp_path / "disk") as driver:
        pipeline = Pipeline("test")
        pipeline.stage(
            "large", shuffled, outputs=StageTable("out", "id bigint, text string", str(tmp_path / "out"))
        )
        graph = pipeline.get_job_graph()
        run, ended = driver.begin_pipeline(graph, [])
        end = driver.begin_stage(
            StageSubmission(job_id=graph.job_id, run=run, vertex_id=vertex_id_of("large"), attempt=0)
        )
        cause = end.result(LIMIT).cause
        driver.cancel(graph, run)
        ended.result(LIMIT)
        assert cause is not None
        assert cause.message.startswith(
            f"Stage 'large': its output 'out' was not written to {tmp_path}/out: Spark cannot write its own files: the"
            f" disk of {disk}/work/spark is full (mounted on {disk}, 24 MB, of which"
        )
        assert cause.message.endswith("name a folder on a larger one (process.working-dir)")


def test_a_sink_that_fills_its_disk_is_told_with_the_file(driver: DriverUnderTest, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        env = environment(1)
        sink = FileSink.for_row_format(str(disk / "out"), Encoder.simple_string_encoder()).build()
        texts = env.from_collection(range(20)).map(lambda n: str(n) * MEGABYTE)
        texts.sink_to(sink).name("files")
        outcome = driver.run(env.get_job_graph())
        cause = outcome.failure
        assert cause is not None
        assert "files" in cause.operator_name
        assert f"No space left on device: '{disk}/out/" in cause.message
        assert f"is full (mounted on {disk}, 4 MB, of which" in cause.message
        assert "write to another one" in cause.stacktrace
        assert [path for path in (disk / "out").rglob("part-*") if path.is_file()] == []
