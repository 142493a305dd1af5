"""What the client gets of a record when its queue is full and it is asked again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.writing import record_producer
from yarrow.datastream.connectors.kafka.writing.producer_metrics import ProducerMetrics
from yarrow.datastream.connectors.kafka.writing.record_producer import RecordProducer
from yarrow.datastream.connectors.kafka.writing.record_serialization import ProducerRecord
from yarrow.datastream.connectors.kafka.writing.sink_settings import KafkaSinkSettings


class FullAtFirst:
    """A client whose queue has no room for the first tries."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.headers: list[Any] = []

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None)})

    def produce(self, *fields: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise BufferError("the queue is full")
        self.headers.append(fields[7])

    def poll(self, seconds: float) -> int:
        return 0


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_headers_of_an_iterator_are_there_at_each_try(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    client = FullAtFirst(refusals)
    monkeypatch.setattr(record_producer, "make_producer", lambda *_, **__: client)
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("t")
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    properties = ClientProperties({"bootstrap.servers": "localhost:1"})
    producer = RecordProducer(KafkaSinkSettings(serializer, properties), ProducerMetrics())
    pairs = [("a", b"1"), ("b", None)]
    given: list[Any] = [iter(pairs), (pair for pair in pairs), pairs, tuple(pairs), (), None, iter(())]
    records = [ProducerRecord("t", b"v", headers=headers) for headers in given]
    producer.write(records, None, lambda record, at: record)
    assert [headers or [] for headers in client.headers] == [pairs] * 4 + [[]] * 3
