"""RecordProducer: one client of librdkafka that writes records; each record that fails is an error that names it.

Owner: the task's thread. The client calls back only for failures, where it is polled. It is given back by dropping it:
an open transaction stays open then, and another process can end it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

from yarrow.datastream.connectors.kafka.cluster.client import (
    FATAL_ERRORS,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    make_producer,
)
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaDeliveryError,
    KafkaRecordError,
    KafkaTransactionError,
)
from yarrow.datastream.connectors.kafka.writing.delivery_failures import (
    FailedRecord,
    failure_text,
    needs_user,
)
from yarrow.datastream.connectors.kafka.writing.producer_metrics import ProducerMetrics
from yarrow.datastream.connectors.kafka.writing.record_serialization import (
    Encode,
    RecordFields,
    misfit,
    with_listed_headers,
)
from yarrow.datastream.connectors.kafka.writing.sink_settings import KafkaSinkSettings
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.retry_pauses import RetryPauses

#: Seconds of the first pause between two looks for a topic.
_TOPIC_SECONDS: Final = 0.1
#: Seconds between two looks for room. The client does not wake who waits for room, since it reports only
#: failures. A look costs some microseconds, and 100 ms here would be a tenth of a second without a record sent.
_ROOM_SECONDS: Final = 0.005
_FLUSH_SECONDS: Final = 1.0
#: Headers that need no second look.
_COLLECTIONS: Final = (list, tuple)
#: Seconds for questions about topics and transactions.
_REQUEST_SECONDS: Final = 30.0
#: Seconds in which a broker may make a topic that it did not know.
_NEW_TOPIC_SECONDS: Final = 5.0

_TOO_LARGE: Final = "MSG_SIZE_TOO_LARGE"
_PURGED: Final = "_PURGE_QUEUE"


class RecordProducer:
    """Writes records, in a transaction of its own if it has a name."""

    def __init__(
        self,
        settings: KafkaSinkSettings,
        metrics: ProducerMetrics,
        transaction: str | None = None,
        timeout_ms: int = 0,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        #: Failures that the client has reported. The list has no reference to the producer, which a drop then ends.
        self._failures: list[tuple[FailedRecord, str, str]] = []
        #: Name and description of what has failed the transaction, the first first.
        self._said: list[tuple[str, str]] = []
        self._topics: set[str] = set()
        #: Bytes of keys and values.
        self.bytes_sent = 0
        #: Records that the client has taken.
        self.records = 0
        configuration = dict(settings.producer)
        if transaction is not None:
            configuration |= {"transactional.id": transaction, "transaction.timeout.ms": str(timeout_ms)}
            self._fit_delivery(configuration, timeout_ms)
        self._configuration = configuration
        self._producer: Producer | None = make_producer(
            configuration,
            settings.properties,
            on_delivery=_reporter(self._failures),
            on_statistics=metrics.clients.take,
            on_transaction_error=_noter(self._said),
        )

    @staticmethod
    def _fit_delivery(configuration: dict[str, str], timeout_ms: int) -> None:
        """librdkafka refuses a delivery that may take longer than its transaction."""
        asked = configuration.get("message.timeout.ms")
        if asked is not None and int(asked) > timeout_ms:
            configuration["message.timeout.ms"] = str(timeout_ms)

    def begin_transaction(self) -> None:
        """Ask for a producer id and begin; blocks until the coordinator answers. Raises KafkaTransactionError."""
        assert self._producer is not None
        try:
            self._init_transactions(self._producer)
            self._producer.begin_transaction()
        except KafkaException as error:
            name = self._configuration["transactional.id"]
            text = self._settings.properties.with_secrets_hidden(error.args[0].str())
            remedy = (
                ". Give the user of the sink the rights WRITE and DESCRIBE on transactional ids with its prefix"
                if error.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                else ""
            )
            failed = KafkaTransactionError(
                f"Kafka at {self._settings.servers} did not begin transaction {name}: {text}{remedy}"
            )
            failed.needs_user = needs_user(error.args[0].name())
            raise failed from error

    @staticmethod
    def _init_transactions(producer: Producer) -> None:
        """Ask for a producer id as long as the client says that it may succeed. Raises KafkaException."""
        pauses = RetryPauses(_REQUEST_SECONDS, _TOPIC_SECONDS, 1.0)
        while True:
            try:
                return producer.init_transactions(max(1.0, pauses.left_seconds))
            except KafkaException as error:
                pause = pauses.next_seconds() if error.args[0].retriable() else None
                if pause is None:
                    raise
            time.sleep(pause)

    def write(self, rows: Sequence[Any], timestamps: Sequence[int | None] | None, encode: Encode) -> None:
        """Hand rows to the client, which sends them by itself.

        Raises KafkaDeliveryError, and KafkaRecordError for a row whose serializer returns what is no record.
        """
        producer = self._producer
        assert producer is not None
        produce, topics = producer.produce, self._topics
        records = size = 0
        row: Any = None
        fields: RecordFields | None = None
        try:
            # One loop without calls of our own: it runs for each row.
            for row, at in zip(rows, timestamps or repeat(None), strict=False):
                fields = None
                fields = encode(row, at)
                if fields is None:
                    continue
                topic, value, key, partition, timestamp, headers = fields
                if headers and type(headers) not in _COLLECTIONS:
                    fields = with_listed_headers(fields)
                    headers = fields[5]
                if topic not in topics:
                    self._require_topic(producer, fields)
                if partition is None:
                    place = -1
                elif (place := partition) < 0:
                    raise ValueError("a partition is a number from 0 on")
                # 0 asks the client for the present time.
                time = timestamp or 0
                if time < 0 or timestamp == 0:
                    raise _too_early(fields)
                try:
                    produce(topic, value, key, place, None, None, time, list(headers) if headers else None)
                except (BufferError, KafkaException):
                    self._produce_slowly(producer, fields)
                records += 1
                size += (0 if value is None else len(value)) + (0 if key is None else len(key))
        except YarrowError:
            raise
        except Exception as error:
            if fields is not None and (told := _misfit(row, fields)) is not None:
                raise told from error
            error.add_note(f"KafkaSink was making the record of {row!r:.200}")
            raise
        self.records += records
        self._metrics.records += records
        self.bytes_sent += size
        self._served(lambda: producer.poll(0))

    def _served(self, wait: Callable[[], int]) -> int:
        """Let the client call back while it waits. Raises KafkaDeliveryError if records or the client have failed."""
        try:
            left = wait()
        except FATAL_ERRORS as error:
            self._check()
            cause = error.__cause__ or error
            known = cause.args[0] if isinstance(cause, KafkaException) else None
            text = self._settings.properties.with_secrets_hidden(str(error) if known is None else known.str())
            raise KafkaDeliveryError(
                f"KafkaSink cannot go on, since Kafka's client has stopped: {text}. The job goes back to its last"
                " checkpoint"
            ) from error
        self._check()
        return left

    def _produce_slowly(self, producer: Producer, fields: RecordFields) -> None:
        """Hand over a record that the client has refused once: its queue was full, or something is wrong with it."""
        topic, value, key, partition, timestamp, headers = fields
        place = -1 if partition is None else partition
        time = timestamp or 0
        while True:
            try:
                return producer.produce(
                    topic, value, key, place, None, None, time, list(headers) if headers else None
                )
            except BufferError:
                # Room comes as brokers confirm.
                self._served(lambda: producer.poll(_ROOM_SECONDS))
            except KafkaException as error:
                cause = error.args[0]
                failed = FailedRecord(topic, place, _bytes(key), _bytes(value))
                raise self._error(failed, cause.name(), cause.str()) from error

    def _require_topic(self, producer: Producer, fields: RecordFields) -> None:
        """Raise KafkaDeliveryError now for a topic that does not exist, not after the delivery's time-out."""
        topic, value, key = fields[:3]
        waits = {
            KafkaError.UNKNOWN_TOPIC_OR_PART: RetryPauses(_NEW_TOPIC_SECONDS, _TOPIC_SECONDS, 1.0),
            KafkaError.LEADER_NOT_AVAILABLE: RetryPauses(_REQUEST_SECONDS, _TOPIC_SECONDS, 1.0),
        }
        while True:
            try:
                found = producer.list_topics(topic, _REQUEST_SECONDS).topics[topic].error
            except KafkaException as error:
                found = error.args[0]
            if found is None:
                self._topics.add(topic)
                return
            pauses = waits.get(found.code())
            pause = None if pauses is None else pauses.next_seconds()
            if pause is not None:
                self._served(partial(producer.poll, pause))
                continue
            failed = FailedRecord(topic, -1, _bytes(key), _bytes(value))
            raise self._error(failed, found.name(), found.str())

    def flush(self) -> None:
        """Wait until brokers have confirmed all records. Raises KafkaDeliveryError."""
        producer = self._producer
        assert producer is not None
        # It ends: each record is confirmed, or fails when its delivery's time is over.
        while self._served(lambda: producer.flush(_FLUSH_SECONDS)):
            pass

    def abort_transaction(self) -> None:
        """Discard what was written, if the broker answers soon; else its time-out does."""
        if self._producer is not None:
            self._producer.purge()
            try:
                self._producer.abort_transaction(_NEW_TOPIC_SECONDS)
            except KafkaException:
                return

    def close(self) -> None:
        """Give the client back; records that were not flushed are dropped."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _check(self) -> None:
        if self._failures:
            self._metrics.errors += len(self._failures)
            # Records of one batch fail together: the largest is the one that is too large.
            first, code, text = self._failures[0]
            if code == _PURGED and self._said:
                # The client drops the records of a transaction that has failed, and says why beside.
                code, text = self._said[0]
            largest = (
                first
                if code != _TOO_LARGE
                else max(
                    (record for record, other, _ in self._failures if other == code), key=lambda r: r.size
                )
            )
            raise self._error(largest, code, text)

    def _error(self, record: FailedRecord, code: str, text: str) -> KafkaDeliveryError:
        hidden = self._settings.properties.with_secrets_hidden(text)
        failed = KafkaDeliveryError(failure_text(record, code, hidden, self._configuration))
        failed.needs_user = needs_user(code)
        return failed


def _misfit(row: Any, fields: object) -> KafkaRecordError | None:
    """The error of a row whose serializer returns what is no record; None = it is one."""
    why = misfit(fields)
    return None if why is None else KafkaRecordError(f"KafkaSink cannot write {row!r:.200}: {why}")


def _too_early(fields: RecordFields) -> KafkaDeliveryError:
    topic, value, key, _, timestamp, _ = fields
    failed = FailedRecord(topic, -1, _bytes(key), _bytes(value))
    return KafkaDeliveryError(
        f"KafkaSink cannot write {failed}: its timestamp is {timestamp} ms, and Kafka's client takes times above 0"
        " alone. Assign later timestamps, or return a ProducerRecord without one, which gets the present time"
    )


def _reporter(failures: list[tuple[FailedRecord, str, str]]) -> Callable[[KafkaError, Message], None]:
    def report(error: KafkaError, message: Message) -> None:
        partition = message.partition()
        failed = FailedRecord(
            message.topic() or "",
            -1 if partition is None else partition,
            _bytes(message.key()),
            _bytes(message.value()),
        )
        failures.append((failed, error.name(), error.str()))

    return report


def _noter(said: list[tuple[str, str]]) -> Callable[[str, str], None]:
    return lambda code, text: said.append((code, text))


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
