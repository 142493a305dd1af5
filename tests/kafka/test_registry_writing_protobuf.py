"""A sink writes Protobuf with ids of a schema registry: message indexes, subjects, versions, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaReference as ClientReference
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.kafka.test_kafka_documents import example_of_page
from tests.kafka.test_message_formats import read
from tests.kafka.test_registry_protobuf import FIRST, OTHER, READER, SECOND, Writer, compiled, message, order
from tests.kafka.test_registry_writing import sink, values_to
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from tests.support.registry.server import RegistryServer
from tests.unit.datastream.formats.registry.protobuf.test_known_files import PRICED
from yarrow.common.types import Row
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema
from yarrow.datastream.formats.registry import (
    IncompatibleSchemaError,
    RegistryMessageError,
    RegistrySubject,
    SchemaNotFoundError,
    SchemaReference,
    SchemaRegistryError,
    SubjectNameStrategy,
)
from yarrow.datastream.formats.registry.protobuf import (
    ConfluentRegistryProtobufDeserializationSchema,
    ConfluentRegistryProtobufSerializationSchema,
)
from yarrow.datastream.formats.registry.protobuf.compiler import CompiledSchema
from yarrow.runtime.common.errors import InvalidProgramError

pytestmark = pytest.mark.kafka

by_rows = ConfluentRegistryProtobufSerializationSchema.for_row_type_info
KEY = 'syntax = "proto3"; package shop; message OrderKey { int64 id = 1; }'
USER = 'syntax = "proto3"; package shop; message User { string name = 1; }'
SALE = 'syntax = "proto3"; package shop; import "user.proto"; message Sale { User by = 1; }'


@pytest.fixture
def writer(client: SchemaRegistryClient) -> Writer:
    return Writer(client)


def test_keys_and_values_of_protobuf_have_ids_of_their_subjects(
    kafka: KafkaCluster, registry: RegistryServer, client: SchemaRegistryClient, new_topic: Callable[..., str]
) -> None:
    target = TopicUnderTest(kafka, new_topic())
    by_topic = SubjectNameStrategy.TOPIC_NAME
    values = by_rows(by_topic, SECOND, registry.url, message="shop.Order")
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(target.topic)
        .set_key_serialization_schema(by_rows(by_topic, KEY, registry.url))
        .set_value_serialization_schema(pickle.loads(pickle.dumps(values)))
        .build()
    )
    job = target.job(sink=sink(kafka, serializer))
    key, value = (client.get_latest_version(f"{target.topic}-{part}").schema_id for part in ("key", "value"))
    assert key is not None and value is not None
    job.write([{"id": 1, "user": "ann"}, Row(id=2, user=None, note="x"), None])
    job.end()
    *messages, tombstone = target.messages()
    assert (tombstone.key(), tombstone.value()) == (None, None)
    key_type, value_type = compiled(KEY), compiled(SECOND, (1,))
    assert [found.key() for found in messages] == [message(key, key_type, id=number) for number in (1, 2)]
    assert [found.value() for found in messages] == [
        message(value, value_type, b"\x02\x02", id=1, user="ann"),
        message(value, value_type, b"\x02\x02", id=2, note="x"),
    ]
    # Confluent's client reads them, too.
    by_confluent = ProtobufDeserializer(value_type.message_class, {"use.deprecated.format": False})
    context = SerializationContext(target.topic, MessageField.VALUE)
    assert [by_confluent(found.value(), context).id for found in messages] == [1, 2]
    schema = ConfluentRegistryProtobufDeserializationSchema.for_row_type_info(compiled(READER), registry.url)
    harness = read(kafka, target.topic, schema, "fail")
    assert [(row.id, row.user) for row in harness.run()] == [(1, "ann"), (2, "")]
    harness.close()


def test_messages_of_confluents_client_are_read_and_its_schema_is_found(
    registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    """That client registers a descriptor in base64."""
    made = compiled(SECOND, (1,))
    by_confluent = ProtobufSerializer(made.message_class, client, {"use.deprecated.format": False})
    context = SerializationContext("protobuf-by-confluent", MessageField.VALUE)
    content = by_confluent(made.message_class(id=1, user="ann", note="x"), context)
    assert content is not None
    reader = ConfluentRegistryProtobufDeserializationSchema.for_generic(compiled(READER), registry.url)
    assert reader.deserialize(content) == {"id": 1, "user": "ann"}
    ours = by_rows("protobuf-by-confluent-value", made, registry.url, registration="lookup")
    assert ours.serialize(Row(id=1, user="ann", note="x")) == content


def test_a_row_that_does_not_fit_its_message_names_the_field_and_fails_the_job(
    kafka: KafkaCluster, registry: RegistryServer, new_topic: Callable[..., str]
) -> None:
    target = TopicUnderTest(kafka, new_topic())
    made = by_rows(f"{target.topic}-value", FIRST, registry.url)
    job = target.job(sink=sink(kafka, values_to(target.topic, made)))
    with pytest.raises(
        RegistryMessageError,
        match=rf"'x'.* is no shop.Order: field 'id'.* \(schema \d+ \(subject {target.topic}-value",
    ):
        job.write([{"id": 1}, {"id": "x"}])
        job.checkpoint()
    job.kill()


def test_a_message_name_is_a_subject(registry: RegistryServer, client: SchemaRegistryClient) -> None:
    text = READER.replace("package shop", "package records")
    made = by_rows(SubjectNameStrategy.RECORD_NAME, text, registry.url)
    assert "records.Order" not in client.get_subjects()
    made.serialize({"id": 1})
    assert client.get_latest_version("records.Order").version == 1


def test_a_schema_that_is_only_looked_up_must_be_there(registry: RegistryServer, writer: Writer) -> None:
    schema_id = writer.register("protobuf-lookup", FIRST)
    made = by_rows("protobuf-lookup", SECOND, registry.url, registration="lookup")
    with pytest.raises(SchemaNotFoundError, match=r"'protobuf-lookup'.*registration=\"register\""):
        made.serialize({"id": 1})
    found = by_rows("protobuf-lookup", FIRST, registry.url, registration="lookup")
    assert found.serialize({"id": 1}) == message(schema_id, compiled(FIRST), id=1)


def test_the_latest_version_takes_rows_of_an_older_schema(registry: RegistryServer, writer: Writer) -> None:
    for text in (FIRST, SECOND):
        schema_id = writer.register("protobuf-latest", text)
    made = by_rows("protobuf-latest", FIRST, registry.url, registration="latest")
    # The message is the second one of the latest version's file.
    assert made.serialize({"id": 1}) == message(schema_id, compiled(FIRST), b"\x02\x02", id=1)
    more = by_rows(
        "protobuf-latest", order("int64 id = 1; string city = 9;"), registry.url, registration="latest"
    )
    with pytest.raises(
        SchemaRegistryError, match=r"version 2 of the subject 'protobuf-latest'.* field 'city': that version"
    ):
        more.serialize({"id": 1})
    other = by_rows("protobuf-latest", KEY, registry.url, registration="latest")
    with pytest.raises(SchemaRegistryError, match=r"version 2 .* no message 'shop.OrderKey'"):
        other.serialize({"id": 1})


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("BACKWARD", r"it cannot read messages of version 1: field 'id' \(number 1\): .*int64.*string"),
        ("FORWARD", r"version 1 cannot read its messages: field 'id' \(number 1\): .*string.*int64"),
    ],
)
def test_an_incompatible_schema_names_subject_version_and_field(
    registry: RegistryServer, writer: Writer, client: SchemaRegistryClient, rule: str, problem: str
) -> None:
    subject = f"protobuf-incompatible-{rule}"
    writer.register(subject, FIRST)
    client.set_compatibility(subject, rule)
    made = by_rows(subject, OTHER, registry.url)
    with pytest.raises(IncompatibleSchemaError, match=rf"'{subject}', whose rule is {rule}: .*{problem}"):
        made.serialize({"id": "x"})


def test_a_schema_refers_to_others(
    registry: RegistryServer, writer: Writer, client: SchemaRegistryClient
) -> None:
    writer.register("protobuf-written-user", USER)
    reference = SchemaReference("user.proto", "protobuf-written-user", 1)
    made = by_rows("protobuf-written-sale", SALE, registry.url, references=[reference])
    content = made.serialize(Row(by=Row(name="ann")))
    found = client.get_latest_version("protobuf-written-sale").schema.references
    assert found == [ClientReference(*reference)]
    subject = RegistrySubject("protobuf-written-sale")
    reader = ConfluentRegistryProtobufDeserializationSchema.for_generic(subject, registry.url)
    assert reader.deserialize(content) == {"by": {"name": "ann"}}
    again = by_rows("protobuf-written-sale", subject, registry.url, registration="lookup")
    assert again.serialize({"by": {"name": "ann"}}) == content


def test_files_that_confluent_knows_need_no_reference(
    registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    """Both clients read what the other one wrote, and neither registers a reference."""
    made = CompiledSchema.of(PRICED).message((0,))
    price = {"value": b"\x04\xd2", "precision": 4, "scale": 2}
    ours = by_rows("protobuf-priced", PRICED, registry.url).serialize({"id": 1, "price": price})
    found = ProtobufDeserializer(made.message_class, {"use.deprecated.format": False})(
        ours, SerializationContext("protobuf-priced", MessageField.VALUE)
    )
    assert found == made.message_class(id=1, price=price)
    theirs = ProtobufSerializer(made.message_class, client, {"use.deprecated.format": False})(
        found, SerializationContext("protobuf-priced-too", MessageField.VALUE)
    )
    assert theirs is not None
    for subject, content in (("protobuf-priced", ours), ("protobuf-priced-too-value", theirs)):
        assert not client.get_latest_version(subject).schema.references
        reader = ConfluentRegistryProtobufDeserializationSchema.for_generic(
            RegistrySubject(subject), registry.url
        )
        assert reader.deserialize(content) == {"id": 1, "price": price}


def test_what_cannot_be_written_is_refused_where_the_program_is_built(registry: RegistryServer) -> None:
    with pytest.raises(InvalidProgramError, match=r"no message 'shop.Nothing'; it has shop.Note, shop.Order"):
        by_rows("any", SECOND, registry.url, message="shop.Nothing")
    with pytest.raises(InvalidProgramError, match="protoc does not compile"):
        by_rows("any", "no schema;", registry.url)


def test_the_example_of_the_page(registry: RegistryServer, tmp_path: Any) -> None:
    found: dict[str, Any] = {}
    example = example_of_page("ConfluentRegistryProtobufSerializationSchema")
    exec(example.replace("http://localhost:8081", registry.url), found)
    content = found["values"].writer_for("written-protobuf", False)(Row(id=1, user="ann"))
    assert content[5:] == b"\0\x08\x01\x12\x03ann"
