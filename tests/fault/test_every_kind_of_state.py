"""Every kind of state under faults: a two-phase sink killed at each of its places, and a job rescaled as it runs.

The job keeps value, list, map, reducing and aggregating state, with and without time to live, typed and untyped, timers
of both clocks, broadcast state, lists and union lists (tests/cluster/savepoints/all_kinds.py). Rows come as checkpoints
complete, a few at a time, so that there is something to commit in each.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.savepoints.all_kinds import ROWS, allow, build, expected_output, is_running
from tests.support.fault_jobs import FILES, JobShape
from tests.support.fault_runs import SETTINGS, FaultRun, KeyBuckets
from yarrow.common.job_status import JobStatus
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import RescaleRequest
from yarrow.testing.fault_plan import PLAN_KEY, FaultAction, FaultPlan, committed_in_part
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles

pytestmark = pytest.mark.fault

#: Rows of each split before the gate, and how many more a checkpoint brings.
GATE, STEP = 45, 3
#: A dozen states take their time.
UNHURRIED = {"execution.checkpointing.interval": "100 ms", "execution.checkpointing.timeout": "20 s"}
#: Processing-time timers that no run lives to see.
FAR = SystemClock().epoch_ms() + 3_600_000


@pytest.fixture(scope="module")
def processes() -> Iterator[MiniCluster]:
    with mini_cluster(1, 2) as running:
        yield running


@pytest.fixture(scope="module")
def threads() -> Iterator[MiniCluster]:
    with mini_cluster(1, 2, processes=False) as running:
        yield running


def _build(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    assert isinstance(sink, TransactionalFiles)
    allow(Path(folder), STEP)
    build(env, Path(folder), due=FAR, sink_folder=Path(sink.folder))


ALL_KINDS = JobShape("all kinds", _build, lambda: expected_output(fired=False))


@contextmanager
def rows_with_checkpoints(gates: Path, checkpoints: Path) -> Iterator[None]:
    """Lets rows pass as checkpoints complete, up to the gate, and all of them once the fault has happened."""
    over = threading.Event()

    def newest() -> int:
        return max((int(path.parent.name[4:]) for path in checkpoints.glob("*/chk-*/_metadata")), default=0)

    def run() -> None:
        seen, limit = 0, STEP
        while not over.wait(0.005):
            if (gates / "fired").exists():
                allow(gates, ROWS)
                return
            if (gates / "limit").exists() and newest() > seen and limit < GATE:
                seen, limit = newest(), limit + STEP
                allow(gates, limit)

    thread = threading.Thread(target=run, name="yarrow-test-rows")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# ---------------------------------------------------------------------- 43

PLACES = [
    "sink.before-prepare",
    "sink.after-prepare",
    "checkpoint.after-acknowledge",
    "coordinator.after-metadata",
    "sink.before-commit",
    "sink.mid-commit",
    "sink.after-commit",
    "restore.inside",
]


def run_at(point: str, action: FaultAction, backend: str, cluster: MiniCluster, folder: Path) -> None:
    plan = FaultPlan(0, point, action, 1, prelude=point.startswith("restore."))
    with rows_with_checkpoints(folder / "gates", folder / "checkpoints"):
        FaultRun(ALL_KINDS, backend, plan, UNHURRIED).execute(cluster, folder)


@pytest.mark.parametrize(
    ("point", "backend"),
    [
        *((point, "hashmap") for point in PLACES),
        *((point, "rocksdb") for point in ("sink.after-prepare", "sink.before-commit", "restore.inside")),
    ],
)
def test_a_sink_killed_at_each_of_its_places(
    point: str, backend: str, processes: MiniCluster, tmp_path: Path
) -> None:
    run_at(point, FaultAction.KILL, backend, processes, tmp_path)


@pytest.mark.parametrize("point", [place for place in PLACES if place.startswith("sink.")])
def test_a_sink_that_fails_at_each_of_its_places(point: str, threads: MiniCluster, tmp_path: Path) -> None:
    run_at(point, FaultAction.RAISE, "hashmap", threads, tmp_path)


@pytest.mark.parametrize(("committed", "backend"), [(1, "hashmap"), (2, "rocksdb")])
def test_a_sink_killed_when_some_of_a_checkpoints_files_are_committed(
    committed: int, backend: str, processes: MiniCluster, tmp_path: Path
) -> None:
    plan = FaultPlan(0, "sink.mid-commit", FaultAction.KILL, committed)
    # Long enough for rows of several folders in a checkpoint.
    settings = {
        "execution.checkpointing.interval": "300 ms",
        PLAN_KEY: f"{committed_in_part.__module__}:{committed_in_part.__name__}",
    }
    FaultRun(FILES, backend, plan, settings, KeyBuckets()).execute(processes, tmp_path)
    where = json.loads((tmp_path / "gates" / "fired").read_text())
    assert int(where["index"]) == committed < int(where["of"]), "others were still to be committed"


# ---------------------------------------------------------------------- 40


@pytest.mark.parametrize(
    ("backend", "unaligned"), [("hashmap", "false"), ("hashmap", "true"), ("rocksdb", "true")]
)
def test_every_kind_of_state_goes_along_when_a_running_job_is_rescaled(
    backend: str, unaligned: str, tmp_path: Path
) -> None:
    """From 2 to 3, 1 and 4, with checkpoints under way and rows on their way."""
    settings = {
        **SETTINGS,
        **UNHURRIED,
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.unaligned.enabled": unaligned,
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.incremental": "true",
        "execution.batch.max-rows": "2",
        "state.backend.type": backend,
    }
    with mini_cluster(2, 2) as cluster:
        allow(tmp_path, 15)
        env = cluster.get_execution_environment(settings)
        build(env, tmp_path, due=FAR, sink_folder=tmp_path / "output")
        client = cluster.submit(env.get_job_graph("all kinds"))
        wait_until(lambda: is_running(client))
        job_id = JobID(str(client.get_job_id()))
        for limit, parallelism in ((30, 3), (40, 1), (50, 4)):
            allow(tmp_path, limit)
            request = RescaleRequest(every=parallelism)
            LoopThread.shared().call(cluster.cluster.dispatcher.rescale_job(job_id, request))
            details = client.get_job_details().result()
            assert {len(vertex.subtasks) for vertex in details.vertices} == {parallelism}
        assert [record.state for record in details.rescales] == ["COMPLETED"] * 3
        assert details.restarts == 0
        allow(tmp_path, ROWS)
        client.get_job_execution_result().result(180)
        assert client.get_job_status().result() is JobStatus.FINISHED
    committed = CommittedFiles(tmp_path / "output")
    assert committed.committed_twice() == [] and committed.leftovers() == []
    assert sorted(committed.rows(), key=repr) == expected_output(fired=False)
