"""KafkaTopics: topic to topic, for the kit of connectors; sources and sinks reach the broker by a relay.

Owner: the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import Producer

from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.base import DeliveryGuarantee, Sink, Source
from yarrow.datastream.connectors.kafka import KafkaSource
from yarrow.testing.connectors import ConnectorUnderTest, Outage
from yarrow.testing.tcp_relay import Direction, TcpRelay

PARTITIONS = 2
_SECONDS = 60.0


class KafkaTopics(ConnectorUnderTest):
    """A topic for the source, and one for the sink."""

    def __init__(
        self,
        cluster: KafkaCluster,
        relay: TcpRelay,
        topics: Sequence[str],
        guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
    ) -> None:
        self._cluster = cluster
        self._relay = relay
        self._source, target = topics
        self.guarantee = guarantee
        #: The guarantee of the sink. Tests of the kit set a weaker one than the connector claims.
        self.asked_for = guarantee
        self.target = TopicUnderTest(cluster, target, relay.address)
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        self._sent = 0

    def source(self) -> Source[str, Any]:
        """Text, from the beginning."""
        builder = KafkaSource.builder().set_bootstrap_servers(self._relay.address).set_topics(self._source)
        return builder.set_value_only_deserializer(SimpleStringSchema()).build()

    def sink(self) -> Sink[str]:
        """Text, with a prefix of this target alone."""
        return self.target.sink(self.asked_for)

    def sink_of_second_job(self) -> Sink[str]:
        """With another prefix, because each belongs to one living job."""
        return self.target.sink(self.asked_for, behind_prefix="-second")

    def fill(self, rows: Sequence[str]) -> None:
        """To each partition in turn."""
        for row in rows:
            self._producer.produce(self._source, row, partition=self._sent % PARTITIONS)
            self._sent += 1
        assert self._producer.flush(_SECONDS) == 0

    def read_all(self) -> Sequence[str]:
        """What a read_committed reader sees."""
        return self.target.rows()

    def leftovers(self) -> Sequence[str]:
        """Open transactions."""
        return self.target.leftovers()

    def outages(self) -> Mapping[str, Outage]:
        """The broker dies, or the network between it and all or one of the workers stands still or breaks."""
        return {
            "the broker is killed": self._killed,
            "the broker is cut off": partial(self._cut_off, Direction.BOTH),
            "answers of the broker are cut off": partial(self._cut_off, Direction.TO_CLIENT),
            "one worker is cut off from the broker": self._one_cut_off,
            "connections to the broker break": self._reset,
        }

    @contextmanager
    def _killed(self, workers: Sequence[int]) -> Iterator[None]:
        self._cluster.kill()
        try:
            yield
        finally:
            self._cluster.start()
            self._cluster.wait_until_ready()

    @contextmanager
    def _cut_off(self, direction: Direction, workers: Sequence[int]) -> Iterator[None]:
        self._relay.cut(direction=direction)
        try:
            yield
        finally:
            self._relay.heal()

    @contextmanager
    def _one_cut_off(self, workers: Sequence[int]) -> Iterator[None]:
        self._relay.cut(workers[:1])
        try:
            yield
        finally:
            self._relay.heal()

    @contextmanager
    def _reset(self, workers: Sequence[int]) -> Iterator[None]:
        self._relay.reset()
        yield


#: Makes topics of a test alone.
NewTopic = Callable[..., str]


@contextmanager
def kafka_topics(
    cluster: KafkaCluster,
    new_topic: NewTopic,
    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
) -> Iterator[KafkaTopics]:
    """New topics behind a relay."""
    topics = [new_topic(PARTITIONS), new_topic(PARTITIONS)]
    with cluster.relay() as relay:
        yield KafkaTopics(cluster, relay, topics, guarantee)
