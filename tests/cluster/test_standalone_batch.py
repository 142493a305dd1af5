"""Bounded jobs without Spark on a standalone cluster: in a slot beside a stream, and under a killed TaskExecutor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.spark.test_driver_process import left_of, until
from tests.spark.test_standalone import _STREAM, _SUMS, _WAITING, Standalone, started_in

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp("standalone")
    (folder / "conf").mkdir()
    (folder / "conf" / "workers").write_text("localhost\nlocalhost\n")
    for name, text in (("stream.py", _STREAM), ("sums.py", _SUMS), ("waiting.py", _WAITING)):
        (folder / name).write_text(text)
    cluster = started_in(folder)
    try:
        yield cluster
    finally:
        cluster("stop-cluster")


def workers(cluster: Standalone) -> list[psutil.Process]:
    return [each for slot in range(2) for each in cluster.processes(f"yarrow-batch-{slot}")]


def test_a_small_job_runs_in_a_slot_beside_a_stream(standalone: Standalone) -> None:
    stream = standalone.submit("stream.py")
    details = standalone.run_sums_beside(stream, "AUTOMATIC")
    assert (details["state"], details["job-type"], details["batch-runner"]) == ("FINISHED", "BATCH", "LOCAL")
    assert details["spark-driver-taskmanager"]
    assert {vertex["status"] for vertex in details["vertices"]} == {"FINISHED"}
    standalone("cancel", stream)
    until(lambda: standalone.free() == 4)
    until(lambda: not workers(standalone))


def test_a_killed_task_executor_costs_a_restart_on_the_other_one(standalone: Standalone) -> None:
    marker = standalone.folder / "marker"
    job_id = standalone.submit(
        "-Dexecution.runtime-mode=AUTOMATIC",
        "-Drestart-strategy.type=fixed-delay",
        "-Drestart-strategy.fixed-delay.attempts=3",
        "-Drestart-strategy.fixed-delay.delay=100 ms",
        "waiting.py",
        str(marker),
    )
    until(marker.exists)
    first = standalone.get(f"/jobs/{job_id}")
    host = first["spark-driver-taskmanager"]
    processes = workers(standalone)
    template = processes[0].parent()
    assert template is not None
    supervisor = template.parent()
    assert supervisor is not None
    supervisor.kill()
    assert left_of([template, *processes]) == []
    # The other TaskExecutor has the next driver, and workers of its own run the tasks.
    until(lambda: standalone.get(f"/jobs/{job_id}")["spark-driver-taskmanager"] not in ("", host))
    until(lambda: any(Path(f"{marker}.{each.pid}").exists() for each in workers(standalone)))
    failures = standalone.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    assert any(first["spark-driver"] in failure["stacktrace"] for failure in failures)
    standalone("cancel", job_id)
    until(lambda: not workers(standalone))
    until(lambda: standalone.free() == 2)
