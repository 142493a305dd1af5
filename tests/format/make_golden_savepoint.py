"""Writes the golden savepoint and the golden native checkpoint of the job with every kind of state.

`python -m tests.format.make_golden_savepoint FOLDER` wrote what lies in all-kinds-version-1 and rocksdb-version-1;
never write these again: later releases must restore them as they are. A later version of a format gets folders
of its own.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.savepoints.all_kinds import allow, build, is_running, wait_at
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

#: Rows of each split that had passed.
LIMIT = 25
#: Processing-time timers: in the year 2200.
DUE = 7_258_118_400_000


def start(cluster: MiniCluster, folder: Path, backend: str) -> LocalJobClient:
    """The job at parallelism 2, at its gates."""
    allow(folder, LIMIT)
    env = cluster.get_execution_environment(
        {
            "state.backend.type": backend,
            "parallelism.default": "2",
            "execution.checkpointing.interval": "200 ms",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.data-inline-threshold": "1 kb",
            "execution.checkpointing.dir": f"{folder}/checkpoints",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        }
    )
    build(env, folder, due=DUE)
    client = cluster.submit(env.get_job_graph("golden"))
    wait_until(lambda: is_running(client), lambda: str(client.get_job_details().result().exceptions))
    wait_at(folder, LIMIT)
    return client


def _completed(client: LocalJobClient) -> float:
    return client.get_job_details().result().checkpoint_metrics.get("numberOfCompletedCheckpoints", 0)


def write_savepoint(cluster: MiniCluster, folder: Path, target: Path) -> None:
    """A canonical savepoint, and what its sink had committed."""
    client = start(cluster, folder, "hashmap")
    path = client.stop_with_savepoint(False, f"{folder}/savepoints").result()
    shutil.copytree(path, target / "savepoint")
    shutil.copytree(folder / "sink", target / "sink")


def write_native_checkpoint(cluster: MiniCluster, folder: Path, target: Path) -> None:
    """A native checkpoint that shares files with the ones before it, and what its sink had committed."""
    client = start(cluster, folder, "rocksdb")
    before = _completed(client)
    wait_until(lambda: _completed(client) >= before + 2)
    client.cancel().result()
    client.get_job_execution_result().exception()
    (job,) = (folder / "checkpoints").iterdir()
    shutil.copytree(job, target / "checkpoints")
    shutil.copytree(folder / "sink", target / "sink")
    (target / "written-at").write_text(str(job))


if __name__ == "__main__":
    root = Path(sys.argv[1])
    with mini_cluster(task_executors=2, slots=1) as running:
        write_savepoint(running, root / "heap", root / "all-kinds-version-1")
        write_native_checkpoint(running, root / "rocksdb", root / "rocksdb-version-1")
