"""Building a KafkaSource: what is missing or wrong is refused at that line, and secrets stay hidden."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from yarrow.common.configuration import Configuration
from yarrow.common.serialization import DeserializationSchema, KeepsSchema, SimpleStringSchema
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.values.kept_schema import KeptSchema
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.base import Boundedness, Replay
from yarrow.datastream.connectors.kafka import (
    FlinkKafkaConsumer,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from yarrow.datastream.connectors.kafka.reading.record_deserialization import ConsumerRecord
from yarrow.runtime.common.errors import InvalidProgramError

Offsets = KafkaOffsetsInitializer
ANYTHING: Any = "earliest"


def complete() -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("t")
    return builder.set_value_only_deserializer(SimpleStringSchema())


def test_the_schema_declares_the_type() -> None:
    source = complete().build()
    assert source.produced_type() == Types.STRING()
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED


class ByVersion(SimpleStringSchema, KeepsSchema):
    """Texts by the latest version of a subject."""

    def __init__(self, kept: KeptSchema) -> None:
        super().__init__()
        self.kept = kept

    def kept_schema(self) -> KeptSchema:
        return self.kept

    def with_kept_schema(self, kept: KeptSchema) -> ByVersion:
        return ByVersion(kept)


class KeyAndValue(KafkaRecordDeserializationSchema[Any]):
    """Pairs of key and value."""

    def __init__(self, key: DeserializationSchema[str], value: DeserializationSchema[str]) -> None:
        self.key, self.value = key, value

    def deserialize(self, record: ConsumerRecord) -> list[Any]:
        return [(self.key.deserialize(record.key or b""), self.value.deserialize(record.value or b""))]

    def get_produced_type(self) -> TypeInformation:
        return Types.TUPLE([self.key.get_produced_type(), self.value.get_produced_type()])

    def parts(self) -> dict[str, DeserializationSchema[str]]:
        return {"key": self.key, "value": self.value}

    def with_parts(self, parts: Mapping[str, Any]) -> KeyAndValue:
        return KeyAndValue(**parts)


def test_key_and_value_keep_each_their_own_schema() -> None:
    first, second, latest = (KeptSchema("orders", f"version {number}", str(number)) for number in (1, 2, 3))
    builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("t")
    source = builder.set_deserializer(KeyAndValue(ByVersion(latest), ByVersion(latest))).build()
    assert source.kept_schemas() == {"key": latest, "value": latest}
    restored = source.with_kept_schemas({"key": first, "value": second})
    assert restored.kept_schemas() == {"key": first, "value": second}
    assert restored.with_kept_schemas({"key": latest}).kept_schemas() == {"key": latest, "value": second}
    assert source.kept_schemas() == {"key": latest, "value": latest}
    # A part that asks for nothing keeps nothing.
    plain = builder.set_deserializer(KeyAndValue(SimpleStringSchema(), ByVersion(latest))).build()
    kept = plain.with_kept_schemas({"value": first})
    assert plain.kept_schemas() == {"value": latest} and kept.kept_schemas() == {"value": first}
    assert complete().build().kept_schemas() == {}


def test_bounded_and_unbounded_ends() -> None:
    bounded = complete().set_bounded(Offsets.latest()).build()
    assert bounded.boundedness is Boundedness.BOUNDED
    assert bounded.settings.discovery_seconds is None
    unbounded = complete().set_unbounded(Offsets.latest()).build()
    assert unbounded.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    assert unbounded.settings.discovery_seconds == 300.0


def test_history_is_bounded_and_leaves_the_rest_to_the_stream() -> None:
    history = complete().build().history()
    assert history is not None
    assert history.boundedness is Boundedness.BOUNDED and history.settings.goes_on
    assert complete().set_unbounded(Offsets.latest()).build().history() is None
    bounded = complete().set_bounded(Offsets.latest()).build()
    assert bounded.history() is bounded


def test_discovery_can_be_switched_off() -> None:
    source = complete().set_property("partition.discovery.interval.ms", -1).build()
    assert source.settings.discovery_seconds is None


def test_offsets_are_committed_where_there_is_a_group() -> None:
    assert not complete().build().settings.commits
    assert complete().set_group_id("g").build().settings.commits
    refused = complete().set_group_id("g").set_property("commit.offsets.on.checkpoint", False)
    assert not refused.build().settings.commits


def test_secrets_are_in_no_text() -> None:
    properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    source = complete().set_properties(properties | {"sasl.password": "pa55"}).build()
    restored = pickle.loads(pickle.dumps(source))
    assert restored.settings.consumer["sasl.password"] == "pa55"
    for text in (repr(source), repr(source.settings), repr(restored.settings)):
        assert "pa55" not in text and "me" in text


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: KafkaSource.builder().build(), "set what is read by set_topics"),
        (lambda: KafkaSource.builder().set_topics("t").build(), "set how records are read by set_value_only"),
        (lambda: complete().set_topics("u"), "the topics t are set already"),
        (lambda: complete().set_topic_pattern("u"), "the topics t are set already"),
        (lambda: KafkaSource.builder().set_topics(), "set_topics takes names of topics"),
        (
            lambda: KafkaSource.builder().set_topic_pattern("("),
            "set_topic_pattern takes a regular expression",
        ),
        (lambda: KafkaSource.builder().set_partitions([]), "set_partitions takes at least one"),
        (lambda: complete().set_value_only_deserializer(ANYTHING), "takes a DeserializationSchema"),
        (lambda: complete().set_starting_offsets(ANYTHING), "takes a KafkaOffsetsInitializer"),
        (lambda: complete().set_property("partition.discovery.interval.ms", "often").build(), "milliseconds"),
        (lambda: complete().set_property("default.api.timeout.ms", 0).build(), "milliseconds of 1 or more"),
        (lambda: complete().set_property("commit.offsets.on.checkpoint", "yes").build(), "true or false"),
        (
            lambda: complete().set_starting_offsets(Offsets.committed_offsets()).build(),
            "name it by set_group_id",
        ),
        (lambda: complete().set_property("ssl.ca.location", "x").build(), "security.protocol is PLAINTEXT"),
        (lambda: Offsets.timestamp(-1), "milliseconds since 1970 are expected"),
        (lambda: Offsets.offsets({KafkaTopicPartition("t", 0): -1}), "offsets of 0 or more"),
        (lambda: Offsets.committed_offsets(ANYTHING), "must be a KafkaOffsetResetStrategy"),
        (lambda: FlinkKafkaConsumer("t", SimpleStringSchema(), {}).source(), "set bootstrap.servers"),
    ],
)
def test_what_is_missing_or_wrong_is_refused(build: Callable[[], Any], expected: str) -> None:
    with pytest.raises(InvalidProgramError) as refused:
        build()
    assert expected in str(refused.value)


def test_a_reset_that_is_asked_for_claims_at_least_once() -> None:
    assert complete().build().replay is Replay.EXACT_POSITIONS
    assert complete().set_property("auto.offset.reset", "none").build().replay is Replay.EXACT_POSITIONS
    for reset in ("earliest", "latest"):
        assert complete().set_property("auto.offset.reset", reset).build().replay is Replay.AT_LEAST_ONCE


def test_the_thin_form_begins_at_the_offsets_of_its_group() -> None:
    properties = {"bootstrap.servers": "b:1", "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = FlinkKafkaConsumer(["a", "b"], SimpleStringSchema(), properties)
    settings = consumer.source().settings
    assert settings.starting == Offsets.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
    assert settings.discovery_seconds is None
    assert consumer.set_start_from_latest().source().settings.starting == Offsets.latest()
    assert consumer.set_start_from_timestamp(5).source().settings.starting == Offsets.timestamp(5)
    assert not consumer.set_commit_offsets_on_checkpoints(False).source().settings.commits
    assert consumer.set_start_from_group_offsets().source().settings.starting == settings.starting


def test_the_thin_form_is_a_source_of_all_subtasks() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"parallelism.default": "3"})
    )
    properties = {"bootstrap.servers": "b:1", "group.id": "g"}
    consumer = FlinkKafkaConsumer("t", SimpleStringSchema(), properties)
    stream = env.add_source(consumer, "words")
    assert stream.get_type() == Types.STRING()
    stream.print()
    (vertex,) = env.get_job_graph("words").vertices
    assert vertex.has_enumerator and vertex.parallelism == 3


def test_without_the_client_library_the_builder_names_the_command() -> None:
    program = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from yarrow.datastream.connectors.kafka import KafkaSource\n"
        "KafkaSource.builder()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "KafkaSource needs Kafka's client library. Run: pip install 'yarrow[kafka]'" in ended.stderr


def test_programs_and_the_master_load_no_client_library() -> None:
    program = (
        "import sys\n"
        "from yarrow.datastream.connectors.kafka import KafkaSource, KafkaOffsetsInitializer\n"
        "from yarrow.common import SimpleStringSchema, WatermarkStrategy\n"
        "from yarrow.datastream import StreamExecutionEnvironment\n"
        "source = KafkaSource.builder().set_bootstrap_servers('b:1').set_topics('t')"
        ".set_value_only_deserializer(SimpleStringSchema()).set_property('sasl.password', 'pa55')"
        ".set_property('security.protocol', 'SASL_SSL').set_property('sasl.mechanism', 'PLAIN')"
        ".set_property('sasl.username', 'me').build()\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_source(source, WatermarkStrategy.no_watermarks(), 'kafka').print()\n"
        "print(env.get_execution_plan())\n"
        "print('confluent_kafka' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.endswith("False\n") and "pa55" not in ended.stdout
