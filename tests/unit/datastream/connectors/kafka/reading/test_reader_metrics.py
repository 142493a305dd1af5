"""The metrics of a reader have Flink's names: by topic and partition, and by cluster where there are several."""

from __future__ import annotations

import json

from tests.compat.metrics import names
from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.kafka import KafkaSource, KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.fetched_items import HandOver
from yarrow.datastream.connectors.kafka.reading.partition_fetcher import PartitionFetcher
from yarrow.datastream.connectors.kafka.reading.partition_split import EARLIEST, KafkaPartitionSplit
from yarrow.datastream.connectors.kafka.reading.reader_metrics import reader_metrics


def fetcher(**ends: int) -> PartitionFetcher:
    """A fetcher whose thread is not started, with the ends of the partitions of topic t."""
    builder = KafkaSource.builder().set_bootstrap_servers("localhost:1").set_topics("t")
    settings = builder.set_value_only_deserializer(SimpleStringSchema()).build().settings
    made = PartitionFetcher(settings, 0, HandOver(lambda: None), takes_records=False)
    made.ends = {KafkaTopicPartition("t", int(name[1:])): end for name, end in ends.items()}
    return made


def test_every_name_of_flink_is_there() -> None:
    made = fetcher(p0=20)
    for second in (1, 2):
        made.metrics.take(json.dumps({"ts": second * 1_000_000}))
    found = reader_metrics([KafkaPartitionSplit("T", 0, 5)], {"": made}, has_client_metrics=True)
    made.ends = {KafkaTopicPartition("T", 0): 20}
    found |= reader_metrics([KafkaPartitionSplit("T", 0, 5)], {"": made}, has_client_metrics=True)
    shown = {name.replace("partition.0", "partition.P") for name in found}
    assert set(names.KAFKA.split()) <= shown


def test_offsets_and_the_longest_lag() -> None:
    made = fetcher(p0=20, p1=9)
    made.committed = {KafkaTopicPartition("t", 0): 4}
    splits = [
        KafkaPartitionSplit("t", 0, 5),
        KafkaPartitionSplit("t", 1, 0),
        KafkaPartitionSplit("t", 2, EARLIEST),
    ]
    assert reader_metrics(splits, {"": made}, has_client_metrics=True) == {
        "KafkaSourceReader.topic.t.partition.0.currentOffset": 4,
        "KafkaSourceReader.topic.t.partition.0.committedOffset": 4,
        "KafkaSourceReader.topic.t.partition.1.currentOffset": -1,
        "KafkaSourceReader.topic.t.partition.1.committedOffset": -1,
        "KafkaSourceReader.topic.t.partition.2.currentOffset": -1,
        "KafkaSourceReader.topic.t.partition.2.committedOffset": -1,
        "KafkaSourceReader.commitsSucceeded": 0,
        "KafkaSourceReader.commitsFailed": 0,
        "KafkaSourceReader.KafkaConsumer.records-lag-max": 15,
    }


def test_clusters_have_groups_of_their_own() -> None:
    splits = [KafkaPartitionSplit("t", 0, 5, None, "east"), KafkaPartitionSplit("t", 0, 7, None, "west")]
    found = reader_metrics(splits, {"east": fetcher()}, has_client_metrics=False)
    prefix = "DynamicKafkaSource.kafkaCluster.east.KafkaSourceReader."
    assert found == {
        f"{prefix}topic.t.partition.0.currentOffset": 4,
        f"{prefix}topic.t.partition.0.committedOffset": -1,
        f"{prefix}commitsSucceeded": 0,
        f"{prefix}commitsFailed": 0,
    }
