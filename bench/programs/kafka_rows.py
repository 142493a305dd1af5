"""A topic into a sink that drops its rows, parallelism 1: values as bytes, as JSON rows, or as columns of JSON.

The peer is bench/peers/bare_kafka.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bench.programs.kafka_topic import TOPIC, broker, filled
from yarrow.common import ByteArraySchema, Configuration, DeserializationSchema, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors import Sink, SinkWriter, SinkWriterContext
from yarrow.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaTopicPartition,
)
from yarrow.datastream.formats.json import JsonColumnsDeserializationSchema, JsonRowDeserializationSchema

PAYMENT = Types.ROW_NAMED(
    ["user", "name", "amount", "page"], [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.STRING()]
)


class DroppingBoth(SinkWriter[object]):
    """Takes rows or columns and forgets them."""

    def write(self, rows: Sequence[object], timestamps: Sequence[int | None] | None) -> None:
        pass

    def write_batch(self, batch: pa.RecordBatch) -> None:
        pass


class RowsOrColumns(Sink[object]):
    """Of which only the rate counts."""

    def __init__(self, *, columns: bool) -> None:
        self.accepts_columns = columns

    def create_writer(self, context: SinkWriterContext, restored: Sequence[object] = ()) -> DroppingBoth:
        return DroppingBoth()


def schema_of(form: str) -> DeserializationSchema[Any]:
    """The deserializer of a form of rows."""
    if form == "bytes":
        return ByteArraySchema()
    if form == "columns":
        return JsonColumnsDeserializationSchema(PAYMENT)
    return JsonRowDeserializationSchema.builder().type_info(PAYMENT).build()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--form", choices=("bytes", "json", "columns"), default="bytes")
    given = arguments.parse_args()
    servers = broker()
    filled(servers, given.records)
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"parallelism.default": "1"})
    )
    end = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(TOPIC, 0): given.records})
    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(TOPIC).set_bounded(end)
    source: KafkaSource[Any] = builder.set_value_only_deserializer(schema_of(given.form)).build()
    payments = env.from_source(source, WatermarkStrategy.no_watermarks(), "payments")
    payments.sink_to(RowsOrColumns(columns=given.form == "columns"))
    env.execute(f"bench kafka {given.form}")


if __name__ == "__main__":
    main()
