"""How long a transaction may stay open: between the broker's limit and what the job needs.

Owner: none (pure). A transaction is open from the first row behind a checkpoint to its commit, which follows the next
checkpoint, in another process perhaps. What is open longer is aborted by the broker, and its rows are lost.
"""

from __future__ import annotations

from typing import Final

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTransactionError

#: The broker's default, for one that does not tell.
USUAL_LIMIT_MS: Final = 900_000
BROKER_LIMIT: Final = "transaction.max.timeout.ms"


def transaction_timeout_ms(
    asked_ms: int | None, limit_ms: int | None, needed_ms: int | None, needed_by: str
) -> int:
    """The time-out of each transaction: what the program asks for, else as long as the broker allows.

    `needed_ms` is what the job needs (None = nothing is known), and `needed_by` says why. Raises
    KafkaTransactionError naming the settings if a time-out is longer than the limit or shorter than the need.
    """
    if asked_ms is not None and limit_ms is not None and asked_ms > limit_ms:
        raise KafkaTransactionError(
            f"KafkaSink: transaction.timeout.ms={asked_ms} is longer than the brokers allow"
            f" ({BROKER_LIMIT}={limit_ms}). Lower it, or raise {BROKER_LIMIT} on the brokers"
        )
    timeout = asked_ms if asked_ms is not None else limit_ms or USUAL_LIMIT_MS
    if needed_ms is not None and timeout < needed_ms:
        remedy = (
            f"Raise transaction.timeout.ms to {needed_ms} or more"
            if asked_ms is not None and (limit_ms is None or limit_ms >= needed_ms)
            else f"Raise {BROKER_LIMIT} on the brokers to {needed_ms} or more"
        )
        raise KafkaTransactionError(
            f"KafkaSink: Kafka would abort transactions after {timeout} ms, but the job needs up to {needed_ms} ms"
            f" ({needed_by}). {remedy}, or lower the job's settings"
        )
    return timeout
