"""A topic into a sink that drops its rows, parallelism 1: values as bytes, as JSON rows, or as columns of JSON.

The peer is bench/peers/bare_kafka.py.
"""

from __future__ import annotations

import argparse
from typing import Any

from bench.programs.kafka_topic import TOPIC, broker, filled
from bench.programs.rows import DroppingSink
from yarrow.common import ByteArraySchema, Configuration, DeserializationSchema, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaTopicPartition,
)
from yarrow.datastream.formats.json import JsonRowDeserializationSchema

PAYMENT = Types.ROW_NAMED(
    ["user", "name", "amount", "page"], [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.STRING()]
)


def schema_of(form: str) -> DeserializationSchema[Any]:
    """The deserializer of a form of rows."""
    if form == "bytes":
        return ByteArraySchema()
    return JsonRowDeserializationSchema.builder().type_info(PAYMENT).build()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--form", choices=("bytes", "json"), default="bytes")
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
    payments.sink_to(DroppingSink())
    env.execute(f"bench kafka {given.form}")


if __name__ == "__main__":
    main()
