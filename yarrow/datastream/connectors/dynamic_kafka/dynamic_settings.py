"""DynamicSourceSettings: what a program has said of a DynamicKafkaSource, and what that means for each cluster now.

Owner: none for the values; enumerator and fetch threads ask the metadata service through them. Must not import the
client library.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from yarrow.datastream.connectors.dynamic_kafka.kafka_streams import ClusterMetadata, KafkaStream
from yarrow.datastream.connectors.dynamic_kafka.metadata_service import KafkaMetadataService
from yarrow.datastream.connectors.dynamic_kafka.stream_subscriber import KafkaStreamSubscriber
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaConnectorError
from yarrow.datastream.connectors.kafka.reading.source_settings import OFFSET_RESET, KafkaSourceSettings
from yarrow.datastream.connectors.kafka.reading.subscription import TopicList
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError

OWNER: Final = "DynamicKafkaSource"


class KafkaMetadataError(KafkaConnectorError):
    """A metadata service failed, or told of a cluster that cannot be read in this way; the message names both."""


@dataclass(frozen=True)
class Clusters:
    """The clusters of the subscribed streams at one time."""

    #: The settings of each cluster by its id.
    settings: Mapping[str, KafkaSourceSettings]
    #: Ids of streams that the program names, and that the service does not know.
    missing: tuple[str, ...]


@dataclass(frozen=True)
class DynamicSourceSettings:
    """The description of a source."""

    #: What holds for every cluster.
    common: KafkaSourceSettings
    subscriber: KafkaStreamSubscriber
    service: KafkaMetadataService
    #: Seconds between two questions to the service; None = one question.
    discovery_seconds: float | None
    #: The job fails with so many failures of the service, one behind the other.
    most_failures: int

    @property
    def service_name(self) -> str:
        """The class of the service."""
        return type(self.service).__name__

    def clusters(self) -> Clusters:
        """Ask the service. Raises KafkaMetadataError."""
        try:
            streams = list(self.subscriber.get_subscribed_streams(self.service))
        except YarrowError as error:
            raise KafkaMetadataError(f"metadata service {self.service_name}: {error}") from error
        except Exception as error:  # A program's service may raise anything.
            raise KafkaMetadataError(
                f"metadata service {self.service_name} failed with {type(error).__name__}: {error}"
            ) from error
        return Clusters(self._of_streams(streams), tuple(self.subscriber.missing(streams)))

    def is_active(self, cluster: str) -> bool:
        """Return False if the service says that a cluster is out of use."""
        try:
            return self.service.is_cluster_active(cluster)
        except Exception:  # A program's service may raise anything.
            return True

    def _of_streams(self, streams: list[KafkaStream]) -> dict[str, KafkaSourceSettings]:
        topics: dict[str, set[str]] = {}
        first: dict[str, tuple[str, ClusterMetadata]] = {}
        for stream in streams:
            for cluster, metadata in stream.cluster_metadata_map.items():
                other, told = first.setdefault(cluster, (stream.stream_id, metadata))
                if told.properties != metadata.properties:
                    raise KafkaMetadataError(
                        f"metadata service {self.service_name}: streams {other} and {stream.stream_id} reach cluster"
                        f" {cluster} with different properties. Give both the same"
                    )
                topics.setdefault(cluster, set()).update(metadata.topics)
        return {
            cluster: self._of_cluster(cluster, metadata, topics[cluster])
            for cluster, (_, metadata) in sorted(first.items())
        }

    def _of_cluster(self, cluster: str, metadata: ClusterMetadata, topics: set[str]) -> KafkaSourceSettings:
        common, own = self.common, metadata.properties
        reset = common.properties.get(OFFSET_RESET)
        if own.get(OFFSET_RESET, reset) != reset:
            raise KafkaMetadataError(
                f"metadata service {self.service_name}: cluster {cluster} has its own {OFFSET_RESET}. Set it in the"
                " program, because the claim of the whole source depends on it"
            )
        settings = replace(
            common,
            subscription=TopicList(tuple(sorted(topics))),
            properties=ClientProperties({**common.properties, **own}),
            starting=metadata.starting_offsets_initializer or common.starting,
            stopping=metadata.stopping_offsets_initializer or common.stopping,
            cluster=cluster,
        )
        try:
            settings.check()
        except InvalidProgramError as error:
            raise KafkaMetadataError(f"metadata service {self.service_name}: {error}") from error
        return settings


class ClusterLookUp:
    """Tells the fetch threads of one reader how clusters are reached. Any thread of this process may call it."""

    def __init__(self, settings: DynamicSourceSettings) -> None:
        # A source may make several readers, one behind the other. Each closes its own service.
        self._settings = replace(settings, service=copy.deepcopy(settings.service))
        #: Held by the thread that asks or closes the service.
        self._lock = threading.Lock()
        self._is_ending = False
        self._is_closed = False

    def __call__(self, cluster: str) -> KafkaSourceSettings | str:
        """Return the settings of a cluster, or why they are not known."""
        with self._lock:
            found = "the reader has ended" if self._is_closed else self._ask(cluster)
        if self._is_ending:
            self._close_if_free()
        return found

    def _ask(self, cluster: str) -> KafkaSourceSettings | str:
        try:
            found = self._settings.clusters().settings
        except KafkaMetadataError as error:
            return str(error)
        return found.get(cluster) or f"metadata service {self._settings.service_name} does not tell of it"

    def close(self) -> None:
        """Close the reader's service, without waiting for a thread that is asking it: that one closes it then."""
        self._is_ending = True
        self._close_if_free()

    def _close_if_free(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_closed:
                    self._is_closed = True
                    self._settings.service.close()
            finally:
                self._lock.release()
