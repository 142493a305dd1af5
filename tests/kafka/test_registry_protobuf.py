"""Topics of Protobuf whose records carry ids of a schema registry: messages of several writers as rows of one type."""

from __future__ import annotations

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
from yarrow.datastream.formats.protobuf.messages import ProtobufType
from yarrow.datastream.formats.registry import RegistryMessageError, RegistrySubject
from yarrow.datastream.formats.registry.protobuf import ConfluentRegistryProtobufDeserializationSchema
from yarrow.datastream.formats.registry.protobuf.compiler import CompiledSchema
from yarrow.runtime.common.errors import InvalidProgramError

pytestmark = pytest.mark.kafka


def order(fields: str, before: str = "") -> str:
    return f'syntax = "proto3";\npackage shop;\n{before} message Order {{ {fields} }}\n'


FIRST = order("int64 id = 1;")
#: The second message of its file.
SECOND = order("int64 id = 1; string user = 2; string note = 3;", "message Note {}")
OTHER = order("string id = 1;")
READER = order("int64 id = 1; string user = 2;")


def compiled(text: str, path: tuple[int, ...] = (0,)) -> ProtobufType:
    return CompiledSchema.of(text).message(path)


class Writer:
    """Registers schemas and makes messages as Confluent's serializers do."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self._client = client

    def register(self, subject: str, text: str, *references: SchemaReference) -> int:
        return self._client.register_schema(subject, Schema(text, "PROTOBUF", list(references)))


def message(schema_id: int, made: ProtobufType, path: bytes = b"\0", **values: Any) -> bytes:
    return (
        b"\0" + schema_id.to_bytes(4, "big") + path + bytes(made.message_class(**values).SerializeToString())
    )


@pytest.fixture
def writer(client: SchemaRegistryClient) -> Writer:
    return Writer(client)


def test_protobuf_of_several_writers_is_rows_of_one_type(
    kafka: KafkaCluster, registry: RegistryServer, writer: Writer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    first = writer.register(f"{topic}-value", FIRST)
    second = writer.register(f"{topic}-second", SECOND)
    other = writer.register(f"{topic}-other", OTHER)
    first_type, second_type, other_type = compiled(FIRST), compiled(SECOND, (1,)), compiled(OTHER)
    values = [
        message(first, first_type, id=1),
        message(second, second_type, b"\x02\x02", id=2, user="ann", note="x"),
        message(other, other_type, id="x"),
        message(0x7FFFFFFF, first_type, id=3),
        message(second, second_type, id=4),  # the first message of that file is a Note
        message(second, second_type, b"\x02\x08", id=5),
        message(first, first_type, id=6)[:5],
        message(first, first_type) + b"\x0a\xff",
        b"no head",
        message(first, first_type, id=7),
    ]
    written(kafka, topic, values)
    schema = ConfluentRegistryProtobufDeserializationSchema.for_row_type_info(compiled(READER), registry.url)
    harness = read(kafka, topic, pickle.loads(pickle.dumps(schema)), "dead_letter")
    assert [(row.id, row.user) for row in harness.run()] == [(1, ""), (2, "ann"), (7, "")]
    harness.close()
    letters = [letter for tag, letter in harness.side if tag == DEAD_LETTERS]
    assert [letter.raw for letter in letters] == values[2:9]
    assert [letter.schema_id for letter in letters] == [
        other,
        0x7FFFFFFF,
        second,
        second,
        first,
        first,
        None,
    ]
    told = [letter.error for letter in letters]
    assert f"subject '{topic}-other' version 1" in told[0] and "field 'id' (number 1)" in told[0]
    assert "the writer's message is shop.Note" in told[2]
    assert "no message at the message indexes [4]" in told[3]


def test_an_incompatible_writer_of_protobuf_fails_the_job_by_subject_version_and_field(
    kafka: KafkaCluster, registry: RegistryServer, writer: Writer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    other = writer.register(f"{topic}-value", OTHER)
    written(kafka, topic, [message(other, compiled(OTHER), id="x")])
    schema = ConfluentRegistryProtobufDeserializationSchema.for_generic(compiled(FIRST), registry.url)
    harness = read(kafka, topic, schema, "fail")
    with pytest.raises(
        KafkaRecordError,
        match=rf"offset 0 of {topic}-0 .* \(subject '{topic}-value' version 1.* field 'id' .*string.*int64",
    ):
        harness.run()
    harness.close()


def test_references_are_part_of_a_schema(registry: RegistryServer, writer: Writer) -> None:
    user = 'syntax = "proto3"; package shop; message User { string name = 1; }'
    sale = (
        'syntax = "proto3"; package shop; import "people/user.proto"; import "google/protobuf/timestamp.proto";'
        " message Sale { User by = 1; google.protobuf.Timestamp at = 2; }"
    )
    writer.register("protobuf-user", user)
    schema_id = writer.register(
        "protobuf-sale", sale, SchemaReference("people/user.proto", "protobuf-user", 1)
    )
    subject = RegistrySubject("protobuf-sale")
    schema = ConfluentRegistryProtobufDeserializationSchema.for_row_type_info(subject, registry.url)
    by = Types.ROW_NAMED(["name"], [Types.STRING()])
    assert schema.get_produced_type() == Types.ROW_NAMED(["by", "at"], [by, Types.INSTANT()])
    made = CompiledSchema.of(sale, {"people/user.proto": user}).message((0,))
    row = schema.deserialize(message(schema_id, made, by={"name": "ann"}, at={"seconds": 5}))
    assert row.by.name == "ann" and row.at.seconds == 5


def test_a_schema_that_a_snapshot_has_kept_holds_for_the_latest_version(
    registry: RegistryServer, writer: Writer
) -> None:
    subject = RegistrySubject("protobuf-kept")
    by_subject = ConfluentRegistryProtobufDeserializationSchema.for_generic
    writer.register("protobuf-kept", FIRST)
    kept = by_subject(subject, registry.url).kept_schema()
    assert kept is not None
    schema_id = writer.register("protobuf-kept", READER)
    now = by_subject(subject, registry.url)
    own = now.kept_schema()
    assert own is not None and kept.stays(own) and kept.content != own.content
    content = message(schema_id, compiled(READER), id=1, user="ann")
    restored = pickle.loads(pickle.dumps(now.with_kept_schema(kept)))
    assert (now.deserialize(content), restored.deserialize(content)) == ({"id": 1, "user": "ann"}, {"id": 1})
    assert restored.kept_schema() == kept
    assert by_subject(compiled(READER), registry.url).kept_schema() is None


def test_fields_that_only_the_writer_has(registry: RegistryServer, writer: Writer) -> None:
    schema_id = writer.register("protobuf-more-fields", SECOND)
    content = message(schema_id, compiled(SECOND, (1,)), b"\x02\x02", id=1, user="ann", note="x")

    def read_with(evolution: str) -> Any:
        made = ConfluentRegistryProtobufDeserializationSchema.for_generic(
            compiled(READER), registry.url, evolution=evolution
        )
        return made.deserialize(content)

    assert read_with("keep") == {"id": 1, "user": "ann"}
    assert read_with("add") == {"id": 1, "user": "ann", "note": "x"}
    with pytest.raises(RegistryMessageError, match="field 'note': the reader's schema does not know it"):
        read_with("fail")
    with pytest.raises(InvalidProgramError, match="columns cannot be added"):
        ConfluentRegistryProtobufDeserializationSchema.for_row_type_info(
            compiled(READER), registry.url, evolution="add"
        )


def test_secrets_are_not_shown(registry: RegistryServer) -> None:
    url = registry.url.replace("http://", "http://user:hidden@")
    schema = ConfluentRegistryProtobufDeserializationSchema.for_row_type_info(compiled(READER), url)
    assert "hidden" not in repr(schema)


def test_the_example_of_the_page(registry: RegistryServer, writer: Writer) -> None:
    schema_id = writer.register("protobuf-orders-value", READER)
    found: dict[str, Any] = {}
    example = example_of_page("ConfluentRegistryProtobufDeserializationSchema")
    exec(example.replace("http://localhost:8081", registry.url), found)
    row = found["orders"].deserialize(message(schema_id, compiled(READER), id=1, user="ann"))
    assert row.id == 1 and row.user == "ann"
