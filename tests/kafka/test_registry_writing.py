"""A sink writes Avro messages with ids of a schema registry: subjects, versions, and what the registry refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer

from tests.kafka.test_message_formats import read
from tests.kafka.test_registry_avro import FIRST, OTHER, SECOND, Writer, order
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from tests.support.registry.server import RegistryServer
from yarrow.common.serialization import SerializationSchema
from yarrow.common.types import Row
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink, KafkaTopicSelector
from yarrow.datastream.formats.registry import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    IncompatibleSchemaError,
    RegistryMessageError,
    RegistrySubject,
    SchemaNotFoundError,
    SchemaReference,
    SchemaRegistryError,
    SubjectNameStrategy,
)
from yarrow.runtime.common.errors import InvalidProgramError

pytestmark = pytest.mark.kafka

by_generic = ConfluentRegistryAvroSerializationSchema.for_generic
KEY = {"type": "record", "name": "shop.OrderKey", "fields": [{"name": "id", "type": "long"}]}
USER = {"type": "record", "name": "shop.User", "fields": [{"name": "name", "type": "string"}]}


@pytest.fixture
def writer(client: SchemaRegistryClient) -> Writer:
    return Writer(client)


def latest(client: SchemaRegistryClient, subject: str) -> tuple[bytes, int | None, Any]:
    """The id of a subject's latest version as messages have it, the version, and the schema."""
    found = client.get_latest_version(subject)
    assert found.schema_id is not None and found.schema.schema_str is not None
    return found.schema_id.to_bytes(4, "big"), found.version, json.loads(found.schema.schema_str)


class IdOf(SerializationSchema[Any]):
    """The id of a row as text."""

    def serialize(self, element: Any) -> bytes:
        return str(element["id"]).encode()


class ByCountry(KafkaTopicSelector[Any]):
    def __init__(self, topics: dict[str, str]) -> None:
        self._topics = topics

    def apply(self, data: Any) -> str:
        return self._topics[data["country"]]


def sink(kafka: KafkaCluster, serializer: KafkaRecordSerializationSchema[Any]) -> KafkaSink[Any]:
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    builder.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
    return builder.set_record_serializer(serializer).build()


def values_to(topic: str, schema: SerializationSchema[Any]) -> KafkaRecordSerializationSchema[Any]:
    builder = KafkaRecordSerializationSchema.builder().set_topic(topic)
    return builder.set_value_serialization_schema(schema).build()


def test_keys_and_values_have_ids_of_their_subjects(
    kafka: KafkaCluster, registry: RegistryServer, client: SchemaRegistryClient, new_topic: Callable[..., str]
) -> None:
    target = TopicUnderTest(kafka, new_topic())
    by_topic = SubjectNameStrategy.TOPIC_NAME
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(target.topic)
        .set_key_serialization_schema(by_generic(by_topic, json.dumps(KEY), registry.url))
        .set_value_serialization_schema(by_generic(by_topic, json.dumps(SECOND), registry.url))
        .build()
    )
    job = target.job(sink=sink(kafka, serializer))
    # The sink has registered its schemas before it has seen a row.
    key, value = (latest(client, f"{target.topic}-{part}")[0] for part in ("key", "value"))
    job.write([{"id": 1, "user": "ann"}, {"id": 2}, Row(id=3, user="bob"), None])
    job.end()
    *messages, tombstone = target.messages()
    heads = {((message.key() or b"")[1:5], (message.value() or b"")[1:5]) for message in messages}
    assert heads == {(key, value)}
    assert (tombstone.key(), tombstone.value()) == (None, None)
    expected = [(1, "ann"), (2, "nobody"), (3, "bob")]
    read_by_confluent = AvroDeserializer(client)
    assert [read_by_confluent(message.key(), None) for message in messages] == [
        {"id": 1},
        {"id": 2},
        {"id": 3},
    ]
    assert [tuple(read_by_confluent(message.value(), None).values()) for message in messages] == expected
    schema = ConfluentRegistryAvroDeserializationSchema.for_row_type_info(
        RegistrySubject(f"{target.topic}-value"), registry.url
    )
    harness = read(kafka, target.topic, schema, "fail")
    assert [(row.id, row.user) for row in harness.run()] == expected
    harness.close()


