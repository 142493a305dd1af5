"""The first start of a job with checkpoints: what only the user can mend fails it; an absent broker is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import DEADLINE, wait_until
from tests.kafka.counting_job import Run, Words, counting, source_of, written
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from yarrow.datastream.connectors.base import Sink
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import JobExecutionError

pytestmark = pytest.mark.kafka

NewTopic = Callable[..., str]
SETTINGS = {
    "parallelism.default": "1",
    # As without a strategy of the program's own: it restarts without an end.
    "restart-strategy.type": "exponential-delay",
    "restart-strategy.exponential-delay.initial-backoff": "10 ms",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=1, slots=1) as running:
        yield running


def failed(
    cluster: MiniCluster, folder: Path, topic: str, servers: str, sink: Sink[str] | None = None
) -> str:
    """What the end of a counting job tells."""
    env = counting(cluster, folder, source_of(servers, topic), SETTINGS, sink)
    with pytest.raises(JobExecutionError) as told:
        cluster.submit(env.get_job_graph("counts")).get_job_execution_result().result(DEADLINE)
    return str(told.value)


def test_a_missing_topic_fails_the_job_at_its_first_start(
    kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, tmp_path: Path
) -> None:
    topic = new_topic(1)
    missing = TopicUnderTest(kafka, f"{topic}-missing")
    servers = kafka.bootstrap_servers
    by_source = failed(cluster, tmp_path, missing.topic, servers)
    assert f"topic {missing.topic} does not exist" in by_source
    by_sink = failed(cluster, tmp_path, topic, servers, missing.sink())
    assert f"has no topic {missing.topic}. Make the topic first" in by_sink
    for text in (by_source, by_sink):
        assert "does not restart: it has no checkpoint yet" in text


def test_an_absent_broker_is_left_to_the_restart_strategy(
    kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, tmp_path: Path
) -> None:
    words = Words(kafka.bootstrap_servers, new_topic(1), 1)
    words.send(10)
    words.end()
    with kafka.relay() as relay:
        relay.cut()
        builder = source_of(relay.address, words.topic).set_property("default.api.timeout.ms", 300)
        env = counting(cluster, tmp_path, builder, SETTINGS)
        run = Run(cluster, cluster.submit(env.get_job_graph("counts")))
        wait_until(lambda: run.restarts() > 0)
        relay.heal()
        run.ends()
    assert written(tmp_path) == words.counts()
