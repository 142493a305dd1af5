"""Building a DynamicKafkaSource: what is missing or wrong is refused at that line, and secrets stay hidden."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from yarrow.common.serialization import SimpleStringSchema
from yarrow.common.typeinfo import Types
from yarrow.datastream.connectors.base import Boundedness, Replay
from yarrow.datastream.connectors.dynamic_kafka import (
    ClusterMetadata,
    DynamicKafkaSource,
    DynamicKafkaSourceBuilder,
    KafkaStream,
    KafkaStreamSetSubscriber,
    SingleClusterTopicMetadataService,
    StreamPatternSubscriber,
)
from yarrow.datastream.connectors.dynamic_kafka.dynamic_settings import KafkaMetadataError
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer
from yarrow.datastream.connectors.kafka.reading.subscription import TopicList
from yarrow.runtime.common.errors import InvalidProgramError

ANYTHING: Any = 7
SERVERS = {"bootstrap.servers": "localhost:9092"}


def service(**properties: str) -> SingleClusterTopicMetadataService:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return SingleClusterTopicMetadataService("east", SERVERS | named)


def complete() -> DynamicKafkaSourceBuilder:
    builder = DynamicKafkaSource.builder().set_stream_ids({"orders"})
    builder.set_kafka_metadata_service(service())
    return builder.set_value_only_deserializer(SimpleStringSchema())


def test_a_source_is_described_by_its_settings() -> None:
    source = complete().build()
    assert source.produced_type() == Types.STRING()
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    assert source.replay is Replay.EXACT_POSITIONS
    assert source.dynamic_settings.discovery_seconds is None, "off by default, as in Flink"
    looking = complete().set_property("stream-metadata-discovery-interval-ms", 5000).build()
    assert looking.dynamic_settings.discovery_seconds == 5.0
    bounded = complete().set_bounded(KafkaOffsetsInitializer.latest()).build()
    assert bounded.boundedness is Boundedness.BOUNDED and bounded.history() is bounded
    history = looking.history()
    assert history is not None and history.boundedness is Boundedness.BOUNDED
    resetting = complete().set_property("auto.offset.reset", "earliest").build()
    assert resetting.replay is Replay.AT_LEAST_ONCE


def test_a_cluster_has_the_properties_of_source_and_service() -> None:
    builder = complete().set_kafka_metadata_service(service(client_id_prefix="p"))
    builder.set_group_id("g").set_property("fetch.max.bytes", 5)
    (settings,) = builder.build().dynamic_settings.clusters().settings.values()
    assert settings.cluster == "east" and settings.subscription == TopicList(("orders",))
    assert settings.properties["bootstrap.servers"] == "localhost:9092" and settings.group_id == "g"
    assert settings.consumer["fetch.max.bytes"] == "5" and settings.consumer["client.id"] == "p-east"


def test_secrets_are_in_no_text() -> None:
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "me"}
    source = complete().set_kafka_metadata_service(service(**login, sasl_password="pa55")).build()
    restored = pickle.loads(pickle.dumps(source))
    (settings,) = restored.dynamic_settings.clusters().settings.values()
    assert settings.consumer["sasl.password"] == "pa55"
    stream = KafkaStream("s", {"c": ClusterMetadata({"t"}, {"sasl.password": "pa55"})})
    for text in map(repr, (source, source.dynamic_settings, restored.dynamic_settings, settings, stream)):
        assert "pa55" not in text
    assert "streams orders" in repr(source)


def test_subscribers_choose_streams() -> None:
    class Three(SingleClusterTopicMetadataService):
        def get_all_streams(self) -> list[KafkaStream]:
            return list(self.describe_streams(["orders", "orders-old", "users"]).values())

    known = Three("east", SERVERS)
    chosen = StreamPatternSubscriber("orders.*").get_subscribed_streams(known)
    assert [stream.stream_id for stream in chosen] == ["orders", "orders-old"]
    named = KafkaStreamSetSubscriber({"users", "orders"})
    assert [stream.stream_id for stream in named.get_subscribed_streams(known)] == ["orders", "users"]
    assert named.missing(chosen) == ["users"]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: DynamicKafkaSource.builder().build(), "set what is read by set_stream_ids"),
        (
            lambda: DynamicKafkaSource.builder().set_stream_ids({"a"}).build(),
            "set where streams are looked up by set_kafka_metadata_service",
        ),
        (lambda: complete().set_stream_ids({"b"}), "the streams orders are set already"),
        (lambda: DynamicKafkaSource.builder().set_stream_ids(set()), "a set of ids of streams is expected"),
        (
            lambda: DynamicKafkaSource.builder().set_stream_ids("orders"),
            "a set of ids of streams is expected",
        ),
        (lambda: DynamicKafkaSource.builder().set_stream_pattern("("), "a regular expression is expected"),
        (lambda: complete().set_kafka_metadata_service(ANYTHING), "takes a KafkaMetadataService, not 7"),
        (
            lambda: DynamicKafkaSource.builder().set_kafka_stream_subscriber(ANYTHING),
            "takes a KafkaStreamSubscriber, not 7",
        ),
        (lambda: complete().set_properties(SERVERS).build(), "bootstrap.servers belongs to a cluster"),
        (lambda: complete().set_property("fetch.maximum", 1).build(), "property fetch.maximum is not known"),
        (
            lambda: complete().set_property("default.api.timeout.ms", 0).build(),
            "DynamicKafkaSource: property default.api.timeout.ms must be milliseconds of 1 or more",
        ),
        (
            lambda: complete().set_property("stream-metadata-discovery-interval-ms", "often").build(),
            "stream-metadata-discovery-interval-ms must be milliseconds",
        ),
        (
            lambda: complete().set_property("stream-metadata-discovery-failure-threshold", 0).build(),
            "must be a number of 1 or more, not '0'",
        ),
        (lambda: SingleClusterTopicMetadataService("", SERVERS), "kafka_cluster_id must be a text"),
        (lambda: SingleClusterTopicMetadataService("east", {}), "set bootstrap.servers"),
        (lambda: ClusterMetadata("orders", SERVERS), "topics must be a collection of names, not 'orders'"),
        (lambda: KafkaStream("", {}), "stream_id must be a text, not ''"),
    ],
)
def test_what_is_wrong_is_told_at_that_line(build: Callable[[], Any], expected: str) -> None:
    with pytest.raises(InvalidProgramError) as refused:
        build()
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"fetch_maximum": "1"}, "cluster east: property fetch.maximum is not known"),
        (
            {"auto_offset_reset": "earliest"},
            "cluster east has its own auto.offset.reset. Set it in the program",
        ),
    ],
)
def test_what_a_service_tells_is_checked(told: dict[str, str], expected: str) -> None:
    class Telling(SingleClusterTopicMetadataService):
        def describe_streams(self, stream_ids: Any) -> Any:
            named = {key.replace("_", "."): value for key, value in told.items()}
            return {"orders": KafkaStream("orders", {"east": ClusterMetadata({"t"}, SERVERS | named)})}

    source = complete().set_kafka_metadata_service(Telling("east", SERVERS)).build()
    with pytest.raises(KafkaMetadataError, match=expected):
        source.dynamic_settings.clusters()
