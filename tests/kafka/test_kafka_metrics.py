"""What REST tells of a job from topic to topic: offsets, commits, clients and rows, by Flink's names."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.kafka.counting_job import Run, Words, counting, source_of
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

pytestmark = pytest.mark.kafka

PARTITIONS = 3
ROWS = 300
NewTopic = Callable[..., str]


class JobMetrics:
    """The metrics of a job's operators, as REST tells them."""

    def __init__(self, cluster: MiniCluster, job: str) -> None:
        self._base = f"{cluster.web_address}/jobs/{job}"

    def _get(self, path: str) -> object:
        with urllib.request.urlopen(f"{self._base}{path}", timeout=60) as answer:
            return json.loads(answer.read())

    def of(self, operator: str) -> dict[str, list[float]]:
        """The values of all subtasks by the name of the metric below the operator."""
        found: dict[str, list[float]] = {}
        job = self._get("")
        assert isinstance(job, dict)
        for vertex in job["vertices"]:
            path = f"/vertices/{vertex['id']}/metrics"
            listed = self._get(path)
            assert isinstance(listed, list)
            names = [entry["id"] for entry in listed if f".{operator}." in entry["id"]]
            if not names:
                continue
            values = self._get(f"{path}?get={urllib.parse.quote(','.join(names))}")
            assert isinstance(values, list)
            for entry in values:
                _, _, name = entry["id"].partition(f".{operator}.")
                found.setdefault(name, []).append(float(entry["value"]))
        return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=1, slots=2) as running:
        yield running


@contextmanager
def running_job(
    kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, folder: Path, **properties: str
) -> Iterator[tuple[Words, JobMetrics]]:
    """Topic -> keyed count -> topic, at least once; it is cancelled in the end."""
    words = Words(kafka.bootstrap_servers, new_topic(PARTITIONS), PARTITIONS)
    words.send(ROWS)
    named = {key.replace("_", "."): value for key, value in properties.items()}
    builder = source_of(kafka.bootstrap_servers, words.topic).set_group_id(f"group-{words.topic}")
    target = TopicUnderTest(kafka, new_topic())
    sink = target.sink(DeliveryGuarantee.AT_LEAST_ONCE, named)
    env = counting(cluster, folder, builder.set_properties(named), sink=sink)
    run = Run(cluster, cluster.submit(env.get_job_graph("metrics")))
    try:
        yield words, JobMetrics(cluster, str(run.client.get_job_id()))
    finally:
        run.client.cancel().result()


def holds(metrics: JobMetrics, operator: str, expected: dict[str, float]) -> None:
    """Waits until the sums of metrics over all subtasks are as expected."""
    sums: dict[str, float] = {}

    def is_so() -> bool:
        sums.clear()
        sums.update({name: sum(values) for name, values in metrics.of(operator).items()})
        return all(sums.get(name) == value for name, value in expected.items())

    wait_until(is_so, lambda: str(sums))


def is_positive(metrics: JobMetrics, operator: str, *names: str) -> None:
    """Waits until metrics are greater than 0."""
    found: dict[str, list[float]] = {}

    def are_so() -> bool:
        found.clear()
        found.update(metrics.of(operator))
        return all(sum(found.get(name, ())) > 0 for name in names)

    wait_until(are_so, lambda: str(found))


def test_offsets_commits_and_clients_are_seen_by_rest(
    kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, tmp_path: Path
) -> None:
    with running_job(kafka, new_topic, cluster, tmp_path) as (words, metrics):
        each = ROWS // PARTITIONS
        reader = "KafkaSourceReader"
        offsets: dict[str, float] = {}
        for partition in range(PARTITIONS):
            place = f"{reader}.topic.{words.topic}.partition.{partition}"
            offsets |= {f"{place}.currentOffset": each - 1, f"{place}.committedOffset": each}
        source = offsets | {
            f"{reader}.commitsFailed": 0,
            f"{reader}.KafkaConsumer.records-consumed-total": ROWS,
            f"{reader}.KafkaConsumer.records-lag-max": 0,
            "pendingRecords": 0,
        }
        holds(metrics, "Source__words", source)
        consumer = ("bytes-consumed-total", "incoming-byte-total", "request-total", "connection-count")
        names = [f"{reader}.KafkaConsumer.{name}" for name in consumer]
        is_positive(metrics, "Source__words", f"{reader}.commitsSucceeded", *names)
        words.send(ROWS)
        rates = [
            f"{reader}.KafkaConsumer.{name}" for name in ("records-consumed-rate", "bytes-consumed-rate")
        ]
        # A client tells a rate with its second statistics.
        wait_until(lambda: set(rates) <= metrics.of("Source__words").keys())
        holds(
            metrics,
            "Sink__Writer",
            {"numRecordsSend": 2 * ROWS, "KafkaProducer.record-send-total": 2 * ROWS},
        )
        holds(metrics, "Sink__Writer", {"numRecordsSendErrors": 0, "KafkaProducer.record-error-total": 0})
        producer = ("outgoing-byte-total", "request-total", "connection-count")
        is_positive(metrics, "Sink__Writer", *(f"KafkaProducer.{name}" for name in producer))
        is_positive(metrics, "Sink__Writer", "numBytesSend", "currentSendTime")


def test_metrics_of_clients_can_be_left_out(
    kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, tmp_path: Path
) -> None:
    off = {"register_consumer_metrics": "false", "register_producer_metrics": "false"}
    with running_job(kafka, new_topic, cluster, tmp_path, **off) as (_, metrics):
        holds(metrics, "Sink__Writer", {"numRecordsSend": ROWS})
        is_positive(metrics, "Source__words", "KafkaSourceReader.commitsSucceeded")
        names = {*metrics.of("Source__words"), *metrics.of("Sink__Writer")}
        assert [name for name in names if "KafkaConsumer" in name or "KafkaProducer" in name] == []
