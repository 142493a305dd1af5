"""KafkaSinkSettings: what a program has said of a sink, checked on the client.

Owner: none (a value). Must not import the client library.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.datastream.connectors.kafka.cluster.client_properties import (
    CLIENT_ID_PREFIX,
    CONSUMER_METRICS,
    PRODUCER_METRICS,
    ClientProperties,
)
from yarrow.datastream.connectors.kafka.cluster.client_settings import producer_settings
from yarrow.datastream.connectors.kafka.writing.record_serialization import KafkaRecordSerializationSchema
from yarrow.runtime.common.errors import InvalidProgramError

OWNER: Final = "KafkaSink"
#: Numbers of checkpoints behind which rows may be lost, since Kafka has aborted their transactions.
ACCEPT_LOSS: Final = "accept-loss"
TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
#: The prefix of sinks that cannot have one of their own. Jobs share it.
SHARED_PREFIX: Final = "yarrow"
#: Longest name of a transaction's prefix, so that names stay readable in lists.
_LONGEST_PREFIX: Final = 200


@dataclass(frozen=True)
class KafkaSinkSettings:
    """The description of a sink."""

    serializer: KafkaRecordSerializationSchema[Any]
    properties: ClientProperties
    #: None = the strongest that holds.
    guarantee: DeliveryGuarantee | None = None
    #: How the names of transactions begin.
    prefix: str | None = None

    def check(self) -> None:
        """Raise InvalidProgramError for the first thing that is missing or wrong."""
        _ = self.producer, self.accepted_losses, self.asked_timeout_ms, self.has_client_metrics
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE and not self.prefix:
            raise InvalidProgramError(
                f"{OWNER}: exactly-once writes in transactions, and their names need a prefix. Set it by"
                " set_transactional_id_prefix, for example 'orders-'"
            )
        if self.prefix is not None and not 0 < len(self.prefix) <= _LONGEST_PREFIX:
            raise InvalidProgramError(
                f"{OWNER}: set_transactional_id_prefix takes 1 to {_LONGEST_PREFIX} characters"
            )
        is_idempotent = self.producer["enable.idempotence"] == "true"
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE and not is_idempotent:
            raise InvalidProgramError(
                f"{OWNER}: exactly-once needs acks=all and enable.idempotence=true; leave both unset"
            )
        if self.guarantee is DeliveryGuarantee.AT_LEAST_ONCE and self.producer["acks"] == "0":
            raise InvalidProgramError(
                f"{OWNER}: with acks=0 no broker confirms a record. Set acks to all or 1, or the guarantee to NONE"
            )

    @cached_property
    def producer(self) -> dict[str, str]:
        """The settings of the client. Raises InvalidProgramError."""
        own = {ACCEPT_LOSS, CLIENT_ID_PREFIX, CONSUMER_METRICS, PRODUCER_METRICS}
        ours = {key: value for key, value in self.properties.items() if key not in own}
        settings = producer_settings(OWNER, ours)
        settings.pop(TRANSACTION_TIMEOUT, None)
        if (prefix := self.properties.get(CLIENT_ID_PREFIX)) is not None:
            settings["client.id"] = prefix
        return settings

    @property
    def has_client_metrics(self) -> bool:
        """Whether the metrics of Kafka's producer are shown. Raises InvalidProgramError."""
        text = self.properties.get(PRODUCER_METRICS, "true").lower()
        if text not in {"true", "false"}:
            raise InvalidProgramError(f"{OWNER}: property {PRODUCER_METRICS} must be true or false")
        return text == "true"

    @property
    def can_commit(self) -> bool:
        """Whether rows can be written in transactions."""
        return bool(self.prefix) and self.producer["enable.idempotence"] == "true"

    @property
    def servers(self) -> str:
        """`host:port` of brokers."""
        return self.producer["bootstrap.servers"]

    @property
    def asked_timeout_ms(self) -> int | None:
        """How long a transaction may be open, as the program asks for it; None = as long as the broker allows."""
        text = self.properties.get(TRANSACTION_TIMEOUT)
        if text is None:
            return None
        if not text.isdecimal() or not int(text):
            raise InvalidProgramError(
                f"{OWNER}: property {TRANSACTION_TIMEOUT} must be milliseconds, not {text!r}"
            )
        return int(text)

    @property
    def accepted_losses(self) -> frozenset[int]:
        """Checkpoints behind which rows may be lost."""
        texts = [text.strip() for text in self.properties.get(ACCEPT_LOSS, "").split(",") if text.strip()]
        if not all(text.isdecimal() for text in texts):
            raise InvalidProgramError(
                f"{OWNER}: property {ACCEPT_LOSS} must be numbers of checkpoints, such as '17' or '17,18', not"
                f" {self.properties[ACCEPT_LOSS]!r}"
            )
        return frozenset(map(int, texts))
