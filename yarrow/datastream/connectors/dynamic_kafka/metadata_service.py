"""KafkaMetadataService: tells which clusters and topics a stream has now, and how each cluster is reached.

Owner: the enumerator's thread or a fetch thread of a reader; each process has a service of its own, made of the
program's one. A service may block. Must not load the client library when the program is built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, Final

from yarrow.datastream.connectors.dynamic_kafka.kafka_streams import ClusterMetadata, KafkaStream
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties, as_text
from yarrow.datastream.connectors.kafka.cluster.client_settings import consumer_settings
from yarrow.datastream.connectors.kafka.reading.source_settings import of_client
from yarrow.runtime.common.errors import InvalidProgramError

_ANSWER_SECONDS: Final = 30.0


class KafkaMetadataService(ABC):
    """Tells of streams. Programs subclass it; an object must be picklable."""

    @abstractmethod
    def get_all_streams(self) -> Collection[KafkaStream]:
        """Return all streams as they are now."""

    @abstractmethod
    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]:
        """Return streams by their id as they are now; those that do not exist are left out."""

    @abstractmethod
    def is_cluster_active(self, kafka_cluster_id: str) -> bool:
        """Return False for a cluster that is taken out of use.

        The search for its partitions may then fail: the source searches again later. A reader that has partitions of
        it still fails the job behind `broker.unreachable.timeout.ms`, so tell its streams without it, too.
        """

    def close(self) -> None:
        """Release what the service holds."""
        return None


class SingleClusterTopicMetadataService(KafkaMetadataService):
    """One cluster, where each topic is a stream with the topic's name.

    Raises InvalidProgramError for properties that the client refuses.
    """

    def __init__(self, kafka_cluster_id: str, properties: Mapping[str, Any]) -> None:
        if not isinstance(kafka_cluster_id, str) or not kafka_cluster_id:
            raise InvalidProgramError(
                f"{type(self).__name__}: kafka_cluster_id must be a text, not {kafka_cluster_id!r}"
            )
        self._cluster = kafka_cluster_id
        texts = (as_text(type(self).__name__, key, value) for key, value in properties.items())
        self._properties = ClientProperties(dict(texts))
        self._settings()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._cluster!r}, {self._properties!r})"

    def _settings(self) -> dict[str, str]:
        return consumer_settings(type(self).__name__, of_client(self._properties))

    def get_all_streams(self) -> Collection[KafkaStream]:
        """Return a stream for each topic that is not internal. Raises KafkaUnreachableError."""
        from yarrow.datastream.connectors.kafka.cluster.client import ClusterClient

        label = f"{self._properties['bootstrap.servers']} (cluster {self._cluster})"
        client = ClusterClient(self._settings(), self._properties, _ANSWER_SECONDS, label=label)
        topics = [topic for topic in client.topics() if not topic.startswith("__")]
        return list(self.describe_streams(topics).values())

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]:
        """Return a stream for each id. The source itself finds out whether the topics exist."""
        return {
            topic: KafkaStream(topic, {self._cluster: ClusterMetadata({topic}, self._properties)})
            for topic in stream_ids
        }

    def is_cluster_active(self, kafka_cluster_id: str) -> bool:
        """Return True for the one cluster."""
        return kafka_cluster_id == self._cluster
