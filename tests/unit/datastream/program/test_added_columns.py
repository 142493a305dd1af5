"""A source that adds columns is refused in front of a sink that has columns of its own, where the program says it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from yarrow.common import SimpleStringSchema, WatermarkStrategy
from yarrow.common.serialization import Encoder, SerializationSchema
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink, KafkaSource
from yarrow.datastream.formats.avro import AvroBulkWriters, AvroSchema
from yarrow.datastream.formats.json import JsonLinesEncoder
from yarrow.datastream.formats.registry import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from yarrow.runtime.common.errors import InvalidProgramError

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
URL = "http://localhost:1"


class AnyField(SerializationSchema[Any]):
    """A schema of a user."""

    takes_added_columns = True

    def serialize(self, element: Any) -> bytes:
        return json.dumps(element).encode()


def orders(evolution: str) -> DataStream:
    schema = ConfluentRegistryAvroDeserializationSchema.for_generic(ORDER, URL, evolution=evolution)
    builder = KafkaSource.builder().set_bootstrap_servers("localhost:1").set_topics("orders")
    source = builder.set_value_only_deserializer(schema).build()
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")


def to_kafka(schema: SerializationSchema[Any]) -> KafkaSink[Any]:
    records = KafkaRecordSerializationSchema.builder().set_topic("out")
    serializer = records.set_value_serialization_schema(schema).build()
    builder = KafkaSink.builder().set_bootstrap_servers("localhost:1")
    return builder.set_record_serializer(serializer).build()


def by_registry() -> KafkaSink[Any]:
    return to_kafka(ConfluentRegistryAvroSerializationSchema.for_generic("out-value", ORDER, URL))


REFUSING: dict[str, Callable[[str], Sink[Any]]] = {
    "KafkaSink": lambda folder: by_registry(),
    "KafkaSink of text": lambda folder: to_kafka(SimpleStringSchema()),
    "FileSink": lambda folder: FileSink.for_bulk_format(
        folder, AvroBulkWriters.for_generic_record(AvroSchema.parse_string(ORDER))
    ).build(),
}
TAKING: dict[str, Callable[[str], Sink[Any]]] = {
    "lines of JSON": lambda folder: FileSink.for_row_format(folder, JsonLinesEncoder()).build(),
    "text": lambda folder: FileSink.for_row_format(folder, Encoder.simple_string_encoder()).build(),
    "a schema of a user": lambda folder: to_kafka(AnyField()),
}


@pytest.mark.parametrize("name", REFUSING)
def test_a_sink_with_columns_of_its_own_is_refused_by_its_name(name: str, tmp_path: Any) -> None:
    sink = REFUSING[name](str(tmp_path))
    with pytest.raises(
        InvalidProgramError, match=rf"source 'orders' .* {name.partition(' ')[0]} cannot add columns"
    ):
        orders("add").sink_to(sink)
    orders("keep").sink_to(sink)
    orders("fail").sink_to(sink)


@pytest.mark.parametrize("name", TAKING)
def test_a_sink_that_writes_any_field_is_not(name: str, tmp_path: Any) -> None:
    orders("add").sink_to(TAKING[name](str(tmp_path)))


@pytest.mark.parametrize(
    "passed_on",
    [
        lambda stream: stream.filter(lambda order: order["id"] > 0),
        lambda stream: stream.rebalance(),
        lambda stream: stream.key_by(lambda order: order["id"]),
        lambda stream: stream.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks()),
        lambda stream: stream.filter(lambda order: False).union(stream),
    ],
)
def test_records_may_pass_operators_that_keep_them(passed_on: Callable[[DataStream], DataStream]) -> None:
    with pytest.raises(InvalidProgramError, match="cannot add columns"):
        passed_on(orders("add")).sink_to(by_registry())


def test_an_operator_that_makes_records_decides_on_their_fields() -> None:
    stream = orders("add")
    stream.map(lambda order: {"id": order["id"]}).sink_to(by_registry())
    # What is printed or collected has no columns of its own.
    stream.print()
