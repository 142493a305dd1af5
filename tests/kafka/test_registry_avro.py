"""Topics whose records carry ids of a schema registry: Avro messages of several writers as records of one schema."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from tests.kafka.test_message_formats import read, written
from tests.support.free_ports import free_port
from tests.support.kafka.cluster import KafkaCluster
from tests.support.registry.server import RegistryServer
from yarrow.datastream.connectors import DEAD_LETTERS
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaRecordError
from yarrow.datastream.formats.registry import (
    ConfluentRegistryAvroDeserializationSchema,
    RegistryMessageError,
    RegistrySubject,
    SchemaNotFoundError,
    SchemaRegistryError,
)

pytestmark = pytest.mark.kafka


def order(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}, *fields]}


FIRST = order()
SECOND = order({"name": "user", "type": "string", "default": "nobody"})
OTHER = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "string"}]}


class Writer:
    """Registers schemas and makes messages as Confluent's serializers do."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self._client = client

    def register(self, subject: str, schema: Any, *references: SchemaReference) -> int:
        return self._client.register_schema(subject, Schema(json.dumps(schema), "AVRO", list(references)))

    def message(self, schema_id: int, schema: Any, record: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
        return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


@pytest.fixture
def writer(client: SchemaRegistryClient) -> Writer:
    return Writer(client)


def test_messages_of_several_writers_are_rows_of_one_schema(
    kafka: KafkaCluster, registry: RegistryServer, writer: Writer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    subject = f"{topic}-value"
    first, second = writer.register(subject, FIRST), writer.register(subject, SECOND)
    other = writer.register(f"{topic}-other", OTHER)
    values = [
        writer.message(first, FIRST, {"id": 1}),
        writer.message(second, SECOND, {"id": 2, "user": "ann"}),
        writer.message(other, OTHER, {"id": "x"}),
        b"\0\x7f\xff\xff\xffno such schema",
        writer.message(first, FIRST, {"id": 3}) + b"more",
        b"no head",
        writer.message(first, FIRST, {"id": 4}),
    ]
    written(kafka, topic, values)
    schema = ConfluentRegistryAvroDeserializationSchema.for_row_type_info(
        RegistrySubject(subject), registry.url
    )
    harness = read(kafka, topic, schema, "dead_letter")
    assert [(row.id, row.user) for row in harness.run()] == [(1, "nobody"), (2, "ann"), (4, "nobody")]
    harness.close()
    letters = [letter for tag, letter in harness.side if tag == DEAD_LETTERS]
    assert [letter.raw for letter in letters] == values[2:6]
    assert [letter.schema_id for letter in letters] == [other, 0x7FFFFFFF, first, None]
    assert f"subject '{topic}-other' version 1" in letters[0].error and "field 'id'" in letters[0].error


def test_an_incompatible_writer_fails_the_job_by_subject_version_and_field(
    kafka: KafkaCluster, registry: RegistryServer, writer: Writer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    other = writer.register(f"{topic}-value", OTHER)
    written(kafka, topic, [writer.message(other, OTHER, {"id": "x"})])
    schema = ConfluentRegistryAvroDeserializationSchema.for_generic(json.dumps(FIRST), registry.url)
    harness = read(kafka, topic, schema, "fail")
    with pytest.raises(
        KafkaRecordError,
        match=rf"offset 0 of {topic}-0 .* \(subject '{topic}-value' version 1.* field 'id': .*string.*long",
    ):
        harness.run()
    harness.close()


def test_references_are_part_of_a_schema(registry: RegistryServer, writer: Writer) -> None:
    user = {"type": "record", "name": "shop.User", "fields": [{"name": "name", "type": "string"}]}
    sale = {
        "type": "record",
        "name": "shop.Sale",
        "fields": [{"name": "by", "type": "User"}, {"name": "to", "type": ["null", "shop.User"]}],
    }
    writer.register("references-user", user)
    schema_id = writer.register("references-sale", sale, SchemaReference("shop.User", "references-user", 1))
    schema = ConfluentRegistryAvroDeserializationSchema.for_generic(
        RegistrySubject("references-sale"), registry.url
    )
    whole = {**sale, "fields": [{"name": "by", "type": user}, {"name": "to", "type": ["null", "shop.User"]}]}
    record = {"by": {"name": "ann"}, "to": {"name": "bob"}}
    assert schema.deserialize(writer.message(schema_id, whole, record)) == record


def test_a_subject_that_is_not_there_is_named(registry: RegistryServer) -> None:
    with pytest.raises(SchemaNotFoundError, match=r"http://127.0.0.1:\d+/apis/ccompat/v7 .*'not-there'"):
        ConfluentRegistryAvroDeserializationSchema.for_generic(RegistrySubject("not-there"), registry.url)


def test_a_path_without_the_api_is_named(registry: RegistryServer) -> None:
    url = registry.url.replace("v7", "v0")
    with pytest.raises(SchemaRegistryError, match="Correct the path of the URL"):
        ConfluentRegistryAvroDeserializationSchema.for_generic(RegistrySubject("any"), url)


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_a_registry_that_is_absent_fails_the_job_whatever_becomes_of_bad_records(
    kafka: KafkaCluster, new_topic: Callable[..., str], policy: str
) -> None:
    topic = new_topic()
    written(kafka, topic, [b"\0\0\0\0\x01\x02"])
    url = f"http://user:hidden@127.0.0.1:{free_port()}"
    schema = ConfluentRegistryAvroDeserializationSchema.for_generic(
        json.dumps(FIRST), url, {"retry.timeout.ms": 300}
    )
    assert "hidden" not in repr(schema)
    harness = read(kafka, topic, schema, policy)
    with pytest.raises(
        SchemaRegistryError, match=r"cannot be asked for schema 1: .*tried for 0.3 s"
    ) as caught:
        harness.run()
    harness.close()
    assert "hidden" not in str(caught.value)


def test_fields_that_only_the_writer_has(registry: RegistryServer, writer: Writer) -> None:
    schema_id = writer.register("more-fields", SECOND)
    message = writer.message(schema_id, SECOND, {"id": 1, "user": "ann"})

    def read_with(evolution: str) -> Any:
        made = ConfluentRegistryAvroDeserializationSchema.for_generic(
            json.dumps(FIRST), registry.url, evolution=evolution
        )
        return made.deserialize(message)

    assert read_with("keep") == {"id": 1}
    assert read_with("add") == {"id": 1, "user": "ann"}
    with pytest.raises(RegistryMessageError, match="field 'user': the reader's schema does not know it"):
        read_with("fail")
