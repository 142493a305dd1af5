"""Attempts that outlive their run in a Python process of Spark: what they write is gone when the run has ended."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.spark.test_executors import wait_for_both_executors
from tests.support.batch_runner import collecting_graph
from tests.support.spark_driver import LIMIT, DriverUnderTest, spark_driver
from tests.support.speculation import SPECULATION
from tests.support.standalone_spark import standalone_spark
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Encoder, Types
from yarrow.datastream import RuntimeContext
from yarrow.datastream.connectors.file_sink_policies import BucketAssigner, BucketContext
from yarrow.datastream.connectors.file_system import FileSink
from yarrow.datastream.functions import MapFunction

pytestmark = pytest.mark.spark

ROWS = 100_000


def begun_files(folder: Path) -> list[Path]:
    """The files of a FileSink that nobody has committed."""
    # Not by globs, which fail if a folder is removed meanwhile.
    found = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    return [path for path in found if ".inprogress." in path.name]


class FirstWord(BucketAssigner):
    """The folder that a row names."""

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        return str(element).partition(" ")[0]


class FailsBesideALateTask(MapFunction[int, str]):
    """Subtask 0 fails when subtask 1 has written rows. Subtask 1 writes others when those have been removed."""

    def __init__(self, folder: Path, marker: Path) -> None:
        self.folder = str(folder)
        self.marker = str(marker)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.bucket = "early"

    def map(self, value: int) -> str:
        if self.subtask == 0:
            while not os.path.exists(self.marker):
                threading.Event().wait(0.01)
            raise ValueError("told at once")
        if self.bucket == "early" and begun_files(Path(self.folder)):
            Path(self.marker).write_text(str(os.getpid()))
            while begun_files(Path(self.folder)):
                threading.Event().wait(0.01)
            self.bucket = "late"
        return f"{self.bucket} {value}"


def files_by_first_word(folder: Path) -> FileSink:
    encoder = Encoder.simple_string_encoder()
    return FileSink.for_row_format(str(folder), encoder).with_bucket_assigner(FirstWord()).build()


def wait_for_end(task: int) -> None:
    """Returns when the process of a task has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.wait_procs([psutil.Process(task)], LIMIT)


def test_a_late_task_of_a_failed_run_leaves_no_file(driver: DriverUnderTest, tmp_path: Path) -> None:
    folder, marker = tmp_path / "out", tmp_path / "marker"
    env = environment(2)
    rows = env.from_sequence(1, ROWS).map(FailsBesideALateTask(folder, marker), Types.STRING())
    rows.sink_to(files_by_first_word(folder))
    outcome = driver.run(env.get_job_graph())
    assert outcome.failure is not None and "told at once" in outcome.failure.stacktrace
    task = int(marker.read_text())
    wait_for_end(task)
    assert [path for path in folder.rglob("*") if path.is_file()] == []


class SlowAtFirst(MapFunction[int, str]):
    """The first attempt of subtask 1 waits behind half of its rows. It goes on when its files have been removed."""

    def __init__(self, folder: Path, marker: Path) -> None:
        self.folder = str(folder)
        self.marker = str(marker)

    def open(self, runtime_context: RuntimeContext) -> None:
        place = (runtime_context.get_index_of_this_subtask(), runtime_context.get_attempt_number())
        self.left = ROWS // 4 if place == (1, 0) else -1
        self.bucket = "early"

    def map(self, value: int) -> str:
        if self.left == 0:
            Path(self.marker).write_text(str(os.getpid()))
            while begun_files(Path(self.folder)):
                threading.Event().wait(0.01)
            self.bucket = "late"
        self.left -= 1
        return f"{self.bucket} {value}"


def test_rows_of_a_speculative_copy_appear_once_and_the_slower_one_leaves_no_file(tmp_path: Path) -> None:
    folder, marker = tmp_path / "out", tmp_path / "marker"
    for name in ("spark", "driver", "met"):
        (tmp_path / name).mkdir()
    settings = {"spark.executor.memory": "512m", **SPECULATION}
    with (
        standalone_spark(tmp_path / "spark") as spark,
        spark_driver(tmp_path / "driver", configuration={**spark.configuration, **settings}) as driver,
    ):
        wait_for_both_executors(driver, tmp_path / "met")
        env = environment(2)
        rows = env.from_sequence(1, ROWS).rebalance().map(SlowAtFirst(folder, marker), Types.STRING())
        rows.sink_to(files_by_first_word(folder))
        graph = collecting_graph(env, rows)
        outcome = driver.run(graph)
        assert outcome.failure is None, outcome.failure
        expected = sorted(f"early {number}" for number in range(1, ROWS + 1))
        assert sorted(outcome.collected()) == expected
        # The results are those of the copy: the first attempt waited. Spark may also copy a task of the source.
        slow = next(vertex.id for vertex in graph.vertices if vertex.name.startswith("Map"))
        attempts = {each.subtask: each.attempt for each in outcome.subtasks if each.vertex_id == slow}
        assert attempts == {0: 0, 1: 1}
        task = int(marker.read_text())
        wait_for_end(task)
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert {path.parent.name for path in files} == {"early"}
        assert sorted(line for path in files for line in path.read_text().splitlines()) == expected
