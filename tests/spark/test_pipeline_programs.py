"""`python pipeline.py` as users run it: results, a killed SparkDriver, a failing stage, and nothing left behind.

Each test starts SparkDrivers of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.spark.test_programs import LIMIT, ROOT, program, until_begun
from tests.support.process_names import command_of
from tests.support.spark_driver import LIMIT as SPARK_LIMIT
from tests.support.spark_driver import spark_driver
from yarrow.batch import Pipeline, StageFiles
from yarrow.batch.pipeline_graph import vertex_id_of
from yarrow.runtime.rpc.messages import StageSubmission

pytestmark = pytest.mark.spark

_PIPELINE = """
import pathlib, threading
from yarrow.batch import Pipeline, StageTable

here = pathlib.Path.cwd()

def first(spark, *, folder):
    with open(f"{folder}/first", "a") as runs:
        runs.write("x")
    return spark.range(4)

def second(spark, numbers, *, folder):
    with open(f"{folder}/second", "a") as runs:
        runs.write("x")
    pathlib.Path(folder, "begun").touch()
    while not pathlib.Path(folder, "go").exists():
        threading.Event().wait(0.05)
    return numbers.selectExpr("sum(id) as total")

pipeline = Pipeline("two stages", parameters={"folder": str(here)})
pipeline.stage("second", second, inputs=["numbers"], outputs=StageTable("report", "total bigint", "report"))
pipeline.stage("first", first, outputs=StageTable("numbers", "id bigint"))
pipeline.get_configuration().set_string("execution.batch.pipeline-directory", str(here / "temporary"))
pipeline.get_configuration().set_string("slot.request.timeout", "200 s")
pipeline.get_configuration().set_string("restart-strategy.type", "fixed-delay")
pipeline.get_configuration().set_string("restart-strategy.fixed-delay.attempts", "1")
pipeline.get_configuration().set_string("restart-strategy.fixed-delay.delay", "0 s")
pipeline.execute()
"""


def test_the_example_of_a_pipeline() -> None:
    job = subprocess.run(
        [
            *(sys.executable, "-m", "yarrow.cli.main", "run", "-Dslot.request.timeout=200s"),
            str(ROOT / "examples" / "flights" / "pipeline.py"),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert job.returncode == 0, job.stderr
    rows = [json.loads(line) for line in job.stdout.splitlines() if line.startswith("{")]
    assert sorted(rows, key=lambda row: row["name"]) == [
        {"name": "AMERICAN", "flights": 1, "delay": 12.0},
        {"name": "UNITED", "flights": 2, "delay": 30.0},
    ]


def test_what_has_finished_outlives_the_driver(tmp_path: Path) -> None:
    begun = program(tmp_path, _PIPELINE)
    until_begun(begun, tmp_path)
    (driver,) = (each for each in begun.processes() if "driver_main" in command_of(each))
    driver.kill()
    (tmp_path / "go").touch()
    outcome = begun.wait()
    assert outcome.status == 0, outcome.err
    assert (tmp_path / "first").read_text() == "x"
    assert (tmp_path / "second").read_text() == "xx"
    assert pq.read_table(tmp_path / "report").to_pylist() == [{"total": 6}]
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [path.name for path in tmp_path.glob(".*.yarrow-*")] == []
    begun.assert_nothing_left()


def test_temporary_outputs_of_a_killed_program_go_with_its_cluster(tmp_path: Path) -> None:
    option = 'pipeline.get_configuration().set_string("execution.batch.pipeline-directory", '
    lines = [line for line in _PIPELINE.splitlines() if not line.startswith(option)]
    begun = program(tmp_path, "\n".join(lines))
    until_begun(begun, tmp_path)
    begun.processes()
    temporary = [path for path in begun.tmp.rglob("*.parquet") if "yarrow-pipeline-" in str(path)]
    assert temporary
    begun.signal(signal.SIGKILL)
    begun.wait()
    begun.assert_nothing_left()
    begun.assert_no_files_left()


def test_a_function_that_does_not_return_ends_with_its_driver_and_leaves_nothing(tmp_path: Path) -> None:
    with spark_driver(tmp_path) as driver:
        pipeline = Pipeline("test", parameters={"begun": str(tmp_path / "begun")})
        pipeline.stage("stays", stay, outputs=StageFiles("out", str(tmp_path / "results" / "out")))
        graph = pipeline.get_job_graph()
        run, ended = driver.begin_pipeline(graph, [])
        driver.begin_stage(
            StageSubmission(job_id=graph.job_id, run=run, vertex_id=vertex_id_of("stays"), attempt=0)
        )
        wait_until((tmp_path / "begun").exists, lambda: "the function did not begin")
        assert list((tmp_path / "results").iterdir())
        driver.cancel(graph, run)
        assert ended.result(SPARK_LIMIT).cancelled
        assert list((tmp_path / "results").iterdir()) == []
        driver.release()
        # By itself: nobody kills it.
        assert driver.process.wait(SPARK_LIMIT) == 0


def stay(spark: Any, out: str, *, begun: str) -> None:
    Path(out).mkdir()
    Path(out, "part").write_text("x")
    Path(begun).touch()
    threading.Event().wait()


def test_a_failing_stage_shows_the_users_traceback_first(tmp_path: Path) -> None:
    text = """
from yarrow.batch import Pipeline, StageTable

def broken(spark):
    return {}["day"]

pipeline = Pipeline()
pipeline.get_configuration().set_string("slot.request.timeout", "200 s")
pipeline.stage("broken", broken, outputs=StageTable("out", "id bigint", "out"), retries=1)
try:
    pipeline.execute()
except Exception as error:
    print(type(error).__name__)
    print(error)
"""
    outcome = program(tmp_path, text).wait()
    kind, *told = outcome.out.splitlines()
    assert kind == "JobExecutionError"
    assert told[0] == "Traceback (most recent call last):"
    assert "in broken" in told[1]
    assert "KeyError: 'day'" in told
    for word in ("py4j", "java.", "org.apache", "pyspark"):
        assert word not in outcome.out + outcome.err
    assert not (tmp_path / "out").exists()
