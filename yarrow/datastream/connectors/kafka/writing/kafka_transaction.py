"""KafkaTransaction: the data that names a prepared transaction, and what to say of one that Kafka has aborted.

Owner: none (pure). Checkpoints hold these values, so their fields are part of the format of savepoints.
"""

from __future__ import annotations

from dataclasses import dataclass

from yarrow.datastream.connectors.kafka.writing.sink_settings import ACCEPT_LOSS
from yarrow.datastream.connectors.transaction_names import checkpoint_of


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
    """What to say of a transaction that a complete checkpoint holds and that Kafka does not commit."""
    before = checkpoint_before(prefix, transaction)
    since = f"behind checkpoint {before}" if before else "before the first checkpoint"
    return (
        f"Kafka at {servers} has aborted or forgotten transaction {transaction.name} (producer id"
        f" {transaction.producer_id}, epoch {transaction.producer_epoch}) before its commit, and answers {reason}. The"
        f" rows that the sink wrote {since}, up to the next one, are lost. Usually the job was down longer than"
        f" transaction.timeout.ms. Start again from an older savepoint, and later rows come twice. Or set the"
        f" sink's property {ACCEPT_LOSS} to {before}, and the job goes on without these rows"
    )
