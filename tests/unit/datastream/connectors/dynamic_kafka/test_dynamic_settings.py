"""The metadata service of a reader: a copy of its own, which closes with the reader."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import ClassVar

import pytest

from tests.unit.datastream.connectors.harness import ReaderContext
from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.dynamic_kafka import (
    ClusterMetadata,
    DynamicKafkaSource,
    KafkaMetadataService,
    KafkaStream,
)
from yarrow.datastream.connectors.dynamic_kafka.dynamic_settings import ClusterLookUp
from yarrow.datastream.connectors.kafka.reading.source_settings import KafkaSourceSettings


class Closing(KafkaMetadataService):
    """One stream of one cluster. It writes down which of its copies are asked and closed."""

    seen: ClassVar[list[str]] = []
    while_asked: ClassVar[Callable[[], None]] = lambda: None

    def __init__(self) -> None:
        self.is_closed = False

    def get_all_streams(self) -> Collection[KafkaStream]:
        return []

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]:
        Closing.while_asked()
        self.seen.append("asked closed" if self.is_closed else "asked")
        return {"s": KafkaStream("s", {"east": ClusterMetadata(["t"], {"bootstrap.servers": "east:1"})})}

    def is_cluster_active(self, kafka_cluster_id: str) -> bool:
        return True

    def close(self) -> None:
        self.is_closed = True
        self.seen.append("closed")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Closing]:
    monkeypatch.setattr(Closing, "seen", [])
    monkeypatch.setattr(Closing, "while_asked", lambda: None)
    yield Closing()


def source_of(service: Closing) -> DynamicKafkaSource[str]:
    builder = DynamicKafkaSource.builder().set_stream_ids({"s"}).set_kafka_metadata_service(service)
    return builder.set_value_only_deserializer(SimpleStringSchema()).build()


def test_each_reader_of_a_source_closes_its_own_service(service: Closing) -> None:
    source = source_of(service)
    for number in (1, 2):
        source.create_reader(ReaderContext(0, 1)).close()
        assert Closing.seen == ["closed"] * number
    assert not service.is_closed


def test_a_service_that_is_being_asked_closes_behind_its_answer(
    service: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = ClusterLookUp(source_of(service).dynamic_settings)
    monkeypatch.setattr(Closing, "while_asked", look_up.close)
    assert isinstance(look_up("east"), KafkaSourceSettings)
    assert Closing.seen == ["asked", "closed"]
    assert look_up("east") == "the reader has ended"
    look_up.close()
    assert Closing.seen == ["asked", "closed"]
