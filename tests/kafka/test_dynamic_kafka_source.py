"""Streams of two real clusters: read, moved, added and taken away at run time, and exactly once behind a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.kafka.counting_job import Run, UpToEnd, Words, counting, run_until_fired, written
from tests.kafka.streams_of_clusters import (
    StreamsOfClusters,
    WordsOfClusters,
    discover,
    poll_until,
    running,
)
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.credentials import PASSWORD, USER
from tests.support.kafka.run_clusters import cluster_of_run
from tests.unit.datastream.connectors.harness import SourceHarness, as_stored
from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.dynamic_kafka import DynamicKafkaSource, SingleClusterTopicMetadataService
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaUnreachableError
from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.testing.fault_plan import FaultAction, FaultPlan, FileFaultPlanner, configuration_of

pytestmark = pytest.mark.kafka

PARTITIONS = 2
NewTopic = Callable[..., str]


@pytest.fixture(scope="module")
def second() -> Iterator[KafkaCluster]:
    with cluster_of_run(name="second") as cluster:
        yield cluster


@pytest.fixture
def streams(
    kafka: KafkaCluster, second: KafkaCluster, new_topic: NewTopic, tmp_path: Path
) -> Iterator[StreamsOfClusters]:
    """A topic of the same name in the clusters east and west."""
    topic = new_topic(PARTITIONS)
    second.create_topic(topic, PARTITIONS)
    yield StreamsOfClusters(tmp_path / "streams.yaml", topic, east=kafka, west=second)
    second.bring_back()
    second.delete_topic(topic)


def test_positions_of_both_clusters_go_on_with_other_readers(streams: StreamsOfClusters) -> None:
    for cluster in ("east", "west"):
        streams.tell(cluster, [streams.topic])
        for partition in range(PARTITIONS):
            streams.write(cluster, f"{cluster} {partition}", partition=partition)
    first = ["east 0", "east 1", "west 0", "west 1"]
    with running(streams.source(), 2) as harness:
        poll_until(harness, lambda: sorted(harness.rows) == first)
        splits = {split.split_id for split in harness.assigned}
        assert splits == {f"{c}/{streams.topic}-{p}" for c in ("east", "west") for p in range(PARTITIONS)}
        state = as_stored(harness.snapshot())
    streams.write("east", "more of east")
    streams.write("west", "more of west", partition=1)
    with running(streams.source(), 3, state) as harness:
        poll_until(harness, lambda: sorted(harness.rows) == ["more of east", "more of west"])
        assert harness.assigned == [], "the readers had all splits"


def test_clusters_and_topics_come_and_go(
    streams: StreamsOfClusters, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    other = new_topic()
    streams.tell("east", [streams.topic])
    streams.write("east", "a")
    streams.write("west", "b")
    streams.write("east", "c", topic=other)
    source = streams.source().set_property("stream-metadata-discovery-interval-ms", 1000)
    with running(source) as harness:
        poll_until(harness, lambda: harness.rows == ["a"])
        streams.tell("east", [streams.topic, other])
        streams.tell("west", [streams.topic])
        discover(harness)
        poll_until(harness, lambda: sorted(harness.rows) == ["a", "b", "c"])
        streams.tell("west", [])
        streams.tell("east", [streams.topic])
        discover(harness)
        gone = [f"east/{other}-0", *(f"west/{streams.topic}-{partition}" for partition in range(PARTITIONS))]
        assert finished(harness, len(gone)) == gone
        assert "cluster west is not read any more" in caplog.text
        assert f"{gone[0]} is not among the topics {streams.topic} of cluster east any more" in caplog.text
        streams.write("west", "unread")
        streams.write("east", "d")
        poll_until(harness, lambda: "d" in harness.rows)
        assert sorted(harness.rows) == ["a", "b", "c", "d"]
        held = {split.split_id for split in harness.snapshot()[1][0]}
        assert held == {f"east/{streams.topic}-{partition}" for partition in range(PARTITIONS)}


def finished(harness: SourceHarness, number: int) -> list[str]:
    """The ids of splits that hold back no watermark any more, in the order of the alphabet."""
    found: list[str] = []

    def has_all() -> bool:
        polled = harness.poll()
        if isinstance(polled, SourceRecords):
            found.extend(polled.finished_before)
        return len(found) >= number

    wait_until(has_all, lambda: str(found))
    return sorted(found)


def test_a_cluster_that_went_between_two_jobs_is_released(
    streams: StreamsOfClusters, caplog: pytest.LogCaptureFixture
) -> None:
    for cluster in ("east", "west"):
        streams.tell(cluster, [streams.topic])
        streams.write(cluster, cluster)
    with running(streams.source()) as harness:
        poll_until(harness, lambda: sorted(harness.rows) == ["east", "west"])
        state = as_stored(harness.snapshot())
    streams.tell("west", [])
    streams.write("east", "more")
    with running(streams.source(), 1, state) as harness:
        poll_until(harness, lambda: harness.rows == ["more"])
        assert "cluster west is not read any more" in caplog.text
        assert {split.cluster for split in harness.snapshot()[1][0]} == {"east"}


def test_each_cluster_has_its_own_login_and_may_move(streams: StreamsOfClusters) -> None:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    secret = {"sasl_username": USER, "sasl_password": PASSWORD}
    secured = streams.clusters["west"].secured_servers
    streams.tell("east", [streams.topic])
    streams.tell("west", [streams.topic], secured, **login, **secret)
    streams.write("east", "a")
    streams.write("west", "b")
    source = streams.source().set_property("stream-metadata-discovery-interval-ms", 1000)
    with running(source) as harness:
        poll_until(harness, lambda: sorted(harness.rows) == ["a", "b"])
        assert PASSWORD not in repr(as_stored(harness.snapshot()))
        streams.tell("west", [streams.topic])
        discover(harness)
        streams.write("west", "c")
        poll_until(harness, lambda: "c" in harness.rows)
        assert sorted(harness.rows) == ["a", "b", "c"], "it goes on behind its position"


def test_offsets_are_committed_to_the_group_of_each_cluster(streams: StreamsOfClusters) -> None:
    group = f"group-{streams.topic}"
    streams.tell("east", [streams.topic], group_id=f"{group}-of-east")
    streams.tell("west", [streams.topic])
    streams.write("east", "a", "b")
    streams.write("west", "c")
    with running(streams.source(group_id=group)) as harness:
        poll_until(harness, lambda: len(harness.rows) == 3)
        reader = harness.readers[0]
        reader.snapshot_state(1)
        reader.notify_checkpoint_complete(1)
        wait_until(lambda: streams.committed("east", f"{group}-of-east") == 2)
        wait_until(lambda: streams.committed("west", group) == 1)
        assert streams.committed("east", group) < 0


def test_an_unreachable_cluster_is_named_and_fails_behind_its_deadline(
    streams: StreamsOfClusters, caplog: pytest.LogCaptureFixture
) -> None:
    for cluster in ("east", "west"):
        streams.tell(cluster, [streams.topic])
        streams.write(cluster, cluster)
    with running(streams.source(broker_unreachable_timeout_ms=6000)) as harness:
        poll_until(harness, lambda: sorted(harness.rows) == ["east", "west"])
        streams.clusters["west"].kill()
        gone = {f"west/{streams.topic}-{partition}" for partition in range(PARTITIONS)}
        poll_until(harness, lambda: set(harness.readers[0].unreachable_splits()) == gone)
        streams.write("east", "meanwhile")
        poll_until(harness, lambda: "meanwhile" in harness.rows)
        with pytest.raises(KafkaUnreachableError, match=r"west/.* could not be reached for 6 s"):
            poll_until(harness, lambda: False)
        assert f"west/{streams.topic}-0 of {streams.clusters['west'].bootstrap_servers} cannot" in caplog.text


def test_a_cluster_that_is_added_and_does_not_answer_is_named(streams: StreamsOfClusters) -> None:
    streams.tell("east", [streams.topic])
    streams.write("east", "a")
    source = streams.source(default_api_timeout_ms=1000, broker_unreachable_timeout_ms=2000)
    source.set_property("stream-metadata-discovery-interval-ms", 1000)
    with running(source) as harness:
        poll_until(harness, lambda: harness.rows == ["a"])
        streams.tell("south", [streams.topic], "localhost:1")
        discover(harness)
        assert harness.poll() is not None, "the job goes on meanwhile"
        with pytest.raises(KafkaUnreachableError, match=r"localhost:1 \(cluster south\) did not answer"):
            wait_until(lambda: not discover(harness))
    with pytest.raises(KafkaUnreachableError, match=r"localhost:1 \(cluster south\) did not answer"):
        running(source).__enter__()


def test_one_cluster_whose_topics_are_streams(streams: StreamsOfClusters) -> None:
    streams.write("west", "a", "b")
    servers = {"bootstrap.servers": streams.clusters["west"].bootstrap_servers}
    builder = DynamicKafkaSource.builder().set_stream_pattern(streams.topic)
    builder.set_kafka_metadata_service(SingleClusterTopicMetadataService("west", servers))
    builder.set_value_only_deserializer(SimpleStringSchema()).set_bounded(KafkaOffsetsInitializer.latest())
    with running(builder, 2) as harness:
        assert harness.run() == ["a", "b"]


@pytest.mark.fault
def test_rows_of_both_clusters_are_there_once_behind_a_killed_worker_and_a_savepoint(
    streams: StreamsOfClusters, tmp_path: Path
) -> None:
    parts = []
    for name, kafka in streams.clusters.items():
        streams.tell(name, [streams.topic])
        parts.append(Words(kafka.bootstrap_servers, streams.topic, PARTITIONS))
    words = WordsOfClusters(*parts)
    plan, gates = FaultPlan(0, "checkpoint.inside-snapshot", FaultAction.KILL, 2), tmp_path / "gates"
    gates.mkdir()
    source = streams.source(partition_discovery_interval_ms=-1).set_value_only_deserializer(UpToEnd())
    words.send(100)
    with mini_cluster(task_executors=2, slots=2) as cluster:
        planner = FileFaultPlanner(plan, str(gates), lambda: cluster.processes[:1])
        env = counting(cluster, tmp_path, source, configuration_of(plan, str(gates)))
        run = run_until_fired(cluster, env, words, planner)
        run.until_completed()
        assert run.restarts() > 0
        savepoint = run.client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
        words.send(100)
        settings = {"execution.state-recovery.path": savepoint, "parallelism.default": "1"}
        env = counting(cluster, tmp_path, source, settings)
        run = Run(cluster, cluster.submit(env.get_job_graph("counts")))
        words.end()
        run.ends()
    assert written(tmp_path) == words.counts()
