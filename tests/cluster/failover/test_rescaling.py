"""A running job at other parallelisms: its state goes along, its counts stay exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import Traced, all_running, environment
from tests.cluster.failover.test_killed_with_state import KEYS, ROWS, Count
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import RescaleRequest
from yarrow.testing.local_job_client import LocalJobClient
from yarrow.testing.loop_thread import LoopThread
from yarrow.testing.mini_cluster import MiniCluster, mini_cluster

#: So many that none of the subtasks is done before the last rescale.
MORE_ROWS = 3 * ROWS
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=2, slots=2) as running:
        yield running


def rescale(cluster: MiniCluster, client: LocalJobClient, parallelism: int) -> None:
    job_id = JobID(str(client.get_job_id()))
    LoopThread.shared().call(
        cluster.cluster.dispatcher.rescale_job(job_id, RescaleRequest(every=parallelism))
    )


def test_up_down_and_up_again(cluster: MiniCluster, tmp_path: Path) -> None:
    env = environment(cluster, parallelism=2)
    env.enable_checkpointing(60_000)
    counts = env.from_sequence(1, MORE_ROWS).map(Traced(tmp_path, "rows")).key_by(lambda value: value % KEYS)
    last: dict[int, int] = {}
    with counts.process(Count()).execute_and_collect() as rows:
        client = rows.get_job_client()
        assert isinstance(client, LocalJobClient)
        wait_until(lambda: all_running(client.get_job_details().result()))
        for parallelism in (3, 1, 4):
            key, count = next(rows)
            last[key] = max(count, last.get(key, 0))
            rescale(cluster, client, parallelism)
            details = client.get_job_details().result()
            assert {len(vertex.subtasks) for vertex in details.vertices} <= {parallelism, 1}
        assert [(record.state, record.reason) for record in details.rescales] == [("COMPLETED", "")] * 3
        assert details.exceptions == () and details.restarts == 0
        for key, count in rows:
            last[key] = max(count, last.get(key, 0))
    assert last == dict.fromkeys(range(KEYS), MORE_ROWS // KEYS)


def test_more_than_there_can_be_is_refused_and_the_job_runs_on(cluster: MiniCluster, tmp_path: Path) -> None:
    env = environment(cluster).set_max_parallelism(8)
    env.from_sequence(1, 10**15).map(Traced(tmp_path, "rows")).filter(lambda value: False).print()
    client = cluster.submit(env.get_job_graph("bounded"))
    wait_until(lambda: all_running(client.get_job_details().result()))
    with pytest.raises(Exception, match="its max parallelism, 8"):
        rescale(cluster, client, 9)
    assert all_running(client.get_job_details().result())
    client.cancel().result()
