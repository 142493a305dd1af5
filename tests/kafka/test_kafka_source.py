"""A Kafka source against a real broker, reader by reader: offsets, ends, partitions that come and go, positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cluster.embedded.waiting import wait_until
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.credentials import PASSWORD, USER
from tests.unit.datastream.connectors.harness import SourceHarness, as_stored
from yarrow.common.serialization import SimpleStringSchema
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.protocol.failure import failure_cause
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.kafka import (
    ConsumerRecord,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaOffsetOutOfRangeError,
    KafkaRecordError,
    KafkaTopicMissingError,
    KafkaTopicRemadeError,
    KafkaUnreachableError,
)
from yarrow.datastream.formats.json import JsonColumnsDeserializationSchema

pytestmark = pytest.mark.kafka

Offsets = KafkaOffsetsInitializer
NewTopic = Callable[..., str]


class Topics:
    """Topics of one test, and records in them."""

    def __init__(self, kafka: KafkaCluster, new_topic: NewTopic) -> None:
        self.kafka = kafka
        self._new_topic = new_topic
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def new(self, partitions: int = 1) -> str:
        """A topic that keeps its records, however old their timestamps are."""
        return self._new_topic(partitions, {"retention.ms": "-1"})

    def write(self, topic: str, *values: str | None, partition: int = 0, **more: Any) -> None:
        """Writes records into one partition, and waits until the broker has them."""
        for value in values:
            encoded = None if value is None else value.encode()
            self._producer.produce(topic, encoded, partition=partition, **more)
        assert self._producer.flush(60) == 0

    def transaction(self, topic: str, *values: str, commit: bool = True) -> None:
        """Writes records in one transaction."""
        name = f"{topic}-{values[0]}"
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "transactional.id": name})
        producer.init_transactions(60)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)

    def source(self, *topics: str, **properties: Any) -> KafkaSourceBuilder:
        """A builder of a source of strings."""
        named = {key.replace("_", "."): value for key, value in properties.items()}
        builder = KafkaSource.builder().set_bootstrap_servers(self.kafka.bootstrap_servers)
        builder.set_value_only_deserializer(SimpleStringSchema()).set_properties(named)
        return builder.set_topics(*topics) if topics else builder

    def bounded(self, *topics: str, **properties: Any) -> KafkaSourceBuilder:
        """A builder of a source that ends at the present end of its topics."""
        return self.source(*topics, **properties).set_bounded(Offsets.latest())


@pytest.fixture
def topics(kafka: KafkaCluster, new_topic: NewTopic) -> Topics:
    return Topics(kafka, new_topic)


@contextmanager
def harness(builder: KafkaSourceBuilder, parallelism: int = 1, state: Any = None) -> Iterator[SourceHarness]:
    running = SourceHarness(builder.build(), parallelism, state)
    try:
        yield running
    finally:
        running.close()


def rows_of(builder: KafkaSourceBuilder, parallelism: int = 1) -> list[Any]:
    """All rows of a bounded source."""
    with harness(builder, parallelism) as running:
        return running.run(max_rows=256)


def poll_until(running: SourceHarness, condition: Callable[[], bool]) -> None:
    """Polls all readers until a condition holds."""

    def holds() -> bool:
        for reader in range(running.parallelism):
            running.poll(reader, 256)
        return condition()

    wait_until(holds, lambda: str(running.rows))


def numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


# ---------------------------------------------------------------------- where it begins and ends


def test_partitions_are_read_by_several_readers(topics: Topics) -> None:
    topic = topics.new(4)
    for partition in range(4):
        topics.write(topic, *(f"{partition}-{number}" for number in range(50)), partition=partition)
    found = rows_of(topics.bounded(topic), parallelism=3)
    assert sorted(found) == sorted(f"{p}-{n}" for p in range(4) for n in range(50))
    of_one = [row for row in found if row.startswith("2-")]
    assert of_one == [f"2-{number}" for number in range(50)], "a partition keeps its order"


def test_where_reading_begins(topics: Topics) -> None:
    topic = topics.new()
    for number in range(6):
        topics.write(topic, str(number), timestamp=1000 * (number + 1))
    place = KafkaTopicPartition(topic, 0)

    def begun(initializer: KafkaOffsetsInitializer, **properties: Any) -> list[Any]:
        return rows_of(topics.bounded(topic, **properties).set_starting_offsets(initializer))

    assert begun(Offsets.earliest()) == numbers(0, 6)
    assert begun(Offsets.latest()) == []
    assert begun(Offsets.timestamp(3000)) == numbers(2, 6)
    assert begun(Offsets.timestamp(3001)) == numbers(3, 6)
    assert begun(Offsets.timestamp(99_000)) == [], "no record of that time: the end"
    assert begun(Offsets.offsets({place: 4})) == numbers(4, 6)
    assert begun(Offsets.offsets({}, KafkaOffsetResetStrategy.LATEST)) == []
    reset = KafkaOffsetResetStrategy.EARLIEST
    assert begun(Offsets.committed_offsets(reset), group_id=f"none-{topic}") == numbers(0, 6)
    with pytest.raises(KafkaConnectorError, match=f"the group has committed no offset for {topic}-0"):
        begun(Offsets.committed_offsets(), group_id=f"none-{topic}")


def test_where_reading_ends(topics: Topics) -> None:
    topic = topics.new()
    for number in range(6):
        topics.write(topic, str(number), timestamp=1000 * (number + 1))
    place = KafkaTopicPartition(topic, 0)
    assert rows_of(topics.source(topic).set_bounded(Offsets.offsets({place: 4}))) == numbers(0, 4)
    assert rows_of(topics.source(topic).set_bounded(Offsets.timestamp(2500))) == numbers(0, 2)
    assert rows_of(topics.source(topic).set_bounded(Offsets.earliest())) == []
    never = topics.source(topic, partition_discovery_interval_ms=-1)
    assert rows_of(never.set_unbounded(Offsets.offsets({place: 3}))) == numbers(0, 3)


def test_an_empty_topic_ends_at_once(topics: Topics) -> None:
    assert rows_of(topics.bounded(topics.new(3)), parallelism=2) == []


def test_ends_among_the_markers_of_transactions_are_found(topics: Topics) -> None:
    topic = topics.new()
    topics.transaction(topic, "a", "b")
    topics.transaction(topic, "lost", commit=False)
    topics.transaction(topic, "c")
    assert rows_of(topics.bounded(topic)) == ["a", "b", "c"], "the last offset is that of a marker"
    place = KafkaTopicPartition(topic, 0)
    assert rows_of(topics.source(topic).set_bounded(Offsets.offsets({place: 4}))) == ["a", "b"]
    everything = topics.bounded(topic, isolation_level="read_uncommitted")
    assert rows_of(everything) == ["a", "b", "lost", "c"]


def test_topics_by_pattern_and_single_partitions(topics: Topics) -> None:
    first, second = topics.new(2), topics.new(2)
    topics.write(first, "a", partition=1)
    topics.write(second, "b", partition=0)
    common = first.rpartition("-")[0]
    assert sorted(rows_of(topics.bounded().set_topic_pattern(f"{common}-[01]"))) == ["a", "b"]
    chosen = [KafkaTopicPartition(first, 1), KafkaTopicPartition(second, 1)]
    assert rows_of(topics.bounded().set_partitions(chosen)) == ["a"]


# ---------------------------------------------------------------------- rows


class Whole(KafkaRecordDeserializationSchema[tuple[Any, ...]]):
    def deserialize(self, record: ConsumerRecord) -> Iterator[tuple[Any, ...]]:
        yield tuple(record)

    def get_produced_type(self) -> TypeInformation:
        return Types.PICKLED_BYTE_ARRAY()


class UpToStop(SimpleStringSchema):
    def is_end_of_stream(self, next_element: str) -> bool:
        return next_element == "stop"


def test_a_record_deserializer_sees_everything(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, "v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=77)
    topics.write(topic, None, key=b"k", timestamp=78)
    assert rows_of(topics.bounded(topic).set_deserializer(Whole())) == [
        (topic, 0, 0, 77, b"k", b"v", (("h", b"1"), ("h", None))),
        (topic, 0, 1, 78, b"k", None, ()),
    ]


def test_columns_are_made_of_whole_chunks(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, *(f'{{"n": {number}}}' for number in range(300)), None, '{"n": 300}')
    schema = JsonColumnsDeserializationSchema(Types.ROW_NAMED(["n"], [Types.INT()]))
    builder = topics.bounded(topic).set_value_only_deserializer(schema)
    assert builder.build().produced_schema() == schema.produced_schema()
    assert rows_of(builder) == [{"n": number} for number in range(301)]


def test_tombstones_give_no_row_to_values_alone(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, "a", None, "b", None)
    with harness(topics.bounded(topic)) as running:
        assert running.run() == ["a", "b"]
        assert running.num_errors == 0


def test_rows_have_the_timestamps_of_records(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, "a", timestamp=5)
    topics.write(topic, "b", timestamp=9)
    found: list[SourceRecords] = []
    with harness(topics.bounded(topic)) as running:

        def has_both() -> bool:
            polled = running.poll()
            if isinstance(polled, SourceRecords) and polled.rows:
                found.append(polled)
            return len(running.rows) == 2

        wait_until(has_both)
    stamps = [stamp for records in found for stamp in records.timestamps or ()]
    assert (stamps, found[0].split_id) == ([5, 9], f"{topic}-0")


def test_the_end_of_a_stream_is_honoured(topics: Topics) -> None:
    topic = topics.new(2)
    topics.write(topic, "a", "stop", "b", partition=0)
    topics.write(topic, "c", "stop", partition=1)
    builder = topics.source(topic, partition_discovery_interval_ms=-1)
    assert sorted(rows_of(builder.set_value_only_deserializer(UpToStop()))) == ["a", "c"]


def test_a_record_that_cannot_be_read_is_named(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, "a", "é")
    schema = SimpleStringSchema("ascii")
    with pytest.raises(
        KafkaRecordError, match=f"offset 1 of {topic}-0 cannot be deserialized by SimpleString"
    ):
        rows_of(topics.bounded(topic).set_value_only_deserializer(schema))


# ---------------------------------------------------------------------- positions


def test_positions_lie_behind_the_returned_rows(topics: Topics) -> None:
    topic = topics.new(2)
    for partition in range(2):
        topics.write(topic, *numbers(100 * partition, 100 * partition + 90), partition=partition)
    builder = topics.bounded(topic)
    state, rows = None, list[Any]()
    for _ in range(200):
        with harness(builder, 1, state) as running:
            poll_until_rows(running)
            rows += running.rows
            state = as_stored(running.snapshot())
            if not state[1][0]:
                break
    assert sorted(rows, key=int) == numbers(0, 90) + numbers(100, 190)


def poll_until_rows(running: SourceHarness) -> None:
    """Polls few rows at a time until one poll has some, or the end."""

    def has_rows() -> bool:
        return running.poll(0, 7) is None or bool(running.rows)

    wait_until(has_rows)


def test_offsets_are_committed_with_their_checkpoint(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, *numbers(0, 10))
    group = f"group-{topic}"
    place = TopicPartition(topic, 0)
    looking = Consumer({"bootstrap.servers": topics.kafka.bootstrap_servers, "group.id": group})

    def committed() -> int:
        return looking.committed([place], 30)[0].offset

    with harness(topics.source(topic, group_id=group)) as running:
        poll_until(running, lambda: len(running.rows) == 10)
        reader = running.readers[0]
        reader.snapshot_state(1)
        topics.write(topic, *numbers(10, 15))
        poll_until(running, lambda: len(running.rows) == 15)
        assert committed() < 0, "no checkpoint is complete"
        reader.notify_checkpoint_complete(1)
        wait_until(lambda: committed() == 10)
    looking.close()
    after = topics.bounded(topic, group_id=group).set_starting_offsets(Offsets.committed_offsets())
    assert rows_of(after) == numbers(10, 15)


def test_pending_records_count_up_to_the_end(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, *numbers(0, 40))
    with harness(topics.source(topic)) as running:
        poll_until(running, lambda: bool(running.rows))
        reader = running.readers[0]
        wait_until(lambda: reader.pending_records() == 40 - len(running.rows))


def test_paused_partitions_give_no_rows(topics: Topics) -> None:
    topic = topics.new(2)
    topics.write(topic, "a0", partition=0)
    topics.write(topic, "b0", partition=1)
    with harness(topics.source(topic)) as running:
        poll_until(running, lambda: sorted(running.rows) == ["a0", "b0"])
        running.readers[0].pause_or_resume_splits([f"{topic}-0"], [])
        topics.write(topic, "a1", partition=0)
        topics.write(topic, "b1", partition=1)
        poll_until(running, lambda: "b1" in running.rows)
        topics.write(topic, "b2", partition=1)
        poll_until(running, lambda: "b2" in running.rows)
        assert "a1" not in running.rows
        running.readers[0].pause_or_resume_splits([], [f"{topic}-0"])
        poll_until(running, lambda: "a1" in running.rows)
        assert sorted(running.rows) == ["a0", "a1", "b0", "b1", "b2"]


def test_history_leaves_the_rest_to_the_stream(topics: Topics) -> None:
    topic = topics.new(2)
    topics.write(topic, "a", partition=0)
    topics.transaction(topic, "b")
    stream = topics.source(topic).build()
    history = stream.history()
    assert history is not None
    running = SourceHarness(history)
    assert sorted(running.run()) == ["a", "b"]
    state = as_stored(running.snapshot())
    running.close()
    topics.write(topic, "c", partition=0)
    topics.write(topic, "d", partition=1)
    going_on = SourceHarness(stream, 1, state)
    poll_until(going_on, lambda: sorted(going_on.rows) == ["c", "d"])
    going_on.close()


# ---------------------------------------------------------------------- partitions that come and go


def discover_until(running: SourceHarness, condition: Callable[[], bool]) -> None:
    """Runs the enumerator's timers, as if their time had come, until a condition holds."""

    def holds() -> bool:
        later, running.later = running.later, []
        for _, action in later:
            action()
        return condition()

    wait_until(holds)


