"""Streams of two clusters: a file tells them to a DynamicKafkaSource, and a test changes the file.

Owner: the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cluster.embedded.waiting import wait_until
from tests.kafka.counting_job import Words
from tests.support.kafka.cluster import KafkaCluster
from tests.unit.datastream.connectors.harness import SourceHarness
from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.dynamic_kafka import (
    DynamicKafkaSource,
    DynamicKafkaSourceBuilder,
    YamlFileMetadataService,
)
from yarrow.runtime.fs.whole_files import replace_whole

STREAM = "orders"


class StreamsOfClusters:
    """One stream, with what a file tells of it."""

    def __init__(self, file: Path, topic: str, **clusters: KafkaCluster) -> None:
        """`topic` is a name that each cluster may have a topic of."""
        self.file = file
        self.topic = topic
        self.clusters = clusters
        self._told: dict[str, dict[str, Any]] = {}

    def tell(
        self, cluster: str, topics: Sequence[str], servers: str | None = None, **properties: str
    ) -> None:
        """Writes that a cluster has topics of the stream; without topics it is told no more."""
        self._told.pop(cluster, None)
        if topics:
            self._told[cluster] = {
                "clusterId": cluster,
                "bootstrapServers": servers or self.clusters[cluster].bootstrap_servers,
                "topics": list(topics),
                "properties": {key.replace("_", "."): value for key, value in properties.items()},
            }
        streams = [{"streamId": STREAM, "clusterMetadataList": list(self._told.values())}]
        replace_whole(self.file, yaml.safe_dump(streams).encode())

    def write(self, cluster: str, *values: str, topic: str | None = None, partition: int = 0) -> None:
        """Writes records into one partition, and waits until the broker has them."""
        producer = Producer({"bootstrap.servers": self.clusters[cluster].bootstrap_servers})
        for value in values:
            producer.produce(topic or self.topic, value, partition=partition)
        assert producer.flush(60) == 0

    def committed(self, cluster: str, group: str) -> int:
        """The offset that a group has in the first partition; negative if there is none."""
        servers = self.clusters[cluster].bootstrap_servers
        looking = Consumer({"bootstrap.servers": servers, "group.id": group})
        try:
            return looking.committed([TopicPartition(self.topic, 0)], 30)[0].offset
        finally:
            looking.close()

    def source(self, **properties: Any) -> DynamicKafkaSourceBuilder:
        """A builder of a source of strings."""
        builder = DynamicKafkaSource.builder().set_stream_ids({STREAM})
        builder.set_kafka_metadata_service(YamlFileMetadataService(str(self.file)))
        builder.set_value_only_deserializer(SimpleStringSchema())
        return builder.set_properties({key.replace("_", "."): value for key, value in properties.items()})


class WordsOfClusters(Words):
    """Writes words into topics of several clusters."""

    def __init__(self, *parts: Words) -> None:
        self._parts = parts

    def send(self, number: int) -> None:
        """Sends words to each cluster."""
        for part in self._parts:
            part.send(number)
        self.sent = sum((part.sent for part in self._parts[1:]), self._parts[0].sent)

    def end(self) -> None:
        """Ends each partition."""
        for part in self._parts:
            part.end()


@contextmanager
def running(
    builder: DynamicKafkaSourceBuilder, parallelism: int = 1, state: Any = None
) -> Iterator[SourceHarness]:
    """A source without an engine."""
    harness = SourceHarness(builder.build(), parallelism, state)
    try:
        yield harness
    finally:
        harness.close()


def poll_until(harness: SourceHarness, condition: Callable[[], bool]) -> None:
    """Polls all readers until a condition holds."""

    def holds() -> bool:
        for reader in range(harness.parallelism):
            harness.poll(reader, 256)
        return condition()

    wait_until(holds, lambda: str(harness.rows))


def discover(harness: SourceHarness) -> bool:
    """Runs the enumerator's timers, as if their time had come. False: none waited."""
    later, harness.later = harness.later, []
    for _, action in later:
        action()
    return bool(later)
