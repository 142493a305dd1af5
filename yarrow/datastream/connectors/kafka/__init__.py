"""Kafka as a source, with the names of PyFlink's module.

Owner: none. Importing it loads no client library.
"""

from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.flink_kafka_consumer import FlinkKafkaConsumer
from yarrow.datastream.connectors.kafka.kafka_source import KafkaSource, KafkaSourceBuilder
from yarrow.datastream.connectors.kafka.reading.offsets_initializer import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
)
from yarrow.datastream.connectors.kafka.reading.record_deserialization import (
    ConsumerRecord,
    KafkaRecordDeserializationSchema,
)

__all__ = [
    "ConsumerRecord",
    "FlinkKafkaConsumer",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordDeserializationSchema",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
]
