"""Streams told by a file: YAML or JSON, read anew each time, and refused by place and without its text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from yarrow.datastream.connectors.dynamic_kafka import YamlFileMetadataService
from yarrow.datastream.connectors.dynamic_kafka.file_metadata_service import MetadataFileError
from yarrow.runtime.common.errors import InvalidProgramError

SECRET = "pa55word"
CLUSTER: dict[str, Any] = {
    "clusterId": "east",
    "bootstrapServers": "b:1",
    "topics": ["t", "u"],
    "properties": {"sasl.password": SECRET, "fetch.max.bytes": 5},
}
STREAMS: list[dict[str, Any]] = [
    {"streamId": "orders", "clusterMetadataList": [CLUSTER]},
    {"streamId": "users", "clusterMetadataList": []},
]
YAML = """
- streamId: orders
  clusterMetadataList:
    - clusterId: east
      bootstrapServers: b:1
      topics: [t, u]
      properties: {sasl.password: pa55word, fetch.max.bytes: 5}
- streamId: users
  clusterMetadataList: []
"""


def service(folder: Path, text: str, name: str = "streams.yaml") -> YamlFileMetadataService:
    (folder / name).write_text(text, "utf-8")
    return YamlFileMetadataService(str(folder / name))


@pytest.mark.parametrize(("text", "name"), [(YAML, "s.yaml"), (json.dumps(STREAMS), "s.json")])
def test_streams_of_both_forms(tmp_path: Path, text: str, name: str) -> None:
    made = service(tmp_path, text, name)
    orders, users = made.get_all_streams()
    assert (orders.stream_id, users.stream_id) == ("orders", "users")
    east = orders.cluster_metadata_map["east"]
    assert east.topics == {"t", "u"}
    assert dict(east.properties) == {
        "bootstrap.servers": "b:1",
        "sasl.password": SECRET,
        "fetch.max.bytes": "5",
    }
    assert made.describe_streams(["users", "none"]).keys() == {"users"}
    assert made.is_cluster_active("east") and not made.is_cluster_active("west")


def test_the_file_may_change(tmp_path: Path) -> None:
    made = service(tmp_path, YAML)
    service(tmp_path, "[]")
    assert made.get_all_streams() == []


def changed(**fields: Any) -> str:
    return json.dumps([{"streamId": "orders", "clusterMetadataList": [CLUSTER | fields]}])


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (f"- a: '{SECRET}\n", "s.yaml", "line 2 is no YAML"),
        (f'[{{"a": {SECRET}}}]', "s.json", "line 1 is no JSON"),
        ("streamId: orders", "s.yaml", "the file must be a list of streams"),
        ("[1]", "s.yaml", "stream 1 must have clusterMetadataList, streamId, and nothing else"),
        (json.dumps(STREAMS[1:] * 2), "s.json", "stream users is there twice"),
        (json.dumps([STREAMS[0] | {"streamId": 7}]), "s.json", "streamId of stream 1 must be a text"),
        (
            json.dumps([{"streamId": "orders", "clusterMetadataList": [CLUSTER, CLUSTER]}]),
            "s.json",
            "cluster east is twice in stream orders",
        ),
        (
            json.dumps([STREAMS[1] | {"clusterMetadataList": {}}]),
            "s.json",
            "clusterMetadataList of stream users must be",
        ),
        (
            changed(topic="t"),
            "s.json",
            "cluster 1 of stream orders must have bootstrapServers, clusterId, topics",
        ),
        (changed(topics="t"), "s.json", "topics of cluster 1 of stream orders must be a list"),
        (changed(topics=[7]), "s.json", "topics must be a collection of names"),
        (
            changed(bootstrapServers=""),
            "s.json",
            "bootstrapServers of cluster 1 of stream orders must be a text",
        ),
        (changed(properties={"a": [SECRET]}), "s.json", "property a must be a str or a number, not list"),
    ],
)
def test_what_is_wrong_is_told_by_place(tmp_path: Path, text: str, name: str, expected: str) -> None:
    with pytest.raises(MetadataFileError) as refused:
        service(tmp_path, text, name).get_all_streams()
    assert str(refused.value).startswith(f"file of streams {tmp_path / name}: ")
    assert expected in str(refused.value) and SECRET not in str(refused.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(MetadataFileError, match="it cannot be read: "):
        YamlFileMetadataService(str(tmp_path / "none.yaml")).get_all_streams()
    with pytest.raises(InvalidProgramError, match="metadata_file_path must be a path, not ''"):
        YamlFileMetadataService("")
