"""KafkaSink and its builder: a sink that writes records to topics, with PyFlink's names and meanings.

Owner: the client for building; the engine for the rest. The client libraries are loaded only where writers and
committers run. What a program gets wrong is refused here, before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from yarrow.datastream.connectors.base import (
    Committer,
    DeliveryGuarantee,
    KeptBy,
    Sink,
    SinkWriter,
    SinkWriterContext,
)
from yarrow.datastream.connectors.kafka.cluster.client_library import (
    require_client_library,
    require_mechanism,
)
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties, as_text
from yarrow.datastream.connectors.kafka.cluster.property_names import PRODUCER
from yarrow.datastream.connectors.kafka.writing.record_serialization import KafkaRecordSerializationSchema
from yarrow.datastream.connectors.kafka.writing.sink_settings import (
    OWNER,
    SHARED_PREFIX,
    KafkaSinkSettings,
)
from yarrow.datastream.connectors.kafka.writing.transaction_timeouts import (
    BROKER_LIMIT,
    needed_timeout,
    transaction_timeout_ms,
)
from yarrow.datastream.connectors.transaction_names import TransactionNames
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.config.settings import Settings

if TYPE_CHECKING:
    from yarrow.datastream.connectors.kafka.cluster.client import ClusterClient
    from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionClient

T = TypeVar("T")

#: Seconds for which a commit is asked again before the operator waits.
_ANSWER_SECONDS: Final = 30.0


class KafkaSink(Sink[T], Generic[T]):
    """Writes rows to topics; made by `KafkaSink.builder()`.

    EXACTLY_ONCE: rows between two checkpoints are one transaction, committed when the checkpoint is complete.
    AT_LEAST_ONCE: rows are confirmed before each checkpoint. NONE: rows may be lost and doubled.
    """

    blocking = True
    counts_bytes = True
    tells_refused_rows = True

    def __init__(self, settings: KafkaSinkSettings) -> None:
        self._settings = settings
        self.delivery_guarantee = settings.guarantee
        self.takes_added_columns = settings.serializer.takes_added_columns
        #: Of this subtask: the committer ends it, the writer describes and lists.
        self._client: TransactionClient | None = None

    def __repr__(self) -> str:
        return f"KafkaSink({self._settings.properties!r})"

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Return a builder. Raises InvalidProgramError if Kafka's client libraries are not installed."""
        require_client_library(OWNER)
        return KafkaSinkBuilder()

    @property
    def settings(self) -> KafkaSinkSettings:
        """What the program has said of the sink."""
        return self._settings

    def guarantees(self) -> Mapping[DeliveryGuarantee, KeptBy]:
        """Transactions keep EXACTLY_ONCE where they have a prefix; a flush keeps AT_LEAST_ONCE."""
        kept = {DeliveryGuarantee.AT_LEAST_ONCE: KeptBy.FLUSH}
        if self._makes_transactions:
            kept[DeliveryGuarantee.EXACTLY_ONCE] = KeptBy.TRANSACTION
        return kept

    @property
    def _makes_transactions(self) -> bool:
        return self._settings.can_commit and self.delivery_guarantee in {None, DeliveryGuarantee.EXACTLY_ONCE}

    def create_committer(self) -> Committer | None:
        """Return what ends transactions; None = the sink makes none."""
        if not self._makes_transactions:
            return None
        from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionClient
        from yarrow.datastream.connectors.kafka.writing.kafka_committer import KafkaCommitter

        settings = self._settings
        self._client = TransactionClient(settings.producer, settings.properties, _ANSWER_SECONDS)
        return KafkaCommitter(settings, self._client)

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> SinkWriter[T]:
        """Return the writer of a subtask. Raises KafkaConnectorError if brokers do not answer or allow it."""
        if not context.leaves_out_rows:
            return self._writer(context, self._settings)
        from yarrow.datastream.connectors.kafka.writing.refused_records import MadeRecords, RefusingWriter

        writer = self._writer(context, replace(self._settings, serializer=MadeRecords()))
        try:
            return RefusingWriter(self._settings, writer)
        except BaseException:
            writer.close()
            raise

    def _writer(self, context: SinkWriterContext, settings: KafkaSinkSettings) -> SinkWriter[T]:
        from yarrow.datastream.connectors.kafka.writing.kafka_writer import (
            FlushingKafkaWriter,
            TransactionalKafkaWriter,
        )
        from yarrow.datastream.connectors.kafka.writing.prefix_claims import Holder
        from yarrow.datastream.connectors.kafka.writing.prefix_owner import PrefixOwner

        cluster = self._cluster()
        cluster.require_topic(self._settings.serializer.fixed_topic())
        guarantee = context.delivery_guarantee
        if self._client is None or guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return FlushingKafkaWriter(settings, guarantee)
        names = TransactionNames(context, RandomIdFactory())
        timeout_ms = self._transaction_timeout_ms(cluster, context)
        # The claim comes behind all that may fail before: from then on its beats go on until the writer is closed.
        writer = TransactionalKafkaWriter(settings, names, self._client, timeout_ms)
        try:
            if self._settings.prefix != SHARED_PREFIX:
                holder = Holder(context.job_id, context.subtask_index)
                writer.claim_prefix(PrefixOwner(self._settings, holder, context.parallelism))
            writer.abort_leftovers()
        except BaseException:
            writer.close()
            raise
        return writer

    def _cluster(self) -> ClusterClient:
        from yarrow.datastream.connectors.kafka.cluster.client import ClusterClient

        settings = self._settings
        return ClusterClient(settings.producer, settings.properties, _ANSWER_SECONDS, PRODUCER)

    def _transaction_timeout_ms(self, cluster: ClusterClient, context: SinkWriterContext) -> int:
        """The time-out of transactions, checked against the brokers' limit and the job's needs.

        Raises KafkaTransactionTimeoutError.
        """
        found = cluster.broker_setting(BROKER_LIMIT)
        return transaction_timeout_ms(
            self._settings.asked_timeout_ms,
            None if found is None else int(found),
            needed_timeout(Settings(context.configuration, "the job")),
        )


