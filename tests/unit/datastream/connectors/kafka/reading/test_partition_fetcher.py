"""A fetch thread's watch over partitions, by statistics of the client and without a broker."""

from __future__ import annotations

import json

from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.kafka import KafkaSource
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaUnreachableError
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.fetched_items import AssignedPartition, FetchFailure, HandOver
from yarrow.datastream.connectors.kafka.reading.partition_fetcher import PartitionFetcher

PLACE = KafkaTopicPartition("t", 0)


def fetcher() -> PartitionFetcher:
    """A fetcher of one partition, which may be out of reach for two seconds; its thread is not started."""
    builder = KafkaSource.builder().set_bootstrap_servers("localhost:1").set_topics("t")
    builder.set_property("broker.unreachable.timeout.ms", "2000")
    source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    made = PartitionFetcher(source.settings, 0, HandOver(lambda: None), takes_records=False)
    made._assigned[PLACE.topic, PLACE.partition] = AssignedPartition(PLACE, 0)
    return made


def statistics(second: int, state: str) -> str:
    return json.dumps(
        {
            "ts": second * 1_000_000,
            "brokers": {"b:1": {"nodeid": 1, "state": state}},
            "topics": {"t": {"partitions": {"0": {"leader": 1}}}},
        }
    )


def test_the_deadline_of_an_outage_counts_the_seconds_of_the_statistics() -> None:
    """Statistics wait while the reader takes nothing, so the time at which they are taken tells nothing."""
    made = fetcher()
    made._note_statistics(statistics(1, "DOWN"))
    assert made.unreachable == {PLACE}
    made._note_statistics(statistics(2, "DOWN"))
    assert made.items.take() is None
    made._note_statistics(statistics(3, "DOWN"))
    failure = made.items.take()
    assert isinstance(failure, FetchFailure) and isinstance(failure.error, KafkaUnreachableError)


def test_an_outage_that_ends_within_the_deadline_is_forgotten() -> None:
    made = fetcher()
    for second, state in ((1, "DOWN"), (2, "UP"), (9, "DOWN")):
        made._note_statistics(statistics(second, state))
    assert made.items.take() is None
    assert made.unreachable == {PLACE}
