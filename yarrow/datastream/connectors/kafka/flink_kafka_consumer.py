"""FlinkKafkaConsumer: the older form of a KafkaSource, for programs that call `env.add_source`.

Owner: the client, while it builds the program. It only describes a KafkaSource. Its start position is that of the
group, as in PyFlink; partitions without a committed offset follow `auto.offset.reset`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from yarrow.common.serialization import DeserializationSchema
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.connectors.base import StandsForSource
from yarrow.datastream.connectors.kafka.cluster.client_library import require_client_library
from yarrow.datastream.connectors.kafka.kafka_source import KafkaSource
from yarrow.datastream.connectors.kafka.reading.offsets_initializer import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
)
from yarrow.datastream.connectors.kafka.reading.source_settings import (
    COMMIT_ON_CHECKPOINT,
    DISCOVERY_INTERVAL,
)
from yarrow.runtime.common.errors import InvalidProgramError

#: The older name of the interval of discovery, which is off unless it is set.
_OLD_DISCOVERY: Final = "flink.partition-discovery.interval-millis"
_RESETS: Final = {
    "earliest": KafkaOffsetResetStrategy.EARLIEST,
    "latest": KafkaOffsetResetStrategy.LATEST,
    "none": KafkaOffsetResetStrategy.NONE,
}


class FlinkKafkaConsumer(StandsForSource):
    """A consumer of topics for `env.add_source`.

    Raises InvalidProgramError if Kafka's client library is not installed.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        deserialization_schema: DeserializationSchema[Any],
        properties: Mapping[str, Any],
    ) -> None:
        require_client_library("FlinkKafkaConsumer")
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self._schema = deserialization_schema
        self._properties = {str(key): value for key, value in properties.items()}
        self._starting: KafkaOffsetsInitializer | None = None

    def set_start_from_earliest(self) -> FlinkKafkaConsumer:
        """Begin at the beginning of each partition."""
        self._starting = KafkaOffsetsInitializer.earliest()
        return self

    def set_start_from_latest(self) -> FlinkKafkaConsumer:
        """Begin at the end of each partition."""
        self._starting = KafkaOffsetsInitializer.latest()
        return self

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> FlinkKafkaConsumer:
        """Begin at the first record of that time (ms since 1970) or later."""
        self._starting = KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp)
        return self

    def set_start_from_group_offsets(self) -> FlinkKafkaConsumer:
        """Begin where the group has committed: the default."""
        self._starting = None
        return self

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> FlinkKafkaConsumer:
        """Set whether offsets are committed to the group when a checkpoint is complete."""
        self._properties[COMMIT_ON_CHECKPOINT] = commit_on_checkpoints
        return self

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> FlinkKafkaConsumer:
        """Make watermarks in the source, for each partition."""
        self.watermark_strategy = watermark_strategy
        return self

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> FlinkKafkaConsumer:
        """Refused: partitions that the program does not subscribe to are released."""
        raise InvalidProgramError(
            "FlinkKafkaConsumer: partitions of a savepoint that the program does not subscribe to are released; keep"
            " their topics in the list of topics"
        )

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the rows."""
        return self._schema.get_produced_type()

    def source(self) -> KafkaSource[Any]:
        """Return the KafkaSource that this consumer describes. Raises InvalidProgramError."""
        properties = dict(self._properties)
        interval = properties.pop(_OLD_DISCOVERY, -1)
        properties.setdefault(DISCOVERY_INTERVAL, interval)
        builder = KafkaSource.builder().set_topics(*self._topics).set_properties(properties)
        builder.set_value_only_deserializer(self._schema)
        return builder.set_starting_offsets(self._starting or self._group_offsets(properties)).build()

    def _group_offsets(self, properties: Mapping[str, Any]) -> KafkaOffsetsInitializer:
        reset = str(properties.get("auto.offset.reset", "latest"))
        if reset not in _RESETS:
            raise InvalidProgramError(
                f"FlinkKafkaConsumer: property auto.offset.reset must be earliest, latest or none, not {reset!r}"
            )
        return KafkaOffsetsInitializer.committed_offsets(_RESETS[reset])
