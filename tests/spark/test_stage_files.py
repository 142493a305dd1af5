"""Files of a FileSink that a stage takes up, and its table looked up and read by streams, with a real SparkDriver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from tests.spark.test_pipelines import PlayedPipeline, pipeline_in
from tests.support.batch_runner import run_batch
from tests.support.spark_driver import DriverUnderTest
from tests.unit.batch.test_lookup_table import Gauges
from tests.unit.runtime.graph.programs import environment
from yarrow.batch import FileIntake, IfExists, LookupTable, Pipeline, Schedule, StageTable, read_result
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.datastream import RuntimeContext

pytestmark = pytest.mark.spark


def totals_in(folder: Path) -> StageTable:
    return StageTable(
        "totals", "k string, total bigint", path=str(folder / "totals"), if_exists=IfExists.REPLACE
    )


def reporting(folder: Path, *, broken: bool = False) -> Pipeline:
    """A pipeline that sums up the rows of new files."""
    intake = FileIntake(str(folder / "in"), "report")

    def report(spark: Any, taken: str) -> Any:
        files = intake.take(taken)
        if broken:
            raise ValueError("a broken report")
        rows = (
            spark.read.schema("k string, n bigint").json(files)
            if files
            else spark.sql("select '' k, 0 n where 1 = 0")
        )
        return {"totals": rows.groupBy("k").sum("n").toDF("k", "total")}

    pipeline = pipeline_in(folder)
    pipeline.stage("report", report, outputs=[totals_in(folder), intake.output("taken")])
    return pipeline


def add(folder: Path, name: str, **rows: int) -> None:
    path = folder / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"k": key, "n": number}) + "\n" for key, number in rows.items()))


def run(driver: DriverUnderTest, pipeline: Pipeline) -> None:
    played = PlayedPipeline(driver, pipeline)
    played.all()
    played.end()


def test_each_run_reports_the_files_that_no_run_has_taken(driver: DriverUnderTest, tmp_path: Path) -> None:
    add(tmp_path, "hour=1/part-1", a=1, b=2)
    run(driver, reporting(tmp_path))
    table = LookupTable(totals_in(tmp_path), "k", Schedule.every("1 h"))
    table.open(cast(RuntimeContext, Gauges()))
    assert table.get("b") == Row(k="b", total=2)
    add(tmp_path, "hour=2/part-2", a=5)
    failing = PlayedPipeline(driver, reporting(tmp_path, broken=True))
    end = failing.begin("report").result()
    assert end.cause is not None and end.cause.message == "a broken report"
    failing.end()
    assert not table.refresh()
    run(driver, reporting(tmp_path))
    assert table.refresh()
    assert (table.get("a"), table.get("b")) == (Row(k="a", total=5), None)
    env = environment()
    read_result(env, totals_in(tmp_path)).map(lambda row: f"{row.k}: {row.total}", Types.STRING()).print()
    assert [line.rpartition("> ")[2] for line in run_batch(env.get_job_graph()).printed.splitlines()] == [
        "a: 5"
    ]
    table.close()
