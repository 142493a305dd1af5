"""Topics of JSON whose records carry ids of a schema registry: messages of several writers as records of one schema."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from tests.kafka.test_kafka_documents import example_of_page
from tests.kafka.test_message_formats import read, written
from tests.support.kafka.cluster import KafkaCluster
from tests.support.registry.server import RegistryServer
from yarrow.common.typeinfo import Types
from yarrow.datastream.connectors import DEAD_LETTERS
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaRecordError
from yarrow.datastream.formats.registry import RegistryMessageError, RegistrySubject
from yarrow.datastream.formats.registry.json_schema import ConfluentRegistryJsonDeserializationSchema
from yarrow.runtime.common.errors import InvalidProgramError

pytestmark = pytest.mark.kafka

ORDER = Types.ROW_NAMED(["id", "user"], [Types.LONG(), Types.STRING()])


def order(kind: str = "integer", **more: Any) -> dict[str, Any]:
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"id": {"type": kind, "minimum": 0} if kind == "integer" else {"type": kind}, **more},
    }


FIRST = order()
SECOND = order(user={"type": "string"}, note={"type": "string"})
OTHER = order("string")


class Writer:
    """Registers schemas and makes messages as Confluent's serializers do."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self._client = client

    def register(self, subject: str, schema: Any, *references: SchemaReference) -> int:
        return self._client.register_schema(subject, Schema(json.dumps(schema), "JSON", list(references)))


def message(schema_id: int, value: Any) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + json.dumps(value).encode()


@pytest.fixture
def writer(client: SchemaRegistryClient) -> Writer:
    return Writer(client)


@pytest.mark.parametrize("validate", [False, True])
def test_json_of_several_writers_is_rows_of_one_type(
    kafka: KafkaCluster,
    registry: RegistryServer,
    writer: Writer,
    new_topic: Callable[..., str],
    validate: bool,
) -> None:
    topic = new_topic()
    first = writer.register(f"{topic}-value", FIRST)
    second = writer.register(f"{topic}-second", SECOND)
    other = writer.register(f"{topic}-other", OTHER)
    values = [
        message(first, {"id": 1}),
        message(second, {"id": 2, "user": "ann", "note": "x"}),
        message(other, {"id": "x"}),
        b"\0\x7f\xff\xff\xff{}",
        message(first, {"id": "no number"}),
        message(first, {"id": 3})[:-1],
        b"no head",
        message(first, {"id": -4}),
        message(first, {"id": 5}),
    ]
    written(kafka, topic, values)
    schema = ConfluentRegistryJsonDeserializationSchema.for_row_type_info(
        ORDER, registry.url, validate=validate
    )
    harness = read(kafka, topic, pickle.loads(pickle.dumps(schema)), "dead_letter")
    rows = [(row.id, row.user) for row in harness.run()]
    assert rows == [(1, None), (2, "ann"), *([] if validate else [(-4, None)]), (5, None)]
    harness.close()
    letters = [letter for tag, letter in harness.side if tag == DEAD_LETTERS]
    assert [letter.raw for letter in letters] == values[2:8] if validate else values[2:7]
    ids = [other, 0x7FFFFFFF, first, first, None, first]
    assert [letter.schema_id for letter in letters] == ids[: len(letters)]
    assert f"subject '{topic}-other' version 1" in letters[0].error and "field 'id'" in letters[0].error
    if validate:
        assert "field 'id': -4 is less than the minimum of 0" in letters[5].error


def test_an_incompatible_writer_of_json_fails_the_job_by_subject_version_and_field(
    kafka: KafkaCluster, registry: RegistryServer, writer: Writer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    other = writer.register(f"{topic}-value", OTHER)
    written(kafka, topic, [message(other, {"id": "x"})])
    schema = ConfluentRegistryJsonDeserializationSchema.for_generic(json.dumps(FIRST), registry.url)
    harness = read(kafka, topic, schema, "fail")
    with pytest.raises(
        KafkaRecordError,
        match=rf"offset 0 of {topic}-0 .* \(subject '{topic}-value' version 1.* field 'id': .*string.*integer",
    ):
        harness.run()
    harness.close()


def test_references_are_part_of_a_schema(registry: RegistryServer, writer: Writer) -> None:
    user = {"$schema": FIRST["$schema"], "type": "object", "properties": {"name": {"type": "string"}}}
    sale = {**FIRST, "properties": {"by": {"$ref": "user.json"}}}
    writer.register("json-user", user)
    schema_id = writer.register("json-sale", sale, SchemaReference("user.json", "json-user", 1))
    subject = RegistrySubject("json-sale")
    schema = ConfluentRegistryJsonDeserializationSchema.for_row_type_info(
        subject, registry.url, validate=True
    )
    assert schema.get_produced_type() == Types.ROW_NAMED(
        ["by"], [Types.ROW_NAMED(["name"], [Types.STRING()])]
    )
    assert schema.deserialize(message(schema_id, {"by": {"name": "ann"}})).by.name == "ann"
    with pytest.raises(
        RegistryMessageError, match=r"'json-sale' version 1.*field 'by.name': 1 is not of type"
    ):
        schema.deserialize(message(schema_id, {"by": {"name": 1}}))


def test_fields_that_only_the_writer_has(registry: RegistryServer, writer: Writer) -> None:
    schema_id = writer.register("json-more-fields", SECOND)
    whole = {"id": 1, "user": "ann", "note": "x"}

    def read_with(evolution: str) -> Any:
        made = ConfluentRegistryJsonDeserializationSchema.for_generic(
            json.dumps(FIRST), registry.url, evolution=evolution
        )
        return made.deserialize(message(schema_id, whole))

    assert read_with("keep") == {"id": 1}
    assert read_with("add") == whole
    with pytest.raises(RegistryMessageError, match="field 'user': the reader's schema does not know it"):
        read_with("fail")


def test_a_schema_of_another_kind_is_refused(registry: RegistryServer, writer: Writer) -> None:
    writer._client.register_schema("json-or-avro", Schema('{"type": "record", "name": "R", "fields": []}'))
    with pytest.raises(InvalidProgramError, match="of the kind AVRO, and JSON is expected"):
        ConfluentRegistryJsonDeserializationSchema.for_generic(RegistrySubject("json-or-avro"), registry.url)


def test_secrets_are_not_shown(registry: RegistryServer) -> None:
    url = registry.url.replace("http://", "http://user:hidden@")
    assert "hidden" not in repr(ConfluentRegistryJsonDeserializationSchema.for_row_type_info(ORDER, url))


def test_the_example_of_the_page(registry: RegistryServer, writer: Writer) -> None:
    schema_id = writer.register("orders-value", SECOND)
    found: dict[str, Any] = {}
    example = example_of_page("ConfluentRegistryJsonDeserializationSchema")
    exec(example.replace("http://localhost:8081", registry.url), found)
    row = found["orders"].deserialize(message(schema_id, {"id": 1, "user": "ann", "note": "x"}))
    assert row.id == 1 and row.user == "ann"
