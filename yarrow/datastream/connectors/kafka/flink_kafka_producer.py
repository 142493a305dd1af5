"""FlinkKafkaProducer: the older form of a KafkaSink, for programs that call `stream.add_sink`.

Owner: the client, while it builds the program. It only describes a KafkaSink.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from yarrow.common.serialization import SerializationSchema
from yarrow.datastream.connectors.base import DeliveryGuarantee, StandsForSink
from yarrow.datastream.connectors.kafka.cluster.client_library import require_client_library
from yarrow.datastream.connectors.kafka.kafka_sink import KafkaSink
from yarrow.datastream.connectors.kafka.writing.record_serialization import (
    KafkaRecordSerializationSchema,
    ProducerRecord,
)
from yarrow.datastream.connectors.kafka.writing.sink_settings import SHARED_PREFIX
from yarrow.runtime.common.errors import InvalidProgramError

_OWNER: Final = "FlinkKafkaProducer"


class Semantic(Enum):
    """What holds when the job fails and recovers."""

    # The values are those of PyFlink, tuples included.
    EXACTLY_ONCE = (0,)
    AT_LEAST_ONCE = (1,)
    NONE = 2


class _ValueSchema(KafkaRecordSerializationSchema[Any]):
    """Values alone, with the rows' timestamps if the program wants them."""

    def __init__(self, topic: str, schema: SerializationSchema[Any], *, timestamps: bool) -> None:
        self._topic = topic
        self._schema = schema
        self._timestamps = timestamps

    def serialize(self, element: Any, timestamp: int | None) -> ProducerRecord:
        value = self._schema.serialize(element)
        return ProducerRecord(self._topic, value, timestamp=timestamp if self._timestamps else None)


class FlinkKafkaProducer(StandsForSink):
    """A producer to a topic for `stream.add_sink`.

    `kafka_producer_pool_size` is accepted and means nothing: each transaction has a client of its own. Raises
    InvalidProgramError if Kafka's client library is not installed.
    """

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema[Any],
        producer_config: Mapping[str, Any],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        require_client_library(_OWNER)
        if not isinstance(serialization_schema, SerializationSchema):
            raise InvalidProgramError(
                f"{_OWNER}: serialization_schema must be a SerializationSchema, not {serialization_schema!r}"
            )
        if not isinstance(semantic, Semantic):
            raise InvalidProgramError(
                f"{_OWNER}: semantic must be one of Semantic's values, not {semantic!r}"
            )
        self._topic = topic
        self._schema = serialization_schema
        self._properties = dict(producer_config)
        self._semantic = semantic
        self._timestamps = False

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> FlinkKafkaProducer:
        """Set whether records have the timestamps of their rows; by default they have the time of writing."""
        self._timestamps = write_timestamp_to_kafka
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducer:
        """Set whether a checkpoint waits for the records before it: False makes AT_LEAST_ONCE to NONE."""
        if not flush_on_checkpoint and self._semantic is Semantic.AT_LEAST_ONCE:
            self._semantic = Semantic.NONE
        return self

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducer:
        """Refused if True: a record that cannot be written fails the job."""
        if log_failures_only:
            raise InvalidProgramError(
                f"{_OWNER}: a record that cannot be written fails the job; leave this out"
            )
        return self

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Refused: the property accept-loss names the rows that may be lost."""
        raise InvalidProgramError(
            f"{_OWNER}: rows of a transaction that Kafka has aborted are never lost in silence. Such a job fails and"
            " names the checkpoint; then set the producer's property accept-loss to it"
        )

    def sink(self) -> KafkaSink[Any]:
        """Return the KafkaSink that this producer describes. Raises InvalidProgramError."""
        builder = KafkaSink.builder().set_properties(self._properties)
        builder.set_record_serializer(
            _ValueSchema(self._topic, self._schema, timestamps=self._timestamps)
        ).set_delivery_guarantee(DeliveryGuarantee[self._semantic.name])
        if self._semantic is Semantic.EXACTLY_ONCE:
            builder.set_transactional_id_prefix(SHARED_PREFIX)
        return builder.build()
