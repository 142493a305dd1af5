"""Writers of a KafkaSink: one that flushes at barriers, and one that makes a transaction between two checkpoints.

Owner: the task's thread. A thread of its own opens the client of each transaction, which takes 60 to 500 ms. Rows wait
in memory meanwhile (docs/design/0048-kafka-sink.md). A name is never used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from yarrow.datastream.connectors.base import DeliveryGuarantee, SinkWriter
from yarrow.datastream.connectors.kafka.cluster.end_transaction import ONGOING, TransactionClient
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTransactionError
from yarrow.datastream.connectors.kafka.writing.kafka_transaction import KafkaTransaction, own_name
from yarrow.datastream.connectors.kafka.writing.prefix_owner import PrefixOwner
from yarrow.datastream.connectors.kafka.writing.producer_metrics import ProducerMetrics
from yarrow.datastream.connectors.kafka.writing.record_producer import RecordProducer
from yarrow.datastream.connectors.kafka.writing.sink_settings import KafkaSinkSettings
from yarrow.datastream.connectors.transaction_names import TransactionNames

#: Rows that wait for a transaction's client; more of them wait for it.
_WAITING_ROWS: Final = 50_000

#: The epoch of a name that is used for the first time.
_FIRST_EPOCH: Final = 0

Rows = Sequence[Any]
Timestamps = Sequence[int | None] | None


class FlushingKafkaWriter(SinkWriter[Any]):
    """At least once: all rows before a checkpoint are confirmed. With NONE nobody waits for them."""

    def __init__(self, settings: KafkaSinkSettings, guarantee: DeliveryGuarantee) -> None:
        self._encode = settings.serializer.encoder()
        self._flushes = guarantee is not DeliveryGuarantee.NONE
        self._metrics = ProducerMetrics()
        self._has_metrics = settings.has_client_metrics
        self._producer = RecordProducer(settings, self._metrics)

    def write(self, rows: Rows, timestamps: Timestamps) -> None:
        self._producer.write(rows, timestamps, self._encode)

    def flush(self, end_of_input: bool) -> None:
        if self._flushes or end_of_input:
            self._producer.flush()

    def bytes_sent(self) -> int | None:
        return self._producer.bytes_sent

    def own_metrics(self) -> Mapping[str, float]:
        return self._metrics.values() if self._has_metrics else {}

    def close(self) -> None:
        self._producer.close()


class TransactionalKafkaWriter(SinkWriter[Any]):
    """Exactly once: rows between two checkpoints are one transaction, which the checkpoint holds by its data."""

    def __init__(
        self,
        settings: KafkaSinkSettings,
        names: TransactionNames,
        client: TransactionClient,
        timeout_ms: int,
    ) -> None:
        assert settings.prefix is not None
        self._settings = settings
        self._prefix = settings.prefix
        self._encode = settings.serializer.encoder()
        self._names = names
        self._client = client
        self._timeout_ms = timeout_ms
        #: The part of this subtask in the job's claim on its prefix; None = the prefix belongs to all jobs.
        self._owner: PrefixOwner | None = None
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="kafka transaction")
        #: Transactions that were prepared and not handed over.
        self._prepared: list[KafkaTransaction] = []
        self._name: str | None = None
        self._opening: Future[RecordProducer] | None = None
        self._producer: RecordProducer | None = None
        #: Rows that came while the client was being opened.
        self._waiting: list[tuple[Rows, Timestamps]] = []
        self._waiting_rows = 0
        self._bytes_before = 0
        self._metrics = ProducerMetrics()

    def claim_prefix(self, owner: PrefixOwner) -> None:
        """Claim the prefix for the job, or keep it with the others, until `close`. Raises KafkaPrefixInUseError."""
        self._owner = owner
        owner.claim(self._client)

    def abort_leftovers(self) -> None:
        """Abort what earlier attempts left open and no checkpoint holds: it would block readers until its time-out."""
        for name in self._client.listed(f"{self._prefix}-{self._names.tag}-", ONGOING):
            if self._names.is_leftover(own_name(self._prefix, name)):
                self._client.fence(name)

    def write(self, rows: Rows, timestamps: Timestamps) -> None:
        if not rows:
            return
        if self._name is None:
            self._begin()
        if self._producer is None:
            assert self._opening is not None
            if not self._opening.done() and self._waiting_rows < _WAITING_ROWS:
                self._waiting.append((rows, timestamps))
                self._waiting_rows += len(rows)
                return
            self._take_client()
        assert self._producer is not None
        self._producer.write(rows, timestamps, self._encode)

    def _begin(self) -> None:
        self._name = f"{self._prefix}-{self._names.next()}"
        self._opening = self._opener.submit(
            _opened, self._settings, self._metrics, self._name, self._timeout_ms
        )

    def _take_client(self) -> RecordProducer:
        """The client of the transaction, once it is open and has the rows that waited for it."""
        if self._producer is None:
            assert self._opening is not None
            self._producer, self._opening = self._opening.result(), None
            waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
            for rows, timestamps in waiting:
                self._producer.write(rows, timestamps, self._encode)
        return self._producer

    def flush(self, end_of_input: bool) -> None:
        if self._name is None:
            return
        producer = self._take_client()
        producer.flush()
        # Without a record nothing has begun on the brokers.
        if producer.records:
            self._prepared.append(self._described(self._name))
        self._bytes_before += producer.bytes_sent
        # The transaction stays open: its commit comes from the committer, in this process or in another.
        self._end_client()

    def _described(self, name: str) -> KafkaTransaction:
        facts = self._client.describe(name)
        if facts.state != ONGOING:
            raise KafkaTransactionError(
                f"Kafka at {self._settings.servers} has ended transaction {name} before the checkpoint (state"
                f" {facts.state}), usually since transaction.timeout.ms={self._timeout_ms} was over. The job goes"
                " back to its last checkpoint and writes these rows again. Make checkpoints more often, or raise the"
                " time-out"
            )
        if facts.producer_epoch != _FIRST_EPOCH:
            raise KafkaTransactionError(
                f"another program uses the transactional id {name} (its epoch is {facts.producer_epoch}): set another"
                " prefix by set_transactional_id_prefix"
            )
        return KafkaTransaction(name, facts.producer_id, facts.producer_epoch)

    def prepare_commit(self) -> list[Any]:
        prepared, self._prepared = self._prepared, []
        return list(prepared)

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        self._names.checkpoint_taken(checkpoint_id)
        return []

    def bytes_sent(self) -> int | None:
        producer = self._producer
        return self._bytes_before + (0 if producer is None else producer.bytes_sent)

    def own_metrics(self) -> Mapping[str, float]:
        return self._metrics.values() if self._settings.has_client_metrics else {}

    def close(self) -> None:
        """Abort what no checkpoint holds, as far as the broker answers; the next attempt aborts the rest."""
        if self._owner is not None:
            self._owner.close()
        if self._opening is not None:
            self._opening.cancel()
        self._opener.shutdown(wait=False)
        if self._producer is not None:
            self._producer.abort_transaction()
            self._end_client()
        prepared, self._prepared = self._prepared, []
        for transaction in prepared:
            with suppress(KafkaTransactionError):
                self._client.end(
                    transaction.name, transaction.producer_id, transaction.producer_epoch, commit=False
                )

    def _end_client(self) -> None:
        producer, self._producer, self._name = self._producer, None, None
        if producer is not None:
            producer.close()
            self._metrics.clients.next_client()


def _opened(
    settings: KafkaSinkSettings, metrics: ProducerMetrics, name: str, timeout_ms: int
) -> RecordProducer:
    producer = RecordProducer(settings, metrics, name, timeout_ms)
    producer.begin_transaction()
    return producer
