"""A topic into which a KafkaSink writes, what a read_committed reader sees there, and what is left open.

Owner: the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.support.kafka.cluster import KafkaCluster
from tests.unit.container.operators.sinks.sink_harness import JOB, SinkJob
from yarrow.common.serialization import SimpleStringSchema
from yarrow.container.operators.sinks.sink_writing import SinkWritingOperator
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.cluster.client_settings import producer_settings
from yarrow.datastream.connectors.kafka.cluster.end_transaction import ENDING, ONGOING, TransactionClient
from yarrow.datastream.connectors.kafka.writing.kafka_writer import FlushingKafkaWriter
from yarrow.runtime.common.ids import JobID

SECONDS = 60.0
EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE


class TopicUnderTest:
    """One topic, and a prefix of transactions that belongs to it alone."""

    def __init__(self, cluster: KafkaCluster, topic: str, servers: str | None = None) -> None:
        """`servers` are those of the sink, by default the cluster's own."""
        self.cluster = cluster
        self.topic = topic
        self.servers = servers or cluster.bootstrap_servers
        self.prefix = f"p-{topic}"

    def sink(
        self,
        guarantee: DeliveryGuarantee = EXACTLY_ONCE,
        properties: dict[str, Any] | None = None,
        behind_prefix: str = "",
    ) -> KafkaSink[Any]:
        """A sink of texts. `behind_prefix` tells jobs apart that run at the same time."""
        serializer = (
            KafkaRecordSerializationSchema.builder()
            .set_topic(self.topic)
            .set_value_serialization_schema(SimpleStringSchema())
            .build()
        )
        builder = KafkaSink.builder().set_bootstrap_servers(self.servers)
        builder.set_record_serializer(serializer).set_delivery_guarantee(guarantee)
        return (
            builder.set_transactional_id_prefix(self.prefix + behind_prefix)
            .set_properties(properties or {})
            .build()
        )

    def job(
        self,
        parallelism: int = 1,
        sink: KafkaSink[Any] | None = None,
        job: JobID = JOB,
        configuration: dict[str, str] | None = None,
    ) -> SinkJob:
        """The operator of a sink, driven by hand."""
        chosen = sink or self.sink()
        return SinkJob(chosen, parallelism, release=release, job=job, configuration=configuration)

    @contextmanager
    def client(self) -> Iterator[TransactionClient]:
        """Questions about transactions."""
        properties = ClientProperties({"bootstrap.servers": self.cluster.bootstrap_servers})
        client = TransactionClient(producer_settings("test", properties), properties, SECONDS)
        try:
            yield client
        finally:
            client.close()

    def leftovers(self) -> list[str]:
        """Names of open transactions."""
        with self.client() as client:
            return client.listed(self.prefix, ONGOING)

    def messages(self) -> list[Message]:
        """What a read_committed reader gets now, behind every commit that was decided."""
        with self.client() as client:
            while client.listed(self.prefix, *ENDING):
                pass
        settings = {"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "none"}
        # A broker may refuse the first offset of a new topic for a moment. The beginning is the same place.
        reset = {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        reading = {"isolation.level": "read_committed", "enable.partition.eof": "true"}
        consumer = Consumer({**settings, **reading, **reset})
        try:
            partitions = consumer.list_topics(self.topic, SECONDS).topics[self.topic].partitions
            consumer.assign([TopicPartition(self.topic, number, 0) for number in partitions])
            found: list[Message] = []
            ended = 0
            while ended < len(partitions):
                message = consumer.poll(SECONDS)
                assert message is not None, "the broker does not answer"
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended += 1
            return found
        finally:
            consumer.close()

    def rows(self) -> list[str]:
        """The values of `messages`."""
        return [(message.value() or b"").decode() for message in self.messages()]

    def require_exactly_once(self, rows: list[str]) -> None:
        """Every row is visible once, and nothing is open."""
        assert sorted(self.rows()) == sorted(rows)
        assert self.leftovers() == []


def release(operator: SinkWritingOperator) -> None:
    """End the connections, as the system does for a killed process. Nothing is flushed, aborted or committed."""
    writer: Any = operator._writer
    if isinstance(writer, FlushingKafkaWriter):
        writer._producer.close()
    elif writer is not None:
        writer._opener.shutdown(wait=True)
        if writer._owner is not None:
            writer._owner._releases = False
            writer._owner.close()
        if writer._opening is not None and writer._opening.exception() is None:
            writer._producer = writer._opening.result()
        if writer._producer is not None:
            writer._producer.close()
    client = operator._sink._client  # type: ignore[attr-defined]
    if client is not None:
        client.close()
