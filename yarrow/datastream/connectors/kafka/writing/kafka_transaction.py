"""KafkaTransaction: the data that names a prepared transaction, and what to say of one that Kafka has aborted.

Owner: none (pure). Checkpoints hold these values, so their fields are part of the format of savepoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from yarrow.datastream.connectors.kafka.writing.sink_settings import ACCEPT_LOSS
from yarrow.datastream.connectors.transaction_names import checkpoint_of

#: Kafka's answer about a transaction that it does not know any more, whichever way the transaction has ended.
FORGOTTEN: Final = "INVALID_PRODUCER_ID_MAPPING"


@dataclass(frozen=True, slots=True)
class KafkaTransaction:
    """A transaction whose rows are all on the brokers: EndTxn with these values shows them, from any process."""

    #: The transactional id, used for this transaction alone.
    name: str
    producer_id: int
    producer_epoch: int


def own_name(prefix: str, name: str) -> str:
    """The part of a transactional id behind the sink's prefix."""
    return name.removeprefix(f"{prefix}-")


def checkpoint_before(prefix: str, transaction: KafkaTransaction) -> int:
    """The last checkpoint before the transaction began; 0 = none."""
    return checkpoint_of(own_name(prefix, transaction.name))


def loss_text(prefix: str, transaction: KafkaTransaction, reason: str, servers: str) -> str:
    """Return the message about a transaction of a complete checkpoint that Kafka does not commit."""
    before = checkpoint_before(prefix, transaction)
    since = f"behind checkpoint {before}" if before else "before the first checkpoint"
    producer = f"producer id {transaction.producer_id}, epoch {transaction.producer_epoch}"
    which = f"transaction {transaction.name} ({producer})"
    rows = f"rows that the sink wrote {since}, up to the next one,"
    without = f"set the sink's property {ACCEPT_LOSS} to {before}, and the job goes on without committing"
    if reason == FORGOTTEN:
        return (
            f"Kafka at {servers} does not know {which} any more, and answers {reason}. It forgets transactions that"
            " ended longer ago than transactional.id.expiration.ms, 7 days by default. If the transaction was"
            f" committed then, nothing is lost. If it was aborted, the {rows} are lost. Look for them in the topic. If"
            f" they are there, {without}"
        )
    return (
        f"Kafka at {servers} has aborted {which} before its commit, and answers {reason}. The {rows} are lost. Usually"
        " the job was down longer than transaction.timeout.ms. Start again from an older savepoint, and later rows"
        f" come twice. Or {without}"
    )
