"""A reader of partitions without a broker: what the fetch thread has handed over becomes rows."""

from __future__ import annotations

from collections.abc import Iterable

from tests.unit.datastream.connectors.harness import ReaderContext
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.connectors.base import NothingAvailable, SourceRecords
from yarrow.datastream.connectors.kafka import KafkaSource
from yarrow.datastream.connectors.kafka.reading.fetched_items import FetchedMessages
from yarrow.datastream.connectors.kafka.reading.kafka_reader import KafkaSourceReader
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
