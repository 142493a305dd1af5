"""How long a transaction may stay open: between the broker's limit and what the job needs.

Owner: none (pure). A transaction is open from the first row behind a checkpoint to its commit, which follows the next
checkpoint, in another process perhaps. What is open longer is aborted by the broker, and its rows are lost. In BATCH a
transaction is open from the first row to the job's commit.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTransactionTimeoutError
from yarrow.runtime.config.options import batch, checkpointing, rpc
from yarrow.runtime.config.options.execution import RUNTIME_MODE, RuntimeMode
from yarrow.runtime.config.settings import Settings

#: The broker's default, for one that does not tell.
USUAL_LIMIT_MS: Final = 900_000
BROKER_LIMIT: Final = "transaction.max.timeout.ms"
#: The settings by which a job needs a time-out, as a message names them.
_NEEDED_BY: Final = (
    f"{checkpointing.INTERVAL.key}, {checkpointing.TIMEOUT.key}, and"
    f" {rpc.HEARTBEAT_TIMEOUT.key} for a restart"
)


class NeededTimeout(NamedTuple):
    """How long a transaction of a job may be open, and the settings that say so."""

    milliseconds: int
    settings: str


def needed_timeout(job: Settings) -> NeededTimeout | None:
    """How long a transaction of a job may be open: from one checkpoint to the end of the next, and over a restart.

    In BATCH: as long as the longest stage. None = the job is a stream that takes no checkpoints.
    """
    if job.get(RUNTIME_MODE) is RuntimeMode.BATCH:
        return NeededTimeout(round(1000 * job.get(batch.LONGEST_STAGE).seconds), batch.LONGEST_STAGE.key)
    interval = job.get(checkpointing.INTERVAL)
    if interval is None:
        return None
    until_next = max(interval.seconds, job.get(checkpointing.MIN_PAUSE).seconds)
    checkpoint, restart = job.get(checkpointing.TIMEOUT), job.get(rpc.HEARTBEAT_TIMEOUT)
    return NeededTimeout(round(1000 * (until_next + checkpoint.seconds + restart.seconds)), _NEEDED_BY)


def transaction_timeout_ms(asked_ms: int | None, limit_ms: int | None, needed: NeededTimeout | None) -> int:
    """The time-out of each transaction: what the program asks for, else as long as the broker allows.

    `needed` is what the job needs; None = nothing is known. Raises KafkaTransactionTimeoutError, with the settings, if
    a time-out is longer than the limit or shorter than the need.
    """
    if asked_ms is not None and limit_ms is not None and asked_ms > limit_ms:
        raise KafkaTransactionTimeoutError(
            f"KafkaSink: transaction.timeout.ms={asked_ms} is longer than the brokers allow"
            f" ({BROKER_LIMIT}={limit_ms}). Lower it, or raise {BROKER_LIMIT} on the brokers"
        )
    timeout = asked_ms if asked_ms is not None else limit_ms or USUAL_LIMIT_MS
    if needed is not None and timeout < needed.milliseconds:
        remedy = (
            f"Raise transaction.timeout.ms to {needed.milliseconds} or more"
            if asked_ms is not None and (limit_ms is None or limit_ms >= needed.milliseconds)
            else f"Raise {BROKER_LIMIT} on the brokers to {needed.milliseconds} or more"
        )
        raise KafkaTransactionTimeoutError(
            f"KafkaSink: Kafka would abort transactions after {timeout} ms, but the job needs up to"
            f" {needed.milliseconds} ms ({needed.settings}). {remedy}, or lower the job's settings"
        )
    return timeout