class KafkaSinkBuilder:
    """Collects what a KafkaSink needs. Each method returns the builder."""

    def __init__(self) -> None:
        self._serializer: KafkaRecordSerializationSchema[Any] | None = None
        self._guarantee: DeliveryGuarantee | None = None
        self._prefix: str | None = None
        self._properties: dict[str, str] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the brokers that are asked first: `host:port`, separated by commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema[Any]
    ) -> KafkaSinkBuilder:
        """Set how rows become records: `KafkaRecordSerializationSchema.builder()`."""
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            raise InvalidProgramError(
                f"{OWNER}: set_record_serializer takes a KafkaRecordSerializationSchema, not {record_serializer!r}"
            )
        self._serializer = record_serializer
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set what holds when the job fails and recovers."""
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            raise InvalidProgramError(
                f"{OWNER}: set_delivery_guarantee takes a DeliveryGuarantee, not {delivery_guarantee!r}"
            )
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set how the names of transactions begin; EXACTLY_ONCE needs it. Access rights may name it."""
        if not isinstance(transactional_id_prefix, str):
            raise InvalidProgramError(
                f"{OWNER}: set_transactional_id_prefix takes a str, not {transactional_id_prefix!r}"
            )
        self._prefix = transactional_id_prefix
        return self

    def set_property(self, key: str, value: Any) -> KafkaSinkBuilder:
        """Set a property of Kafka's producer, by the name that Java's client has for it."""
        name, text = as_text(OWNER, key, value)
        self._properties[name] = text
        return self

    def set_properties(self, props: Mapping[str, Any]) -> KafkaSinkBuilder:
        """Set several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSink[Any]:
        """Return the sink. Raises InvalidProgramError naming what is missing or wrong."""
        if self._serializer is None:
            raise InvalidProgramError(
                f"{OWNER}: set how rows are written by set_record_serializer, which takes"
                " KafkaRecordSerializationSchema.builder()....build()"
            )
        settings = KafkaSinkSettings(
            self._serializer, ClientProperties(self._properties), self._guarantee, self._prefix
        )
        settings.check()
        require_mechanism(OWNER, settings.producer, commits=settings.can_commit)
        if settings.can_commit and find_spec("kafka") is None:
            raise InvalidProgramError(
                f"{OWNER}: exactly-once needs Kafka's protocol library. Run: pip install 'yarrow[kafka]'"
            )
        return KafkaSink(settings)
