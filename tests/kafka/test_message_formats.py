"""Topics in the forms of other tools: changes of Debezium with tombstones, and Protobuf messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from google.protobuf.source_context_pb2 import SourceContext

from tests.support.kafka.cluster import KafkaCluster
from tests.unit.datastream.connectors.harness import SourceHarness
from yarrow.common import DeserializationSchema, Types
from yarrow.datastream.connectors import DEAD_LETTERS
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from yarrow.datastream.formats.changelog.debezium import DebeziumJsonDeserializationSchema
from yarrow.datastream.formats.protobuf.messages import ProtobufRowDeserializationSchema, ProtobufType

pytestmark = pytest.mark.kafka

ITEM = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
CHANGES = [
    b'{"op": "c", "before": null, "after": {"id": 1, "name": "cup"}}',
    b'{"op": "u", "before": {"id": 1, "name": "cup"}, "after": {"id": 1, "name": "lamp"}}',
    b'{"op": "u", "before": null, "after": {"id": 1, "name": "lamp"}}',
    b'{"op": "d", "before": {"id": 1, "name": "lamp"}, "after": null}',
    None,
]


def written(kafka: KafkaCluster, topic: str, values: Sequence[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, b"1")
    assert producer.flush(60) == 0


def read(kafka: KafkaCluster, topic: str, schema: DeserializationSchema[Any], policy: str) -> SourceHarness:
    """A source that has read the topic to its end."""
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(topic)
    builder.set_value_only_deserializer(schema).set_bounded(KafkaOffsetsInitializer.latest())
    return SourceHarness(builder.on_error(policy).build())


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_changes_of_a_topic_are_rows_with_their_kind(
    kafka: KafkaCluster, new_topic: Callable[..., str], policy: str
) -> None:
    topic = new_topic()
    written(kafka, topic, CHANGES)
    harness = read(kafka, topic, DebeziumJsonDeserializationSchema(ITEM), policy)
    assert [(row.get_row_kind().short_string(), *row) for row in harness.run()] == [
        ("+I", 1, "cup"),
        ("-U", 1, "cup"),
        ("+U", 1, "lamp"),
        ("-D", 1, "lamp"),
    ]
    harness.close()
    assert harness.num_errors == 1
    letters = [letter for tag, letter in harness.side if tag == DEAD_LETTERS]
    assert [letter.raw for letter in letters] == ([CHANGES[2]] if policy == "dead_letter" else [])


def test_protobuf_messages_of_a_topic_are_rows(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    names = [f"file {number}" for number in range(300)]
    good = [SourceContext(file_name=name).SerializeToString() for name in names]
    written(kafka, topic, [*good[:100], b"\x0a\xff", *good[100:]])
    harness = read(
        kafka, topic, ProtobufRowDeserializationSchema(ProtobufType.of_class(SourceContext)), "skip"
    )
    assert [row.file_name for row in harness.run()] == names
    harness.close()
    assert harness.num_errors == 1
