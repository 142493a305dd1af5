"""KafkaStream and ClusterMetadata: what a metadata service tells of a stream, and of a cluster that has a part of it.

Owner: none (plain values). Must not import the client library.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties, as_text
from yarrow.runtime.common.errors import InvalidProgramError


class ClusterMetadata:
    """The topics of a stream in one cluster, and the properties by which clients reach this cluster.

    `repr` hides secrets. Raises InvalidProgramError for topics or properties of another kind.
    """

    def __init__(
        self,
        topics: Collection[str],
        properties: Mapping[str, Any],
        starting_offsets_initializer: KafkaOffsetsInitializer | None = None,
        stopping_offsets_initializer: KafkaOffsetsInitializer | None = None,
    ) -> None:
        """The initializers stand for those of the source; None = the source's own."""
        if isinstance(topics, str) or not all(isinstance(topic, str) and topic for topic in topics):
            raise InvalidProgramError(
                f"ClusterMetadata: topics must be a collection of names, not {topics!r}"
            )
        self.topics = frozenset(topics)
        texts = (as_text("ClusterMetadata", key, value) for key, value in properties.items())
        self.properties = ClientProperties(dict(texts))
        self.starting_offsets_initializer = starting_offsets_initializer
        self.stopping_offsets_initializer = stopping_offsets_initializer

    def __repr__(self) -> str:
        return f"ClusterMetadata({sorted(self.topics)}, {self.properties!r})"


class KafkaStream:
    """A stream: topics in one or several clusters."""

    def __init__(self, stream_id: str, cluster_metadata_map: Mapping[str, ClusterMetadata]) -> None:
        """`cluster_metadata_map` has what each cluster holds, by the cluster's id. Raises InvalidProgramError."""
        for name, value in (("stream_id", stream_id), *(("cluster id", key) for key in cluster_metadata_map)):
            if not isinstance(value, str) or not value:
                raise InvalidProgramError(f"KafkaStream: {name} must be a text, not {value!r}")
        self.stream_id = stream_id
        self.cluster_metadata_map = dict(cluster_metadata_map)

    def __repr__(self) -> str:
        return f"KafkaStream({self.stream_id!r}, {self.cluster_metadata_map})"
