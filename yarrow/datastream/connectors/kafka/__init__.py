"""Kafka as a source and a sink, with the names of PyFlink's module.

Owner: none. Importing it loads no client library.
"""

from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.flink_kafka_consumer import FlinkKafkaConsumer
from yarrow.datastream.connectors.kafka.flink_kafka_producer import FlinkKafkaProducer, Semantic
from yarrow.datastream.connectors.kafka.kafka_sink import KafkaSink, KafkaSinkBuilder
from yarrow.datastream.connectors.kafka.kafka_source import KafkaSource, KafkaSourceBuilder
from yarrow.datastream.connectors.kafka.reading.offsets_initializer import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
)
from yarrow.datastream.connectors.kafka.reading.record_deserialization import (
    ConsumerRecord,
    KafkaRecordDeserializationSchema,
)
from yarrow.datastream.connectors.kafka.writing.record_serialization import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
    ProducerRecord,
)

__all__ = [
    "ConsumerRecord",
    "DeliveryGuarantee",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "ProducerRecord",
    "Semantic",
]
