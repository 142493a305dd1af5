"""How rows become records: topic, key, value, partition, timestamp and headers."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pytest

from yarrow.common.serialization import SerializationSchema, SimpleStringSchema
from yarrow.datastream.connectors.kafka import (
    KafkaRecordSerializationSchema,
    KafkaTopicSelector,
    ProducerRecord,
)
from yarrow.runtime.common.errors import InvalidProgramError

ANYTHING: Any = "words"


class Field(SerializationSchema[Any]):
    """One field of a row as text; None stays None."""

    def __init__(self, name: str) -> None:
        self._name = name

    def serialize(self, element: Any) -> Any:
        value = element[self._name]
        return None if value is None else str(value).encode()


class ByCountry(KafkaTopicSelector[Any]):
    def apply(self, data: Any) -> str:
        return f"orders-{data['country']}"


def test_a_row_has_all_parts_of_a_record() -> None:
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(ByCountry())
        .set_key_serialization_schema(Field("id"))
        .set_value_serialization_schema(Field("total"))
        .set_partitioner(lambda row, key, value, topic: len(key or b"") + len(value or b"") + len(topic))
        .set_header_provider(lambda row: [("by", row["country"].encode())])
        .build()
    )
    row = {"country": "ch", "id": 12, "total": 345}
    expected = ProducerRecord("orders-ch", b"345", b"12", 14, 1_700, [("by", b"ch")])
    assert schema.serialize(row, 1_700) == schema.encoder()(row, 1_700) == expected
    sent = cloudpickle.loads(cloudpickle.dumps(schema))
    assert sent.serialize(row, 1_700) == expected


def test_a_value_alone_leaves_the_rest_to_the_client() -> None:
    builder = KafkaRecordSerializationSchema.builder().set_topic("t")
    schema = builder.set_value_serialization_schema(SimpleStringSchema()).build()
    assert schema.serialize("a", None) == schema.encoder()("a", None) == ProducerRecord("t", b"a")
    assert schema.serialize("a", 5) == schema.encoder()("a", 5) == ProducerRecord("t", b"a", timestamp=5)


def test_a_value_of_none_is_a_tombstone() -> None:
    builder = KafkaRecordSerializationSchema.builder().set_topic("t")
    builder.set_value_serialization_schema(Field("v")).set_key_serialization_schema(Field("k"))
    assert builder.build().serialize({"k": 1, "v": None}, None) == ProducerRecord("t", None, b"1")


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda b: b.build(), "set_value_serialization_schema"),
        (
            lambda b: b.set_value_serialization_schema(SimpleStringSchema()).build(),
            "set_topic or set_topic_selector",
        ),
        (lambda b: b.set_topic(""), "name of a topic"),
        (lambda b: b.set_topic("a").set_topic("b"), "once"),
        (lambda b: b.set_topic("a").set_topic_selector(ByCountry()), "once"),
        (lambda b: b.set_topic_selector(ANYTHING), "KafkaTopicSelector"),
        (lambda b: b.set_value_serialization_schema(ANYTHING), "SerializationSchema"),
        (lambda b: b.set_key_serialization_schema(ANYTHING), "SerializationSchema"),
        (lambda b: b.set_partitioner(ANYTHING), "function"),
        (lambda b: b.set_header_provider(ANYTHING), "function"),
    ],
)
def test_what_is_missing_or_wrong_is_refused(build: Any, told: str) -> None:
    with pytest.raises(InvalidProgramError, match=told):
        build(KafkaRecordSerializationSchema.builder())
