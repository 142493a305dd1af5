"""Kafka -> keyed count -> Kafka, exactly once with a checkpoint each second, parallelism 1.

The peers are bench/peers/bare_kafka_counts.py and bench/peers/pyflink_kafka_job.py.
"""

from __future__ import annotations

from typing import Any

from bench.programs.kafka_users import COUNTS, USERS, WRITING, brought_up
from yarrow.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def counting(
    servers: str, source: KafkaSourceBuilder, options: dict[str, str] | None = None
) -> StreamExecutionEnvironment:
    """The program over a source of users."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"parallelism.default": "1", **(options or {})})
    )
    env.enable_checkpointing(1000)
    source.set_bootstrap_servers(servers).set_topics(USERS)
    built: KafkaSource[Any] = source.set_value_only_deserializer(SimpleStringSchema()).build()
    users = env.from_source(built, WatermarkStrategy.no_watermarks(), "users")
    ones = users.map(lambda user: (user, 1), PAIR)
    counts = ones.key_by(lambda pair: pair[0], Types.STRING()).reduce(lambda a, b: (a[0], a[1] + b[1]))
    records = KafkaRecordSerializationSchema.builder().set_topic(COUNTS)
    records.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(records.build())
    sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("bench-counts")
    sink.set_properties(WRITING)
    counts.map(lambda pair: f"{pair[0]} {pair[1]}", Types.STRING()).sink_to(sink.build())
    return env


def main() -> None:
    servers, records = brought_up(__doc__)
    end = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(USERS, 0): records})
    counting(servers, KafkaSource.builder().set_bounded(end)).execute("bench kafka counts")


if __name__ == "__main__":
    main()
