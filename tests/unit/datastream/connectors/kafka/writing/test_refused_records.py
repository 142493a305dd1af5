"""RefusingWriter: which row is refused, what leaves before it, and the limit that librdkafka has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import pytest
from confluent_kafka import KafkaException, Producer

from yarrow.common.serialization import SchemaUnavailableError, SerializationSchema, SimpleStringSchema
from yarrow.datastream.connectors.base import RefusedRowError, SinkWriter
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema, ProducerRecord
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.writing.refused_records import MadeRecords, RefusingWriter
from yarrow.datastream.connectors.kafka.writing.sink_settings import KafkaSinkSettings

LIMIT = 2000
PROPERTIES = {"bootstrap.servers": "localhost:1", "max.request.size": str(LIMIT)}


class Records(SinkWriter[Any]):
    """Keeps what it gets, as a writer of MadeRecords would send it."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self._encode = MadeRecords().encoder()

    def write(self, rows: Sequence[Any], timestamps: Sequence[int | None] | None) -> None:
        assert timestamps is None
        self.made += [self._encode(row, None) for row in rows]

    def flush(self, end_of_input: bool) -> None:
        """Nothing is kept back."""

    def own_metrics(self) -> Mapping[str, float]:
        return {"KafkaProducer.record-send-total": len(self.made)}


class AsItIs(KafkaRecordSerializationSchema[Any]):
    def serialize(self, element: Any, timestamp: int | None) -> ProducerRecord | None:
        if isinstance(element, Exception):
            raise element
        return element  # type: ignore[no-any-return]


def record(value: Any, key: Any = None) -> ProducerRecord:
    return ProducerRecord("t", value, key)


def writer_of(records: Records) -> RefusingWriter:
    return RefusingWriter(KafkaSinkSettings(AsItIs(), ClientProperties(PROPERTIES)), records)


def test_rows_before_a_refused_one_are_written_and_it_is_told() -> None:
    records = Records()
    good = [ProducerRecord("t", b"%d" % number) for number in range(3)]
    with pytest.raises(RefusedRowError) as raised:
        writer_of(records).write([good[0], None, good[1], ValueError("bad"), good[2]], None)
    assert raised.value.index == 3 and str(raised.value.cause) == "bad"
    assert records.made == good[:2]


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (record(5), "the value of the record is int instead of bytes"),
        (record(b"", ["key"]), "the key of the record is list instead of bytes"),
        (ProducerRecord("t", b"", headers=5), "its headers are 5 instead of pairs"),  # type: ignore[arg-type]
        (ProducerRecord("t", b"", headers=[None]), "its headers are .None. instead of pairs"),  # type: ignore[list-item]
        (ProducerRecord("t", b"", headers=iter([None])), "its headers are .None. instead of pairs"),  # type: ignore[arg-type]
        (ProducerRecord("t", b"", timestamp=0), "the timestamp of the record is 0 ms"),
        (
            ProducerRecord("t", b"x" * LIMIT),
            "has 2036 bytes .* and max.request.size is 2000",
        ),
    ],
)
def test_records_that_the_client_would_refuse(refused: Any, words: str) -> None:
    with pytest.raises(RefusedRowError, match=words):
        writer_of(Records()).write([refused], None)


@pytest.mark.parametrize(
    "record",
    [
        ProducerRecord("t", b"v", headers=None),  # type: ignore[arg-type]
        ProducerRecord("t", b"v", headers={"a": b"b"}.items()),
        ProducerRecord("t", b"v", partition=numpy.int64(1), timestamp=numpy.int64(2)),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_records_that_the_client_takes(record: ProducerRecord) -> None:
    records = Records()
    writer_of(records).write([record], None)
    assert records.made == [record]


def test_headers_of_an_iterator_are_those_of_a_list() -> None:
    pairs = [("a", b"b"), ("c", None)]
    records = Records()
    writer_of(records).write([ProducerRecord("t", b"v", headers=iter(pairs))], None)
    assert records.made == [ProducerRecord("t", b"v", headers=pairs)]


def test_metrics_are_those_of_the_writer_that_sends() -> None:
    writer = writer_of(Records())
    writer.write([record(b"good"), record(b"better")], None)
    assert writer.own_metrics() == {"KafkaProducer.record-send-total": 2}


def test_a_registry_that_is_gone_is_no_bad_row() -> None:
    with pytest.raises(SchemaUnavailableError):
        writer_of(Records()).write([SchemaUnavailableError("gone")], None)


def client_takes(client: Producer, record: ProducerRecord) -> bool:
    try:
        client.produce(record.topic, record.value, record.key, headers=list(record.headers) or None)
    except KafkaException as error:
        assert error.args[0].name() == "MSG_SIZE_TOO_LARGE"
        return False
    return True


def we_take(record: ProducerRecord) -> bool:
    try:
        writer_of(Records()).write([record], None)
    except RefusedRowError:
        return False
    return True


@pytest.mark.parametrize("headers", [(), (("a", b"12"), ("bcd", None)), (("n" * 160, b"v" * 300),)])
def test_the_limit_is_that_of_the_client(headers: Any) -> None:
    size = 3 + sum(len(name) + len(value or b"") for name, value in headers)
    records = [
        ProducerRecord("t", b"x" * (LIMIT - size - less), b"key", headers=headers) for less in range(80)
    ]
    client = Producer({"bootstrap.servers": "localhost:1", "message.max.bytes": LIMIT, "log_level": 0})
    taken = [client_takes(client, record) for record in records]
    client.purge()
    assert any(taken) and not all(taken)
    assert [we_take(record) for record in records] == taken


class Texts(SerializationSchema[str]):
    def serialize(self, element: str) -> bytes:
        return SimpleStringSchema().serialize(element)


def test_schemas_of_values_are_asked_for_each_row() -> None:
    schema = KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(Texts())
    records = Records()
    writer = RefusingWriter(KafkaSinkSettings(schema.build(), ClientProperties(PROPERTIES)), records)
    with pytest.raises(RefusedRowError) as raised:
        writer.write(["a", 5], [1, 2])
    assert raised.value.index == 1
    assert [tuple(record) for record in records.made] == [("t", b"a", None, None, 1, ())]