def test_new_partitions_are_read_from_their_beginning(topics: Topics, new_topic: NewTopic) -> None:
    topic = topics.new()
    builder = topics.source(topic).set_starting_offsets(Offsets.latest())
    topics.write(topic, "before")
    with harness(builder, 2) as running:
        assert running.later[0][0] == 300.0
        topics.kafka.add_partitions(topic, 3)
        # Another producer: the first one does not know the new partitions yet.
        Topics(topics.kafka, new_topic).write(topic, "new", partition=2)
        discover_until(running, lambda: len(running.assigned) == 3)
        poll_until(running, lambda: running.rows == ["new"])


def test_a_removed_topic_is_named_and_released(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    kept, removed = topics.new(), topics.new()
    topics.write(kept, "a")
    topics.write(removed, "b")
    with harness(topics.source(kept, removed)) as running:
        poll_until(running, lambda: sorted(running.rows) == ["a", "b"])
        topics.kafka.delete_topic(removed)
        discover_until(running, lambda: f"{removed}-0 does not exist any more" in caplog.text)
        ended: list[str] = []

        def has_told() -> bool:
            polled = running.poll()
            if isinstance(polled, SourceRecords):
                ended.extend(polled.finished_before)
            return bool(ended)

        wait_until(has_told)
        assert ended == [f"{removed}-0"]
        topics.write(kept, "c")
        poll_until(running, lambda: "c" in running.rows)
        assert [split.split_id for split in running.snapshot()[1][0]] == [f"{kept}-0"]
        topics.kafka.create_topic(removed)


def test_a_topic_that_was_made_again_is_told_by_both_ids(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, "a", "b")
    builder = topics.source(topic)
    with harness(builder) as running:
        poll_until(running, lambda: running.rows == ["a", "b"])
        state = running.snapshot()
    topics.kafka.delete_topic(topic)
    topics.kafka.create_topic(topic)
    topics.write(topic, "c", "d", "e")
    with pytest.raises(KafkaTopicRemadeError, match=f"topic {topic} was deleted and made again") as failed:
        harness(builder, state=state).__enter__()
    assert failure_cause(failed.value).is_final
    assert rows_of(topics.bounded(topic)) == ["c", "d", "e"]


def test_a_shrunk_subscription_is_named_and_released(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = topics.new(), topics.new()
    with harness(topics.source(first, second)) as running:
        state = as_stored(running.snapshot())
    topics.write(first, "a")
    topics.write(second, "b")
    with harness(topics.source(first), 1, state) as running:
        poll_until(running, lambda: running.rows == ["a"])
        assert f"{second}-0 is not among the topics {first} any more" in caplog.text
        assert [split.split_id for split in running.snapshot()[1][0]] == [f"{first}-0"]


# ---------------------------------------------------------------------- what goes wrong


def remove_records(kafka: KafkaCluster, topic: str, before: int) -> None:
    """Does what retention does."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    place = TopicPartition(topic, 0, before)
    admin.delete_records([place])[place].result(60)


def test_an_offset_that_retention_has_removed_fails_with_both(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, *numbers(0, 10))
    remove_records(topics.kafka, topic, 6)
    begin = Offsets.offsets({KafkaTopicPartition(topic, 0): 2})
    with pytest.raises(
        KafkaOffsetOutOfRangeError, match=f"{topic}-0 has no offset 2,.* it has 6 to 10"
    ) as failed:
        rows_of(topics.bounded(topic).set_starting_offsets(begin))
    assert failure_cause(failed.value).is_final
    asked = topics.bounded(topic, auto_offset_reset="earliest").set_starting_offsets(begin)
    assert rows_of(asked) == numbers(6, 10)
    assert rows_of(topics.bounded(topic)) == numbers(6, 10), "the beginning moves with retention"


@pytest.mark.parametrize(
    ("properties", "error", "expected"),
    [
        ({}, KafkaTopicMissingError, "topic no-such-topic does not exist"),
        ({"security.protocol": "SSL"}, KafkaUnreachableError, "does not speak TLS at this port"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "me",
                "sasl.password": "pa55word",
            },
            KafkaUnreachableError,
            "user and password",
        ),
    ],
)
def test_what_is_known_at_the_start_fails_there(
    topics: Topics, properties: Mapping[str, str], error: type[Exception], expected: str
) -> None:
    builder = topics.source("no-such-topic", default_api_timeout_ms=2000).set_properties(properties)
    with pytest.raises(error) as failed:
        rows_of(builder)
    assert expected in str(failed.value) and "pa55word" not in str(failed.value)


def logged_in(topics: Topics, topic: str, password: str) -> KafkaSourceBuilder:
    """A builder of a source that logs in, as programs for Java's clients say it."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
        "default.api.timeout.ms": "5000",
    }
    builder = topics.bounded(topic).set_properties(properties)
    return builder.set_bootstrap_servers(topics.kafka.secured_servers)


def test_a_reader_logs_in_and_a_wrong_password_is_told(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, "a")
    assert rows_of(logged_in(topics, topic, PASSWORD)) == ["a"]
    with pytest.raises(KafkaUnreachableError) as failed:
        rows_of(logged_in(topics, topic, "not-the-password"))
    assert "Authentication failed: Invalid username or password" in str(failed.value)
    assert "not-the-password" not in str(failed.value)


def test_a_pattern_without_topics_fails_where_the_source_is_bounded(topics: Topics) -> None:
    builder = topics.bounded().set_topic_pattern("no-such-topic.*")
    with pytest.raises(KafkaTopicMissingError, match="none of the topics that match 'no-such-topic"):
        rows_of(builder)


def test_an_unreachable_broker_is_told_and_fails_behind_its_deadline(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.new()
    topics.write(topic, "a")
    with harness(topics.source(topic, broker_unreachable_timeout_ms=4000)) as running:
        poll_until(running, lambda: running.rows == ["a"])
        assert list(running.readers[0].unreachable_splits()) == []
        topics.kafka.kill()
        poll_until(running, lambda: list(running.readers[0].unreachable_splits()) == [f"{topic}-0"])
        expected = f"{topic}-0 of Kafka at {topics.kafka.bootstrap_servers} could not be reached for 4 s"
        with pytest.raises(KafkaUnreachableError) as failed:
            poll_until(running, lambda: False)
        assert expected in str(failed.value)
        assert f"{topic}-0 of {topics.kafka.bootstrap_servers} cannot be reached" in caplog.text
