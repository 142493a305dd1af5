"""Files of a FileSink taken up by the runs of a schedule, on a real cluster without Java: each line once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import wait_until
from yarrow.batch import take_files_once
from yarrow.common import Encoder, Types
from yarrow.common.values.schedule import Schedule
from yarrow.datastream import RuntimeExecutionMode
from yarrow.datastream.connectors.file_system import FileSink, StreamFormat
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.rpc.messages import ScheduleOverview

pytestmark = pytest.mark.cluster


def graph(cluster: MiniCluster, folder: Path, broken: Path) -> JobGraph:
    """A job that copies new lines, and fails while the file `broken` exists."""
    env = cluster.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    env.set_parallelism(2)

    def checked(line: str) -> str:
        if line == "second" and broken.exists():
            raise ValueError("a broken line")
        return line

    lines = take_files_once(env, StreamFormat.text_line_format(), str(folder / "in"), "report")
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
    lines.map(checked, Types.STRING()).sink_to(sink)
    return env.get_job_graph("report")


def rows(folder: Path) -> list[str]:
    files = [path for path in (folder / "out").rglob("part-*") if path.is_file()]
    return sorted(line for path in files for line in path.read_text().splitlines())


def test_runs_of_a_schedule_take_each_file_once_also_after_one_has_failed(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "part-1").write_text("first\n")
    with mini_cluster(task_executors=1, slots=2, processes=True) as cluster:
        plane = cluster.cluster.control_plane
        call = LoopThread.shared().call
        key = call(plane.store_blob(encode_job_graph(graph(cluster, tmp_path, broken))))
        created = call(cluster.cluster.dispatcher.create_schedule(key, Schedule.every("1 s")))

        def shown() -> ScheduleOverview:
            found: ScheduleOverview = call(cluster.cluster.dispatcher.request_schedule(created.schedule_id))
            return found

        wait_until(lambda: rows(tmp_path) == ["first"], lambda: str(shown()))
        # A run that looks meanwhile must not find an empty file.
        (tmp_path / "part-2").write_text("second\nthird\n")
        (tmp_path / "part-2").rename(tmp_path / "in" / "part-2")
        wait_until(lambda: any("broken line" in run.failure for run in shown().ended), lambda: str(shown()))
        assert rows(tmp_path) == ["first"]
        broken.unlink()
        wait_until(lambda: rows(tmp_path) == ["first", "second", "third"], lambda: str(shown()))
        runs = shown().runs
        wait_until(lambda: shown().runs > runs + 1, lambda: str(shown()))
        assert rows(tmp_path) == ["first", "second", "third"]
        call(cluster.cluster.dispatcher.cancel_schedule(created.schedule_id))
        assert call(cluster.cluster.dispatcher.list_schedules()) == ()
