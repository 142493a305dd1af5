"""A sink writes JSON with ids of a schema registry: valid by its schema, subjects, versions, and what is refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaReference as ClientReference
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.kafka.test_kafka_documents import example_of_page
from tests.kafka.test_message_formats import read
from tests.kafka.test_registry_json import FIRST, OTHER, SECOND, Writer, message, order
from tests.kafka.test_registry_writing import sink, values_to
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from tests.support.registry.server import RegistryServer
from yarrow.common.typeinfo import Types
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
from yarrow.datastream.formats.registry.json_schema import (
    ConfluentRegistryJsonDeserializationSchema,
    ConfluentRegistryJsonSerializationSchema,
)
from yarrow.runtime.common.errors import InvalidProgramError

pytestmark = pytest.mark.kafka

by_generic = ConfluentRegistryJsonSerializationSchema.for_generic
ORDER = Types.ROW_NAMED(["id", "user"], [Types.LONG(), Types.STRING()])


@pytest.fixture
def writer(client: SchemaRegistryClient) -> Writer:
    return Writer(client)


def test_keys_and_values_of_json_have_ids_of_their_subjects(
    kafka: KafkaCluster, registry: RegistryServer, client: SchemaRegistryClient, new_topic: Callable[..., str]
) -> None:
    target = TopicUnderTest(kafka, new_topic())
    by_topic = SubjectNameStrategy.TOPIC_NAME
    values = ConfluentRegistryJsonSerializationSchema.for_row_type_info(by_topic, ORDER, registry.url)
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(target.topic)
        .set_key_serialization_schema(by_generic(by_topic, json.dumps(FIRST), registry.url))
        .set_value_serialization_schema(pickle.loads(pickle.dumps(values)))
        .build()
    )
    job = target.job(sink=sink(kafka, serializer))
    key, value = (client.get_latest_version(f"{target.topic}-{part}").schema_id for part in ("key", "value"))
    assert key is not None and value is not None
    job.write([{"id": 1, "user": "ann"}, Row(id=2, user=None), None])
    job.end()
    *messages, tombstone = target.messages()
    assert (tombstone.key(), tombstone.value()) == (None, None)
    assert [(found.key() or b"")[:5] for found in messages] == [message(key, 0)[:5]] * 2
    assert [(found.value() or b"")[:5] for found in messages] == [message(value, 0)[:5]] * 2
    assert [json.loads((found.key() or b"")[5:]) for found in messages] == [{"id": 1}, {"id": 2}]
    schema = ConfluentRegistryJsonDeserializationSchema.for_row_type_info(
        RegistrySubject(f"{target.topic}-value"), registry.url, validate=True
    )
    harness = read(kafka, target.topic, schema, "fail")
    assert [(row.id, row.user) for row in harness.run()] == [(1, "ann"), (2, None)]
    harness.close()


def test_a_row_that_its_schema_does_not_allow_names_its_field_and_fails_the_job(
    kafka: KafkaCluster, registry: RegistryServer, new_topic: Callable[..., str]
) -> None:
    target = TopicUnderTest(kafka, new_topic())
    made = by_generic(f"{target.topic}-value", json.dumps(FIRST), registry.url)
    job = target.job(sink=sink(kafka, values_to(target.topic, made)))
    with pytest.raises(
        RegistryMessageError,
        match=rf"-1.* is no JSON of schema \d+ \(subject {target.topic}-value.*field 'id': -1 is less than",
    ):
        job.write([{"id": 1}, {"id": -1}])
        job.checkpoint()
    job.kill()


def test_rows_may_be_written_without_validation(registry: RegistryServer, writer: Writer) -> None:
    schema_id = writer.register("json-unchecked", FIRST)
    made = by_generic("json-unchecked", json.dumps(FIRST), registry.url, validate=False)
    assert made.serialize({"id": -1}) == message(schema_id, {"id": -1}).replace(b" ", b"")


def test_a_title_is_a_subject(registry: RegistryServer, client: SchemaRegistryClient) -> None:
    by_record = SubjectNameStrategy.RECORD_NAME
    made = by_generic(by_record, json.dumps({**FIRST, "title": "shop.JsonOrder"}), registry.url)
    assert "shop.JsonOrder" not in client.get_subjects()
    made.serialize({"id": 1})
    assert client.get_latest_version("shop.JsonOrder").version == 1
    with pytest.raises(InvalidProgramError, match="give the schema a title"):
        by_generic(by_record, json.dumps(FIRST), registry.url)


def test_a_schema_that_is_only_looked_up_must_be_there(registry: RegistryServer, writer: Writer) -> None:
    writer.register("json-lookup", FIRST)
    made = by_generic("json-lookup", json.dumps(SECOND), registry.url, registration="lookup")
    with pytest.raises(SchemaNotFoundError, match=r"'json-lookup'.*registration=\"register\""):
        made.serialize({"id": 1})
    found = by_generic("json-lookup", json.dumps(FIRST), registry.url, registration="lookup")
    assert found.serialize({"id": 1})[5:] == b'{"id":1}'


def test_the_latest_version_takes_rows_of_an_older_schema(registry: RegistryServer, writer: Writer) -> None:
    for schema in (FIRST, SECOND):
        schema_id = writer.register("json-latest", schema)
    made = by_generic("json-latest", json.dumps(FIRST), registry.url, registration="latest")
    assert made.serialize({"id": 1})[:5] == message(schema_id, 0)[:5]
    more = by_generic(
        "json-latest", json.dumps(order(city={"type": "string"})), registry.url, registration="latest"
    )
    with pytest.raises(
        SchemaRegistryError, match=r"version 2 of the subject 'json-latest'.* field 'city': that version"
    ):
        more.serialize({"id": 1, "city": "bern"})


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("BACKWARD", "it cannot read messages of version 1: field 'id': .*integer.*string"),
        ("FORWARD", "version 1 cannot read its messages: field 'id': .*string.*integer"),
    ],
)
def test_an_incompatible_schema_names_subject_version_and_field(
    registry: RegistryServer, writer: Writer, client: SchemaRegistryClient, rule: str, problem: str
) -> None:
    subject = f"json-incompatible-{rule}"
    writer.register(subject, FIRST)
    client.set_compatibility(subject, rule)
    made = by_generic(subject, json.dumps(OTHER), registry.url)
    with pytest.raises(IncompatibleSchemaError, match=rf"'{subject}', whose rule is {rule}: .*{problem}"):
        made.serialize({"id": "x"})


def test_a_schema_refers_to_others(
    registry: RegistryServer, writer: Writer, client: SchemaRegistryClient
) -> None:
    user = {"$schema": FIRST["$schema"], "type": "object", "properties": {"name": {"type": "string"}}}
    writer.register("json-written-user", user)
    sale = {**FIRST, "properties": {"by": {"$ref": "user.json"}}}
    reference = SchemaReference("user.json", "json-written-user", 1)
    made = by_generic("json-written-sale", json.dumps(sale), registry.url, references=[reference])
    content = made.serialize({"by": Row(name="ann")})
    found = client.get_latest_version("json-written-sale").schema.references
    assert found == [ClientReference(*reference)]
    subject = RegistrySubject("json-written-sale")
    reader = ConfluentRegistryJsonDeserializationSchema.for_generic(subject, registry.url)
    assert reader.deserialize(content) == {"by": {"name": "ann"}}
    with pytest.raises(RegistryMessageError, match=r"field 'by.name': 1 is not of type"):
        by_generic("json-written-sale", subject, registry.url).serialize({"by": {"name": 1}})


def test_the_example_of_the_page(registry: RegistryServer) -> None:
    found: dict[str, Any] = {}
    example = example_of_page("ConfluentRegistryJsonSerializationSchema")
    exec(example.replace("http://localhost:8081", registry.url), found)
    content = found["values"].writer_for("written-orders", False)(Row(id=1, user="ann"))
    assert content[5:] == b'{"id":1,"user":"ann"}'
