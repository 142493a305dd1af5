"""YamlFileMetadataService: streams and clusters read from a file of YAML or JSON, which may change at run time.

Owner: the calling thread; blocking. The file is read anew for each question. Errors tell lines of the file and never
its text, which may hold secrets.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

import yaml

from yarrow.datastream.connectors.dynamic_kafka.kafka_streams import ClusterMetadata, KafkaStream
from yarrow.datastream.connectors.dynamic_kafka.metadata_service import KafkaMetadataService
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError
from yarrow.runtime.fs.registry import file_system_for

_STREAM_KEYS: Final = frozenset({"streamId", "clusterMetadataList"})
_CLUSTER_KEYS: Final = frozenset({"clusterId", "bootstrapServers", "topics", "properties"})


class MetadataFileError(YarrowError):
    """A file of streams cannot be read; the message names the file, and the place in it."""


class YamlFileMetadataService(KafkaMetadataService):
    """Streams of a file: a list of `streamId` and `clusterMetadataList`.

    Each cluster has `clusterId`, `bootstrapServers`, `topics`, and `properties` if it needs more of them. A name that
    ends with `.json` is read as JSON. The path may be local, or in HDFS. Every worker reads the file, so all must find
    it under this path. Replace it by a rename, so that nobody reads a half-written file.
    """

    def __init__(self, metadata_file_path: str) -> None:
        if not isinstance(metadata_file_path, str) or not metadata_file_path:
            raise InvalidProgramError(
                f"YamlFileMetadataService: metadata_file_path must be a path, not {metadata_file_path!r}"
            )
        self._path = metadata_file_path

    def __repr__(self) -> str:
        return f"YamlFileMetadataService({self._path!r})"

    def get_all_streams(self) -> Collection[KafkaStream]:
        """Return all streams of the file. Raises MetadataFileError."""
        entries = self._parsed()
        if not isinstance(entries, list):
            raise self._wrong("the file must be a list of streams")
        streams: dict[str, KafkaStream] = {}
        for number, entry in enumerate(entries, 1):
            stream = self._stream(f"stream {number}", entry)
            if stream.stream_id in streams:
                raise self._wrong(f"stream {stream.stream_id} is there twice")
            streams[stream.stream_id] = stream
        return list(streams.values())

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]:
        """Return streams of the file by their id. Raises MetadataFileError."""
        return {
            stream.stream_id: stream for stream in self.get_all_streams() if stream.stream_id in stream_ids
        }

    def is_cluster_active(self, kafka_cluster_id: str) -> bool:
        """Return True if a stream of the file has the cluster. Raises MetadataFileError."""
        return any(kafka_cluster_id in stream.cluster_metadata_map for stream in self.get_all_streams())

    def _parsed(self) -> Any:
        try:
            with file_system_for(self._path).open(self._path) as file:
                data = file.read()
        except OSError as error:
            raise self._wrong(f"it cannot be read: {error}") from error
        try:
            return json.loads(data) if self._path.endswith(".json") else yaml.safe_load(data)
        except json.JSONDecodeError as error:
            raise self._wrong(f"line {error.lineno} is no JSON: {error.msg}") from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            line = "" if mark is None else f"line {mark.line + 1} "
            raise self._wrong(f"{line}is no YAML") from None
        except (yaml.YAMLError, UnicodeDecodeError):
            raise self._wrong("it is no YAML") from None

    def _stream(self, place: str, entry: Any) -> KafkaStream:
        fields = self._fields(place, entry, _STREAM_KEYS, _STREAM_KEYS)
        place = f"stream {self._text(place, 'streamId', fields)}"
        clusters: dict[str, ClusterMetadata] = {}
        if not isinstance(fields["clusterMetadataList"], list):
            raise self._wrong(f"clusterMetadataList of {place} must be a list")
        for number, found in enumerate(fields["clusterMetadataList"], 1):
            where = f"cluster {number} of {place}"
            cluster = self._fields(where, found, _CLUSTER_KEYS, _CLUSTER_KEYS - {"properties"})
            name = self._text(where, "clusterId", cluster)
            if name in clusters:
                raise self._wrong(f"cluster {name} is twice in {place}")
            clusters[name] = self._cluster(where, cluster)
        return KafkaStream(fields["streamId"], clusters)

    def _cluster(self, place: str, fields: Mapping[str, Any]) -> ClusterMetadata:
        topics, properties = fields["topics"], fields.get("properties") or {}
        if not isinstance(topics, list) or not isinstance(properties, dict):
            raise self._wrong(f"topics of {place} must be a list, and properties names with values")
        servers = self._text(place, "bootstrapServers", fields)
        try:
            return ClusterMetadata(topics, {**properties, "bootstrap.servers": servers})
        except InvalidProgramError as error:
            raise self._wrong(f"{place}: {error}") from None

    def _fields(
        self, place: str, entry: Any, known: frozenset[str], needed: frozenset[str]
    ) -> Mapping[str, Any]:
        if not isinstance(entry, dict) or not needed <= entry.keys() <= known:
            extra = "" if known == needed else f", and may have {', '.join(sorted(known - needed))}"
            raise self._wrong(f"{place} must have {', '.join(sorted(needed))}{extra}, and nothing else")
        return entry

    def _text(self, place: str, key: str, fields: Mapping[str, Any]) -> str:
        value = fields[key]
        if not isinstance(value, str) or not value:
            raise self._wrong(f"{key} of {place} must be a text")
        return value

    def _wrong(self, why: str) -> MetadataFileError:
        return MetadataFileError(f"file of streams {self._path}: {why}")
