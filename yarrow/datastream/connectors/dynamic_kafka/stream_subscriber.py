"""KafkaStreamSubscriber: which streams of a metadata service a source reads.

Owner: the thread that asks; it asks the service, and nobody else.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection

from yarrow.datastream.connectors.dynamic_kafka.kafka_streams import KafkaStream
from yarrow.datastream.connectors.dynamic_kafka.metadata_service import KafkaMetadataService
from yarrow.runtime.common.errors import InvalidProgramError


class KafkaStreamSubscriber(ABC):
    """A choice of streams. Programs may subclass it; an object must be picklable."""

    @abstractmethod
    def get_subscribed_streams(self, kafka_metadata_service: KafkaMetadataService) -> Collection[KafkaStream]:
        """Return the chosen streams as they are now."""

    def missing(self, streams: Collection[KafkaStream]) -> Collection[str]:
        """Return the ids that the program names and `streams` lacks."""
        return ()


class KafkaStreamSetSubscriber(KafkaStreamSubscriber):
    """The streams of some ids. Raises InvalidProgramError if there is none."""

    def __init__(self, stream_ids: Collection[str]) -> None:
        is_named = not isinstance(stream_ids, str) and all(
            isinstance(name, str) and name for name in stream_ids
        )
        if not is_named or not stream_ids:
            raise InvalidProgramError(
                f"DynamicKafkaSource: a set of ids of streams is expected, for example {{'orders'}}, not {stream_ids!r}"
            )
        self._stream_ids = frozenset(stream_ids)

    def get_subscribed_streams(self, kafka_metadata_service: KafkaMetadataService) -> Collection[KafkaStream]:
        """Return the streams of these ids that the service knows."""
        return list(kafka_metadata_service.describe_streams(sorted(self._stream_ids)).values())

    def missing(self, streams: Collection[KafkaStream]) -> Collection[str]:
        """Return the ids that `streams` lacks."""
        return sorted(self._stream_ids - {stream.stream_id for stream in streams})

    def __str__(self) -> str:
        return f"streams {', '.join(sorted(self._stream_ids))}"


class StreamPatternSubscriber(KafkaStreamSubscriber):
    """The streams whose whole ids match a regular expression. Raises InvalidProgramError if it is none."""

    def __init__(self, stream_pattern: str) -> None:
        try:
            re.compile(stream_pattern)
        except (re.error, TypeError) as error:
            raise InvalidProgramError(
                f"DynamicKafkaSource: a regular expression is expected, not {stream_pattern!r}: {error}"
            ) from error
        self._pattern = stream_pattern

    def get_subscribed_streams(self, kafka_metadata_service: KafkaMetadataService) -> Collection[KafkaStream]:
        """Return the streams of the service that match."""
        whole = re.compile(self._pattern)
        return [
            stream for stream in kafka_metadata_service.get_all_streams() if whole.fullmatch(stream.stream_id)
        ]

    def __str__(self) -> str:
        return f"streams that match {self._pattern!r}"
