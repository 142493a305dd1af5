"""A Kafka of three nodes, brought up once for this module: what goes on while one of them is killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kafka.test_kafka_cluster import SECONDS, write
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaPrefixInUseError
from yarrow.datastream.connectors.kafka.writing import prefix_claims, prefix_owner
from yarrow.datastream.connectors.kafka.writing.prefix_claims import Holder, Mark, Sign, owner_name
from yarrow.runtime.common.ids import JobID
from yarrow.testing.connectors.connector_job import wait_until

pytestmark = pytest.mark.kafka

ROWS = [f"row {number:03}" for number in range(40)]
TRANSACTIONS = "__transaction_state"
SECOND, THIRD = JobID("0" * 32), JobID("8" * 32)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    folder = tmp_path_factory.mktemp("nodes")
    with KafkaCluster.at(folder / "three", 3) as cluster:
        assert [node.state for node in cluster.status()] == ["serving"] * 3
        yield cluster
    assert list(folder.iterdir()) == []


@pytest.fixture
def three(started: KafkaCluster) -> Iterator[KafkaCluster]:
    """All nodes serve before and after each test."""
    yield started
    started.bring_back()


def test_three_nodes_go_on_without_one(three: KafkaCluster) -> None:
    three.create_topic("copied", 2)
    three.kill("kafka2")
    write(three, "copied", [b"a", b"b"])
    three.start("kafka2")
    three.wait_until_ready()
    assert all(node.serving for node in three.status())


def coordinators(cluster: KafkaCluster) -> list[int]:
    """The id of the node that coordinates each partition of transactions."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partitions = admin.list_topics(TRANSACTIONS, SECONDS).topics[TRANSACTIONS].partitions
    return [partitions[number].leader for number in range(len(partitions))]


def spread_coordinators(cluster: KafkaCluster) -> list[int]:
    """Let each node coordinate some transactions again: a node that was killed has given them away."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    numbers = range(len(coordinators(cluster)))
    partitions = [TopicPartition(TRANSACTIONS, number) for number in numbers]

    def spread() -> bool:
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(SECONDS)
        return len(set(coordinators(cluster))) == 3

    wait_until(spread, "a coordinator on each node")
    return coordinators(cluster)


def partition_of(name: str, partitions: int) -> int:
    """The partition of a transaction: Kafka takes the hash that Java has of a text."""
    hashed = 0
    for letter in name:
        hashed = (31 * hashed + ord(letter)) % 2**32
    return hashed % 2**31 % partitions


def test_the_coordinator_of_a_transaction_is_killed_and_another_node_commits(three: KafkaCluster) -> None:
    three.create_topic("rows", 2)
    target = TopicUnderTest(three, "rows")
    job = target.job(2)
    job.write(ROWS[:20])
    taken = job.take_checkpoint()
    job.complete(taken)
    job.kill()
    nodes = coordinators(three)
    three.kill(f"kafka{nodes[partition_of(target.leftovers()[0], len(nodes))]}")
    # The commit comes while the node is down, and again when it is back.
    job.start()
    job.kill()
    three.bring_back()
    assert sorted(target.rows()) == ROWS[:20]
    job.start()
    job.write(ROWS)
    job.end()
    target.require_exactly_once(ROWS)


def test_two_jobs_with_one_prefix_are_told_apart_whichever_nodes_know_them(
    three: KafkaCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Living jobs beat fast. A job is watched for so long that beats behind the death of a node are seen.
    monkeypatch.setattr(prefix_owner, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(prefix_owner, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(prefix_claims, "WATCH_SECONDS", 60.0)
    three.create_topic("prefixes", 2)
    target = TopicUnderTest(three, "prefixes")
    # The topic of transactions is there with the first one.
    with target.client() as client:
        client.register("first", 1000)
    nodes = spread_coordinators(three)

    def node_of(holder: Holder) -> int:
        return nodes[partition_of(owner_name(target.prefix, holder), len(nodes))]

    jobs = ([Holder(f"{number:032x}", subtask) for subtask in range(3)] for number in range(1, 10_000))
    holders = next(job for job in jobs if len(set(map(node_of, job))) > 1)
    first = target.job(3, job=JobID(holders[0].job_id))
    names = [owner_name(target.prefix, holder) for holder in holders]
    with target.client() as client:

        def holds(name: str) -> bool:
            sign = Sign.of(client.find_all(names).get(name))
            return sign is not None and sign.mark is Mark.OWNS

        wait_until(lambda: all(map(holds, names)), "the beats of three subtasks")
    refusal = f"with which job {holders[0].job_id} writes now"
    with pytest.raises(KafkaPrefixInUseError, match=refusal):
        target.job(2, job=SECOND)
    # Another node then knows the first subtask.
    three.kill(f"kafka{node_of(holders[0])}")
    with pytest.raises(KafkaPrefixInUseError, match=refusal):
        target.job(2, job=SECOND)
    first.write(ROWS)
    first.end()
    caplog.clear()
    third = target.job(2, job=THIRD)
    assert "still runs" not in caplog.text
    third.write(ROWS)
    third.end()
    target.require_exactly_once(ROWS + ROWS)
