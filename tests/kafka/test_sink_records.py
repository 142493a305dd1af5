"""What a KafkaSink writes: all parts of records, and errors that name record, topic and setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kafka.topic_under_test import TopicUnderTest, release
from tests.support.kafka.cluster import KafkaCluster
from tests.unit.container.operators.sinks.sink_harness import SinkJob
from yarrow.common.serialization import SerializationSchema
from yarrow.container.protocol.failure import failure_cause
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.datastream.connectors.kafka import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaTopicSelector,
    ProducerRecord,
)
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaDeliveryError,
    KafkaRecordError,
)

pytestmark = pytest.mark.kafka

NewTopic = Callable[..., str]
AT_LEAST_ONCE = DeliveryGuarantee.AT_LEAST_ONCE


class Part(SerializationSchema[Any]):
    """One element of a tuple."""

    def __init__(self, index: int) -> None:
        self._index = index

    def serialize(self, element: Any) -> Any:
        return element[self._index]


class First(KafkaTopicSelector[Any]):
    def apply(self, data: Any) -> str:
        return str(data[0])


class Itself(KafkaTopicSelector[Any]):
    def apply(self, data: Any) -> Any:
        return data[0]


class WholeRecords(KafkaRecordSerializationSchema[Any]):
    def serialize(self, element: Any, timestamp: int | None) -> ProducerRecord | None:
        return None if element is None else ProducerRecord(*element)


def sink(
    kafka: KafkaCluster,
    serializer: KafkaRecordSerializationSchema[Any],
    properties: dict[str, Any] | None = None,
    guarantee: DeliveryGuarantee = AT_LEAST_ONCE,
) -> KafkaSink[Any]:
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    builder.set_record_serializer(serializer).set_delivery_guarantee(guarantee)
    return builder.set_properties(properties or {}).build()


@pytest.fixture
def topic_of_misfits(new_topic: NewTopic) -> str:
    return new_topic()


def test_records_have_topic_key_value_partition_headers_and_timestamp(
    kafka: KafkaCluster, new_topic: NewTopic
) -> None:
    # The broker removes records that are older than the topic's retention, and the record here is from 1970.
    first, second = (TopicUnderTest(kafka, new_topic(3, {"retention.ms": "-1"})) for _ in range(2))
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(First())
        .set_key_serialization_schema(Part(1))
        .set_value_serialization_schema(Part(2))
        .set_partitioner(lambda row, key, value, topic: 2)
        .set_header_provider(lambda row: [("a", b"1"), ("a", b"2")])
        .build()
    )
    job = first.job(sink=sink(kafka, serializer))
    job.subtasks[0].take_rows([(first.topic, b"k", b"v"), (second.topic, b"dead", None)], [1_700, None])
    job.checkpoint()
    (message,) = first.messages()
    assert (message.key(), message.value(), message.partition()) == (b"k", b"v", 2)
    assert message.headers() == [("a", b"1"), ("a", b"2")]
    assert message.timestamp()[1] == 1_700
    (tombstone,) = second.messages()
    assert (tombstone.key(), tombstone.value()) == (b"dead", None)
    job.cancel()


def test_a_serializer_of_ones_own_may_leave_rows_out(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    target = TopicUnderTest(kafka, new_topic())
    job = target.job(sink=sink(kafka, WholeRecords()))
    job.write([None, (target.topic, b"a"), None])
    job.end()
    assert target.rows() == ["a"]


def test_at_least_once_waits_for_the_brokers(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    target = TopicUnderTest(kafka, new_topic())
    # Without a flush nothing would be sent for a minute.
    job = target.job(sink=target.sink(AT_LEAST_ONCE, {"linger.ms": 60_000}))
    job.write(["a", "b"])
    assert target.rows() == []
    job.checkpoint()
    assert target.rows() == ["a", "b"]
    job.cancel()


def test_without_a_guarantee_nobody_waits(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    target = TopicUnderTest(kafka, new_topic())
    job = target.job(sink=target.sink(DeliveryGuarantee.NONE, {"linger.ms": 60_000}))
    job.write(["a", "b"])
    job.checkpoint()
    assert target.rows() == []
    job.kill()


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE])
def test_a_topic_that_does_not_exist_is_named(
    kafka: KafkaCluster, new_topic: NewTopic, guarantee: DeliveryGuarantee
) -> None:
    target = TopicUnderTest(kafka, new_topic())
    # Each row names its topic, so that nothing is known when the sink starts.
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    builder.set_record_serializer(WholeRecords()).set_delivery_guarantee(guarantee)
    job = target.job(sink=builder.set_transactional_id_prefix(target.prefix).build())
    with pytest.raises(KafkaDeliveryError, match=r"value of 1 bytes b'a' to topic nobody-made-it.*Make the"):
        job.write([("nobody-made-it", b"a")])
        job.checkpoint()
    job.kill()
    assert target.leftovers() == []


def test_a_record_above_the_sinks_limit_is_named(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    target = TopicUnderTest(kafka, new_topic())
    job = target.job(sink=target.sink(AT_LEAST_ONCE, {"max.request.size": 2000}))
    with pytest.raises(KafkaDeliveryError, match=r"value of 3000 bytes.*max.request.size is 2000"):
        job.write(["x" * 3000])
    job.kill()


def test_a_record_above_the_topics_limit_is_named(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    target = TopicUnderTest(kafka, new_topic(settings={"max.message.bytes": "2000"}))
    job = target.job()
    job.write(["small", "x" * 3000])
    with pytest.raises(KafkaDeliveryError, match=rf"topic {target.topic}.*max.message.bytes above 3000"):
        job.checkpoint()
    job.cancel()
    assert target.rows() == []
    assert target.leftovers() == []


def test_a_partition_that_does_not_exist_is_named(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    target = TopicUnderTest(kafka, new_topic())
    job = target.job(sink=sink(kafka, WholeRecords()))
    with pytest.raises(KafkaDeliveryError, match=r"partition 7.*let the partitioner choose"):
        job.write([(target.topic, b"a", None, 7)])
        job.checkpoint()
    job.kill()


MISFITS: list[tuple[Any, str]] = [
    (5, "the value of the record is int instead of bytes"),
    ((b"v", ["key"]), "the key of the record is list instead of bytes"),
    ((b"v", None, "0"), "its partition is '0' instead of a number"),
    ((b"v", None, -7), "its partition is -7 instead of a number"),
    ((b"v", None, None, "soon"), "its timestamp is 'soon' instead of milliseconds"),
    ((b"v", None, None, None, {"a": b"b"}), "its headers are {'a': b'b'} instead of pairs"),
    ((b"v", None, None, None, 5), "its headers are 5 instead of pairs"),
    ((5, None, None, None, None), "the value of the record is int instead of bytes"),
    ((b"v", None, None, None, [("a", 5)]), "its headers are [('a', 5)] instead of pairs"),
]


@pytest.mark.parametrize(("parts", "expected"), MISFITS, ids=str)
def test_a_row_that_is_no_record_is_named_with_the_part(
    kafka: KafkaCluster, topic_of_misfits: str, parts: Any, expected: str
) -> None:
    job = TopicUnderTest(kafka, topic_of_misfits).job(sink=sink(kafka, WholeRecords()))
    row = (topic_of_misfits, *(parts if isinstance(parts, tuple) else (parts,)))
    with pytest.raises(KafkaRecordError) as refused:
        job.write([(topic_of_misfits, b"fits"), row])
    assert expected in str(refused.value) and repr(row)[:100] in str(refused.value)
    job.kill()


@pytest.mark.parametrize("topic", [None, 5], ids=str)
def test_what_a_selector_returns_must_be_a_name(kafka: KafkaCluster, topic: Any) -> None:
    schema = KafkaRecordSerializationSchema.builder().set_topic_selector(Itself())
    serializer = schema.set_value_serialization_schema(Part(1)).build()
    job = TopicUnderTest(kafka, "none").job(sink=sink(kafka, serializer))
    with pytest.raises(
        KafkaRecordError, match=r"cannot write .*the name of its topic is .* instead of a text"
    ):
        job.write([(topic, b"value")])
    job.kill()


def test_a_serializer_that_fails_names_the_row(kafka: KafkaCluster, topic_of_misfits: str) -> None:
    job = TopicUnderTest(kafka, topic_of_misfits).job(sink=sink(kafka, WholeRecords()))
    with pytest.raises(TypeError) as failed:
        job.write([(1, 2, 3, 4, 5, 6, 7)])
    assert "making the record of (1, 2, 3, 4, 5, 6, 7)" in failed.value.__notes__[0]
    job.kill()


@pytest.mark.parametrize("time", [0, -5])
def test_a_time_that_the_client_cannot_send_is_refused(
    kafka: KafkaCluster, new_topic: NewTopic, time: int
) -> None:
    target = TopicUnderTest(kafka, new_topic())
    job = target.job()
    with pytest.raises(
        KafkaDeliveryError, match=rf"b'a' to topic {target.topic}: its timestamp is {time} ms"
    ):
        job.subtasks[0].take_rows(["a"], [time])
        job.checkpoint()
    job.kill()
    assert target.leftovers() == []


def test_a_compacted_topic_wants_keys(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    target = TopicUnderTest(kafka, new_topic(settings={"cleanup.policy": "compact"}))
    job = target.job(sink=target.sink(AT_LEAST_ONCE))
    with pytest.raises(KafkaDeliveryError, match="set_key_serialization_schema"):
        job.write(["a"])
        job.checkpoint()
    job.kill()


def test_time_outs_are_compared_with_the_brokers_limit(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    target = TopicUnderTest(kafka, new_topic())
    with pytest.raises(KafkaConnectorError, match=r"transaction.max.timeout.ms=900000"):
        target.job(sink=target.sink(properties={"transaction.timeout.ms": 900_001}))
    short = target.sink(properties={"transaction.timeout.ms": 60_000})
    with pytest.raises(KafkaConnectorError, match=r"execution.checkpointing.timeout") as refused:
        target.job(sink=short)
    # The restart strategy of jobs with checkpoints would try it again without an end.
    assert failure_cause(refused.value).is_final
    job = target.job()
    job.write(["a"])
    job.checkpoint()
    job.kill()
    # A job that goes on keeps its checkpoints.
    with pytest.raises(KafkaConnectorError, match=r"execution.checkpointing.timeout") as refused:
        SinkJob(short, release=release, start_from=job.completed)
    assert failure_cause(refused.value).is_final
    batch = {"execution.runtime-mode": "BATCH", "execution.batch.longest-stage": "20 min"}
    with pytest.raises(KafkaConnectorError, match=r"up to 1200000 ms \(execution.batch.longest-stage\)"):
        target.job(configuration=batch)
