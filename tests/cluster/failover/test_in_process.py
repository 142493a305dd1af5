"""TaskExecutors of this very process (execution.in-process) that end: others take their place, the state goes along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import Traced, all_running, environment, run_fast
from tests.cluster.failover.test_killed_with_state import KEYS, ROWS, Count
from yarrow.embedded.in_process_driver import InProcessDriver
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

pytestmark = pytest.mark.cluster


def end_one(cluster: MiniCluster) -> str:
    """Ends the TaskExecutor that was started first, as if by itself; its name."""

    async def end() -> str:
        driver: Any = cluster.cluster._driver
        assert isinstance(driver, InProcessDriver)
        resource_id, executor = next(iter(driver._executors.items()))
        executor.finish("it ends by itself")
        return str(resource_id)

    return LoopThread.shared().call(end())


def test_they_are_replaced_and_counts_stay_exact(tmp_path: Path) -> None:
    with mini_cluster(task_executors=2, slots=1, processes=False) as cluster:
        env = environment(cluster, parallelism=2)
        env.enable_checkpointing(100)
        rows = env.from_sequence(1, ROWS).map(Traced(tmp_path, "rows")).key_by(lambda value: value % KEYS)
        last: dict[int, int] = {}
        with rows.process(Count()).execute_and_collect() as counted:
            client = counted.get_job_client()
            assert isinstance(client, LocalJobClient)
            for number, (key, count) in enumerate(counted):
                last[key] = max(count, last.get(key, 0))
                if number == 300:
                    ended = end_one(cluster)
                    wait_until(lambda: client.get_job_details().result().restarts == 1)
                    wait_until(lambda: all_running(client.get_job_details().result()))
                    details = client.get_job_details().result()
                    used = {task.resource_id for vertex in details.vertices for task in vertex.subtasks}
                    assert ended not in used and len(used) == 2
                    run_fast(tmp_path)
        assert last == dict.fromkeys(range(KEYS), ROWS // KEYS)
