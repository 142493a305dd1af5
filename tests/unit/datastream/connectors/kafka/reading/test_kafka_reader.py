"""A reader of partitions without a broker: what the fetch thread has handed over becomes rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.unit.datastream.connectors.harness import ReaderContext
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.connectors.base import NothingAvailable, SourceRecords
from yarrow.datastream.connectors.kafka import KafkaSource
from yarrow.datastream.connectors.kafka.cluster.client import TopicPartition
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.fetched_items import FetchedMessages
from yarrow.datastream.connectors.kafka.reading.kafka_reader import KafkaSourceReader
from yarrow.datastream.connectors.kafka.reading.partition_events import SplitsRemoved
from yarrow.datastream.connectors.kafka.reading.partition_split import KafkaPartitionSplit
from yarrow.datastream.connectors.kafka.reading.record_deserialization import (
    ConsumerRecord,
    KafkaRecordDeserializationSchema,
)

CHUNK = 100


class Nothing(KafkaRecordDeserializationSchema[int]):
    """No row of any record."""

    def deserialize(self, record: ConsumerRecord) -> Iterable[int]:
        return ()

    def get_produced_type(self) -> TypeInformation:
        return Types.LONG()


def chunk(reader: KafkaSourceReader, first: int) -> FetchedMessages:
    """A chunk of records from the offset `first` on, as the fetch thread hands it over."""
    (opened,) = reader._open.values()
    offsets = range(first, first + CHUNK)
    records = [ConsumerRecord("t", 0, offset, 5, None, b"x", ()) for offset in offsets]
    return FetchedMessages(opened.assignment, records, [5] * CHUNK, offsets, CHUNK)


class Client:
    """Where Kafka's client stands in each partition. It refuses a second assignment of one."""

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        for place in places:
            assert place.topic not in self.offsets, "the client has the partition already"
            self.offsets[place.topic] = place.offset

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for place in places:
            del self.offsets[place.topic]


def made_reader() -> KafkaSourceReader:
    builder = KafkaSource.builder().set_bootstrap_servers("localhost:1").set_topics("t", "u")
    return KafkaSourceReader(ReaderContext(0, 1), builder.set_deserializer(Nothing()).build().settings)


def commanded(reader: KafkaSourceReader) -> Client:
    """A client to which the fetch threads have given the reader's commands so far."""
    client: Any = Client()
    for fetcher in reader._fetchers.by_cluster.values():
        assert fetcher._obey(client)
    found: Client = client
    return found


def test_a_split_of_an_open_partition_takes_its_place() -> None:
    reader = made_reader()
    reader.add_splits([KafkaPartitionSplit("t", 0, 500), KafkaPartitionSplit("u", 0, 7)])
    stale = reader._open["t-0"].assignment
    reader.add_splits([KafkaPartitionSplit("t", 0, 800)])
    assert commanded(reader).offsets == {"t": 800, "u": 7}
    reader._fetchers.items.put(FetchedMessages(stale, [None], [5], range(500, 501), 1))
    assert isinstance(reader.poll(1000), NothingAvailable)
    assert [split.position for split in reader.snapshot_state(1)] == [800, 7]


def test_the_former_end_of_a_split_that_is_found_again_is_not_told() -> None:
    reader = made_reader()
    reader.add_splits([KafkaPartitionSplit("t", 0, 500), KafkaPartitionSplit("u", 0, 7)])
    reader.handle_source_event(SplitsRemoved((KafkaTopicPartition("t", 0), KafkaTopicPartition("u", 0))))
    reader.add_splits([KafkaPartitionSplit("t", 0, 800)])
    found = reader.poll(1000)
    assert isinstance(found, SourceRecords) and found.finished_before == ("u-0",)


def test_a_poll_returns_behind_each_chunk_also_if_no_record_gives_a_row() -> None:
    builder = KafkaSource.builder().set_bootstrap_servers("localhost:1").set_topics("t")
    source = builder.set_deserializer(Nothing()).build()
    reader = KafkaSourceReader(ReaderContext(0, 1), source.settings)
    reader.add_splits([KafkaPartitionSplit("t", 0, 0)])
    for first in (0, CHUNK):
        reader._fetchers.items.put(chunk(reader, first))
    for behind in (CHUNK, 2 * CHUNK):
        found = reader.poll(1000)
        assert isinstance(found, SourceRecords) and list(found.rows) == []
        assert [split.position for split in reader.snapshot_state(1)] == [behind]
    assert isinstance(reader.poll(1000), NothingAvailable)
