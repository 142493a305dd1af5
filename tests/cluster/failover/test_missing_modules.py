"""A job whose workers cannot import a module fails at once, whatever its restart strategy says, and says what to do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from yarrow.common import JobStatus
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import JobExecutionError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import ExecutionGraphDetails

pytestmark = pytest.mark.cluster

#: So many that a test would not see their end.
_RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "0 s",
}
_FUNCTION = """
from {inner} import add


def mapped(value):
    return add(value)
"""
_LATE_IMPORT = """
import os


def mapped(value):
    with open({trace!r}, "a") as file:
        file.write("x")
    if os.path.getsize({trace!r}) < 3:
        import absent_at_first
    return value
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    # A second TaskExecutor, asked for while a slot is being freed, would be kept for half a minute behind the test.
    with mini_cluster(configuration={"slotmanager.number-of-slots.max": 1}) as running:
        yield running


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the search path; nothing of it stays loaded."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def submitted(cluster: MiniCluster, module: str, gone: Path | None = None) -> tuple[JobID, str]:
    """Runs a job with the function `mapped` of a module, without a file that the client had; its id and failure."""
    importlib.invalidate_caches()
    env = cluster.get_execution_environment(_RESTARTS)
    env.set_parallelism(1)
    function = importlib.import_module(module).mapped
    env.from_collection([1, 2]).map(function).name("mapped").print()
    graph = env.get_job_graph("a module is missing")
    if gone is not None:
        gone.unlink()
    client = cluster.submit(graph)
    said = ""
    try:
        client.get_job_execution_result().result()
    except JobExecutionError as error:
        said = str(error)
    return JobID(str(client.get_job_id())), said


def ended_job(cluster: MiniCluster, job_id: JobID) -> ExecutionGraphDetails:
    return LoopThread.shared().call(cluster.cluster.dispatcher.request_job_details(job_id))


@pytest.mark.parametrize("missing", ["outer_of_two", "inner_of_two"])
def test_a_module_that_workers_cannot_import_is_final(
    missing: str, cluster: MiniCluster, modules: Path
) -> None:
    (modules / "inner_of_two.py").write_text("def add(value):\n    return value + 1\n")
    (modules / "outer_of_two.py").write_text(_FUNCTION.format(inner="inner_of_two"))
    job_id, said = submitted(cluster, "outer_of_two", modules / f"{missing}.py")
    assert f"needs module '{missing}', which this worker ({sys.executable}) cannot import." in said
    assert "Ship the module with add_python_file (-pyfs), or install it in the environment" in said
    details = ended_job(cluster, job_id)
    assert details.status is JobStatus.FAILED and details.restarts == 0


def test_a_module_that_a_running_function_looks_for_is_not(cluster: MiniCluster, modules: Path) -> None:
    trace = modules / "trace"
    (modules / "late_import.py").write_text(_LATE_IMPORT.format(trace=str(trace)))
    job_id, said = submitted(cluster, "late_import")
    details = ended_job(cluster, job_id)
    assert said == "" and details.status is JobStatus.FINISHED
    assert details.restarts == 2
