"""A task that takes no rows: the client's statistics are taken all the same, and no record is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.cluster.embedded.waiting import wait_until
from tests.support.kafka.cluster import KafkaCluster
from tests.unit.datastream.connectors.harness import SourceHarness
from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.kafka import KafkaSource
from yarrow.datastream.connectors.kafka.reading import partition_fetcher
from yarrow.datastream.connectors.kafka.reading.partition_fetcher import PartitionFetcher

pytestmark = pytest.mark.kafka

#: Records of each of two partitions: more than the queue before the task and the client hold.
RECORDS = 60_000


def test_statistics_are_taken_under_back_pressure_and_every_record_once(
    kafka: KafkaCluster, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(2, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for index in range(RECORDS):
        for partition in (0, 1):
            producer.produce(topic, f"{partition}-{index}-{'x' * 500}".encode(), partition=partition)
        producer.poll(0)
        if index % 20_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0
    taken_while_full: list[str] = []
    note = PartitionFetcher._note_statistics

    def noting(fetcher: PartitionFetcher, text: str) -> None:
        if fetcher.items.is_full and fetcher._is_held:
            taken_while_full.append(text)
        note(fetcher, text)

    monkeypatch.setattr(PartitionFetcher, "_note_statistics", noting)
    monkeypatch.setattr(partition_fetcher, "_HOLD_SECONDS", 0.0)
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(topic)
    source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    harness = SourceHarness(source)
    rows: list[str] = []

    def has_all() -> bool:
        found = harness.poll(0, 4096)
        if isinstance(found, SourceRecords):
            rows.extend(found.rows)
        return len(rows) >= 2 * RECORDS

    try:
        wait_until(lambda: len(taken_while_full) >= 3)
        wait_until(has_all)
    finally:
        harness.close()
    for partition in (0, 1):
        indexes = [int(row.split("-")[1]) for row in rows if row.startswith(f"{partition}-")]
        assert indexes == list(range(RECORDS))
