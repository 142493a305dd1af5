"""Kafka streams of several clusters as one source, with the names of PyFlink's module.

Owner: none. Importing it loads no client library.
"""

from yarrow.datastream.connectors.dynamic_kafka.dynamic_kafka_source import (
    DynamicKafkaSource,
    DynamicKafkaSourceBuilder,
)
from yarrow.datastream.connectors.dynamic_kafka.file_metadata_service import YamlFileMetadataService
from yarrow.datastream.connectors.dynamic_kafka.kafka_streams import ClusterMetadata, KafkaStream
from yarrow.datastream.connectors.dynamic_kafka.metadata_service import (
    KafkaMetadataService,
    SingleClusterTopicMetadataService,
)
from yarrow.datastream.connectors.dynamic_kafka.stream_subscriber import (
    KafkaStreamSetSubscriber,
    KafkaStreamSubscriber,
    StreamPatternSubscriber,
)
from yarrow.datastream.connectors.kafka import KafkaRecordDeserializationSchema

__all__ = [
    "ClusterMetadata",
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "KafkaMetadataService",
    "KafkaRecordDeserializationSchema",
    "KafkaStream",
    "KafkaStreamSetSubscriber",
    "KafkaStreamSubscriber",
    "SingleClusterTopicMetadataService",
    "StreamPatternSubscriber",
    "YamlFileMetadataService",
]
