"""Topic -> keyed count -> topic, killed wherever it can be: a read_committed reader sees each count once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.failover.test_rescaling import rescale
from tests.kafka.counting_job import Run, Words, counting, send_until, source_of
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.fault_plan import (
    FaultAction,
    FaultPlan,
    FileFaultPlanner,
    configuration_of,
    install,
)

pytestmark = [pytest.mark.kafka, pytest.mark.fault]

PARTITIONS = 2
NewTopic = Callable[..., str]
KILLS = [
    ("checkpoint.inside-snapshot", FaultAction.KILL, 2),
    ("checkpoint.after-acknowledge", FaultAction.KILL, 1),
    ("checkpoint.before-notify", FaultAction.KILL, 3),
    ("sink.before-prepare", FaultAction.KILL, 2),
    ("sink.after-prepare", FaultAction.KILL, 2),
    ("sink.before-commit", FaultAction.KILL, 1),
    ("sink.mid-commit", FaultAction.KILL, 2),
    ("sink.after-commit", FaultAction.KILL, 1),
    ("coordinator.before-notify", FaultAction.KILL, 2),
    ("checkpoint.after-snapshot", FaultAction.KILL_TASK_EXECUTOR, 1),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    configuration = {"resourcemanager.taskmanager-timeout": "1 s"}
    with mini_cluster(task_executors=2, slots=2, configuration=configuration) as running:
        yield running


class CountedTopics:
    """A topic of words, and the topic of their counts."""

    def __init__(self, kafka: KafkaCluster, new_topic: NewTopic) -> None:
        self.words = Words(kafka.bootstrap_servers, new_topic(PARTITIONS), PARTITIONS)
        self.source = source_of(kafka.bootstrap_servers, self.words.topic)
        self.target = TopicUnderTest(kafka, new_topic(PARTITIONS))

    def require_each_count_once(self) -> None:
        assert Counter(self.target.rows()) == self.words.counts()
        assert self.target.leftovers() == []


@pytest.fixture
def topics(kafka: KafkaCluster, new_topic: NewTopic) -> CountedTopics:
    return CountedTopics(kafka, new_topic)


@pytest.mark.parametrize(("point", "action", "occurrence"), KILLS)
def test_processes_killed(
    topics: CountedTopics,
    cluster: MiniCluster,
    tmp_path: Path,
    point: str,
    action: FaultAction,
    occurrence: int,
) -> None:
    plan, gates = FaultPlan(0, point, action, occurrence), tmp_path / "gates"
    gates.mkdir()
    planner = FileFaultPlanner(plan, str(gates), lambda: cluster.processes[:1])
    settings = configuration_of(plan, str(gates))
    env = counting(cluster, tmp_path, topics.source, settings, topics.target.sink())
    topics.words.send(100)
    install(planner)
    try:
        run = Run(cluster, cluster.submit(env.get_job_graph("counts")))
        send_until(topics.words, lambda: planner.has_fired)
    finally:
        install(None)
    topics.words.end()
    run.ends()
    topics.require_each_count_once()


def test_rescaled(topics: CountedTopics, cluster: MiniCluster, tmp_path: Path) -> None:
    env = counting(cluster, tmp_path, topics.source, sink=topics.target.sink())
    env.set_parallelism(1)
    topics.words.send(200)
    run = Run(cluster, cluster.submit(env.get_job_graph("counts")))
    run.until_completed()
    for parallelism in (4, 2):
        rescale(cluster, run.client, parallelism)
        topics.words.send(200)
        run.until_completed()
    topics.words.end()
    run.ends()
    topics.require_each_count_once()


def test_the_broker_is_killed_and_started_again(
    topics: CountedTopics, kafka: KafkaCluster, cluster: MiniCluster, tmp_path: Path
) -> None:
    env = counting(cluster, tmp_path, topics.source, sink=topics.target.sink())
    topics.words.send(300)
    run = Run(cluster, cluster.submit(env.get_job_graph("counts")))
    run.until_completed()
    kafka.kill()
    kafka.start()
    kafka.wait_until_ready()
    topics.words.send(300)
    run.until_completed()
    topics.words.end()
    run.ends()
    topics.require_each_count_once()
