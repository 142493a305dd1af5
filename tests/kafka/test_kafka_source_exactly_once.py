"""Topic -> keyed count -> files, with processes or the broker killed: positions and counts are of one checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.counting_job import Run, Words, counting, run_until_fired, source_of, written
from tests.support.kafka.cluster import KafkaCluster
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.fault_plan import (
    FaultAction,
    FaultPlan,
    FileFaultPlanner,
    configuration_of,
)

pytestmark = [pytest.mark.kafka, pytest.mark.fault]

PARTITIONS = 3
NewTopic = Callable[..., str]
#: The kit of connectors has the other points, in test_kafka_connector.py.
KILLS = [
    ("checkpoint.inside-snapshot", FaultAction.KILL, 2),
    ("checkpoint.after-snapshot", FaultAction.KILL_TASK_EXECUTOR, 1),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    # TaskExecutors that stand in for killed ones end when they are idle.
    configuration = {"resourcemanager.taskmanager-timeout": "1 s"}
    with mini_cluster(task_executors=2, slots=2, configuration=configuration) as running:
        yield running


@pytest.mark.parametrize(("point", "action", "occurrence"), KILLS)
def test_processes_killed_at_barriers(
    kafka: KafkaCluster,
    new_topic: NewTopic,
    cluster: MiniCluster,
    tmp_path: Path,
    point: str,
    action: FaultAction,
    occurrence: int,
) -> None:
    words = Words(kafka.bootstrap_servers, new_topic(PARTITIONS), PARTITIONS)
    plan, gates = FaultPlan(0, point, action, occurrence), tmp_path / "gates"
    gates.mkdir()
    planner = FileFaultPlanner(plan, str(gates), lambda: cluster.processes[:1])
    builder = source_of(kafka.bootstrap_servers, words.topic)
    env = counting(cluster, tmp_path, builder, configuration_of(plan, str(gates)))
    words.send(100)
    run = run_until_fired(cluster, env, words, planner)
    words.end()
    run.ends()
    assert written(tmp_path) == words.counts()


def test_broker_killed_and_started_again(
    kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, tmp_path: Path
) -> None:
    words = Words(kafka.bootstrap_servers, new_topic(PARTITIONS), PARTITIONS)
    env = counting(cluster, tmp_path, source_of(kafka.bootstrap_servers, words.topic))
    words.send(500)
    run = Run(cluster, cluster.submit(env.get_job_graph("counts")))
    run.until_completed()
    kafka.kill()
    run.until_completed()
    kafka.start()
    kafka.wait_until_ready()
    words.send(500)
    run.until_completed()
    assert run.restarts() == 0, "the job waits for its broker"
    words.end()
    run.ends()
    assert written(tmp_path) == words.counts()