def test_a_topic_of_each_row_has_subjects_of_its_own(
    kafka: KafkaCluster, registry: RegistryServer, client: SchemaRegistryClient, new_topic: Callable[..., str]
) -> None:
    topics = {"ch": new_topic(), "it": new_topic()}
    schema = order({"name": "country", "type": "string"})
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(ByCountry(topics))
        .set_key_serialization_schema(IdOf())
        .set_value_serialization_schema(
            by_generic(SubjectNameStrategy.TOPIC_RECORD_NAME, json.dumps(schema), registry.url)
        )
        .build()
    )
    target = TopicUnderTest(kafka, topics["it"])
    job = target.job(sink=sink(kafka, serializer))
    job.write([{"id": 1, "country": "it"}, {"id": 2, "country": "ch"}, {"id": 3, "country": "it"}])
    job.end()
    found = [latest(client, f"{topic}-shop.Order")[1:] for topic in topics.values()]
    assert found == [(1, schema)] * 2
    assert [message.key() for message in target.messages()] == [b"1", b"3"]


def test_a_record_name_is_a_subject_without_a_topic(
    registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    schema = {**FIRST, "name": "records.Plain"}
    made = by_generic(SubjectNameStrategy.RECORD_NAME, json.dumps(schema), registry.url)
    # Building a schema registers nothing.
    assert "records.Plain" not in client.get_subjects()
    assert made.serialize({"id": 1}) == made.writer_for("any", False)(Row(1))
    assert client.get_latest_version("records.Plain").version == 1
    with pytest.raises(InvalidProgramError, match="TopicNameStrategy; give the name of the subject"):
        by_generic(SubjectNameStrategy.TOPIC_NAME, json.dumps(schema), registry.url).serialize({"id": 1})


def test_a_row_that_does_not_fit_names_its_field_and_fails_the_job(
    kafka: KafkaCluster, registry: RegistryServer, new_topic: Callable[..., str]
) -> None:
    target = TopicUnderTest(kafka, new_topic())
    made = by_generic(f"{target.topic}-value", json.dumps(FIRST), registry.url)
    job = target.job(sink=sink(kafka, values_to(target.topic, made)))
    with pytest.raises(
        RegistryMessageError,
        match=rf"'x'.* is no record of shop.Order, schema \d+ \(subject {target.topic}-value.*: id: .*long",
    ):
        job.write([{"id": 1}, {"id": "x"}])
        job.checkpoint()
    job.kill()


def test_a_schema_that_is_only_looked_up_must_be_there(
    kafka: KafkaCluster, registry: RegistryServer, writer: Writer, new_topic: Callable[..., str]
) -> None:
    target = TopicUnderTest(kafka, new_topic())
    subject = f"{target.topic}-value"
    writer.register(subject, FIRST)
    made = by_generic(subject, json.dumps(SECOND), registry.url, registration="lookup")
    with pytest.raises(SchemaNotFoundError, match=rf"'{subject}'.*registration=\"register\""):
        target.job(sink=sink(kafka, values_to(target.topic, made)))
    schema_id = writer.register(subject, SECOND)
    record = {"id": 1, "user": "ann"}
    assert made.serialize(record) == writer.message(schema_id, SECOND, record)


def test_the_latest_version_takes_rows_of_an_older_schema(registry: RegistryServer, writer: Writer) -> None:
    for schema in (FIRST, SECOND):
        schema_id = writer.register("latest", schema)
    made = by_generic("latest", json.dumps(FIRST), registry.url, registration="latest")
    assert made.serialize({"id": 1}) == writer.message(schema_id, SECOND, {"id": 1, "user": "nobody"})
    more = by_generic(
        "latest", json.dumps(order({"name": "city", "type": "string"})), registry.url, registration="latest"
    )
    with pytest.raises(
        SchemaRegistryError, match=r"version 2 of the subject 'latest'.* field 'city': that version"
    ):
        more.serialize({"id": 1, "city": "bern"})


@pytest.mark.parametrize(
    ("rule", "schema", "problem"),
    [
        ("BACKWARD", OTHER, "it cannot read messages of version 1: field 'id': .*long.*string"),
        ("FORWARD", OTHER, "version 1 cannot read its messages: field 'id': .*string.*long"),
        (
            "FULL_TRANSITIVE",
            order({"name": "user", "type": "string"}),
            "version 1: field 'user': .* no default",
        ),
    ],
)
def test_an_incompatible_schema_names_subject_version_and_field(
    registry: RegistryServer,
    writer: Writer,
    client: SchemaRegistryClient,
    rule: str,
    schema: Any,
    problem: str,
) -> None:
    subject = f"incompatible-{rule}"
    writer.register(subject, FIRST)
    client.set_compatibility(subject, rule)
    made = by_generic(subject, json.dumps(schema), registry.url)
    with pytest.raises(IncompatibleSchemaError, match=rf"'{subject}', whose rule is {rule}: .*{problem}"):
        made.serialize({"id": "x"})


def test_a_schema_refers_to_others(
    registry: RegistryServer, writer: Writer, client: SchemaRegistryClient
) -> None:
    writer.register("written-user", USER)
    sale = {"type": "record", "name": "shop.Sale", "fields": [{"name": "by", "type": "shop.User"}]}
    reference = SchemaReference("shop.User", "written-user", 1)
    made = by_generic("written-sale", json.dumps(sale), registry.url, references=[reference])
    record = {"by": {"name": "ann"}}
    message = made.serialize(record)
    found = client.get_latest_version("written-sale")
    assert [(part.name, part.subject, part.version) for part in found.schema.references or []] == [reference]
    assert latest(client, "written-sale")[2] == sale
    reader = ConfluentRegistryAvroDeserializationSchema.for_generic(
        RegistrySubject("written-sale"), registry.url
    )
    assert reader.deserialize(message) == record
    again = by_generic("written-sale", RegistrySubject("written-sale"), registry.url, registration="lookup")
    assert again.serialize(record) == message
    with pytest.raises(SchemaNotFoundError, match="'written-nobody'"):
        by_generic(
            "any",
            json.dumps(sale),
            registry.url,
            references=[SchemaReference("shop.User", "written-nobody", 1)],
        )


#: What Avro for Java has written into avro_of_java.json, in its order.
OF_JAVA: list[dict[str, Any]] = [
    {
        "id": 2**63 - 1,
        "paid": True,
        "pieces": -1,
        "weight": 0.5,
        "volume": -2.25,
        "user": "änn €",
        "seal": b"\x00\x01\xfe\xff",
        "raw": b"\x00\xff",
        "state": "SENT",
        "total": Decimal("2.55"),
        "day": date(2024, 10, 4),
        "clock": time(23, 59, 59, 999_999),
        "at": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
        "seen": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        "local": datetime(2023, 11, 14, 22, 13, 20, 123_000),
        "key": UUID("12345678-1234-5678-1234-567812345678"),
        "lines": [
            {"item": "cup", "price": 3},
            {"item": "lamp", "price": 2.5},
            {"item": "", "price": "free"},
        ],
        "tags": {"red": -64},
    },
    {
        "id": -(2**63),
        "paid": False,
        "pieces": 2**31 - 1,
        "weight": -0.0,
        "volume": 1e300,
        "user": None,
        "seal": b"abcd",
        "raw": b"",
        "state": "OPEN",
        "total": Decimal("-1.29"),
        "day": date(1969, 12, 31),
        "clock": time(0),
        "at": datetime(1, 1, 1, tzinfo=UTC),
        "seen": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        "local": datetime(1970, 1, 1),
        "key": UUID(int=0),
        "lines": [],
        "tags": {},
    },
]


def test_messages_of_java_are_read_and_written_byte_by_byte(registry: RegistryServer, writer: Writer) -> None:
    written = json.loads((Path(__file__).parent / "avro_of_java.json").read_text("utf-8"))
    text = json.dumps(written["schema"])
    head = b"\0" + writer.register("of-java", written["schema"]).to_bytes(4, "big")
    messages = [head + bytes.fromhex(message) for message in written["messages"]]
    reader = ConfluentRegistryAvroDeserializationSchema.for_generic(text, registry.url)
    assert [reader.deserialize(message) for message in messages] == OF_JAVA
    made = by_generic("of-java", text, registry.url, registration="lookup")
    assert [made.serialize(record) for record in OF_JAVA] == messages
