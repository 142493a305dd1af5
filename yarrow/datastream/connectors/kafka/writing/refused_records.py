"""RefusingWriter: tells which row cannot become a record, so that `on_error` can leave the row out.

Owner: the task's thread. Rows become records before another writer gets them. So a row is refused in the call that has
it, also while a transaction is being opened. What a broker says of a record comes later, and fails the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from yarrow.common.serialization import SchemaUnavailableError
from yarrow.datastream.connectors.base import RefusedRowError, SinkWriter
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaRecordError
from yarrow.datastream.connectors.kafka.writing.delivery_failures import FailedRecord
from yarrow.datastream.connectors.kafka.writing.record_serialization import (
    Encode,
    KafkaRecordSerializationSchema,
    ProducerRecord,
    RecordFields,
    misfit,
    with_listed_headers,
)
from yarrow.datastream.connectors.kafka.writing.sink_settings import KafkaSinkSettings

#: Bytes that librdkafka adds to key, value and headers when it compares a record with its limit.
#: Source: RD_KAFKAP_MESSAGE_V2_MAX_OVERHEAD of librdkafka: length, attributes, deltas, and lengths of the parts.
OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
_DEFAULT_LIMIT: Final = "1000000"


class MadeRecords(KafkaRecordSerializationSchema[Any]):
    """Passes on records that have been made before."""

    def serialize(self, element: Any, timestamp: int | None) -> ProducerRecord | None:
        """Return the record."""
        return None if element is None else ProducerRecord(*element)

    def encoder(self) -> Encode:
        return _as_made


def _as_made(fields: RecordFields, timestamp: int | None) -> RecordFields:
    return fields


class RefusingWriter(SinkWriter[Any]):
    """Hands records to a writer of MadeRecords."""

    def __init__(self, settings: KafkaSinkSettings, writer: SinkWriter[Any]) -> None:
        self._encode = settings.serializer.encoder()
        self._limit = int(settings.producer.get("message.max.bytes", _DEFAULT_LIMIT))
        self._writer = writer

    def write(self, rows: Sequence[Any], timestamps: Sequence[int | None] | None) -> None:
        """Write rows up to the first one that cannot be a record. Raises RefusedRowError for that one."""
        made: list[RecordFields] = []
        refused: RefusedRowError | None = None
        for index, row in enumerate(rows):
            try:
                fields = self._encode(row, None if timestamps is None else timestamps[index])
                if fields is not None:
                    fields = with_listed_headers(fields)
                    self._check(fields)
                    made.append(fields)
            except SchemaUnavailableError:
                # The registry is at fault, and no other row would be better off.
                raise
            except Exception as error:
                refused = RefusedRowError(index, error)
                break
        if made:
            self._writer.write(made, None)
        if refused is not None:
            raise refused from refused.cause

    def _check(self, fields: RecordFields) -> None:
        """Raise KafkaRecordError for a record that the client would refuse, whatever brokers say."""
        if (why := misfit(fields)) is not None:
            raise KafkaRecordError(why)
        topic, value, key, _, timestamp, headers = fields
        if timestamp is not None and timestamp <= 0:
            raise KafkaRecordError(
                f"the timestamp of the record is {timestamp} ms, and Kafka's client takes times above 0 alone"
            )
        size = OVERHEAD + _bytes_of(value) + _bytes_of(key)
        for name, content in headers or ():
            size += _with_length(name) + _with_length(content)
        if size > self._limit:
            failed = FailedRecord(topic, -1, _encoded(key), _encoded(value))
            raise KafkaRecordError(
                f"KafkaSink cannot write {failed}: it has {size} bytes with what the protocol adds, and"
                f" max.request.size is {self._limit}. Raise this property of the sink"
            )

    def flush(self, end_of_input: bool) -> None:
        self._writer.flush(end_of_input)

    def prepare_commit(self) -> list[Any]:
        return self._writer.prepare_commit()

    def bytes_sent(self) -> int | None:
        return self._writer.bytes_sent()

    def own_metrics(self) -> Mapping[str, float]:
        return self._writer.own_metrics()

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return self._writer.snapshot_state(checkpoint_id)

    def close(self) -> None:
        self._writer.close()


def _encoded(part: bytes | str | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part


def _bytes_of(part: bytes | str | None) -> int:
    return len(_encoded(part) or b"")


def _with_length(part: bytes | str | None) -> int:
    """Bytes of a part of a header, with its length as a zigzag varint."""
    size = _bytes_of(part)
    return size + max(1, -(-(2 * size).bit_length() // 7))
