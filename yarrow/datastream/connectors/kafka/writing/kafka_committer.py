"""KafkaCommitter: commits prepared transactions, in whichever process runs the sink when their checkpoint is complete.

Owner: the task's thread. A commit may be repeated: Kafka answers the second one with success. A transaction that Kafka
has aborted is a loss of rows, which is an error and never passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from yarrow.datastream.connectors.base import CommitRejectedError, Committer
from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionClient
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTransactionError
from yarrow.datastream.connectors.kafka.writing.kafka_transaction import (
    KafkaTransaction,
    checkpoint_before,
    loss_text,
)
from yarrow.datastream.connectors.kafka.writing.sink_settings import ACCEPT_LOSS, KafkaSinkSettings

_LOG = logging.getLogger(__name__)


class KafkaCommitter(Committer):
    """Ends transactions by name, producer id and epoch."""

    def __init__(self, settings: KafkaSinkSettings, client: TransactionClient) -> None:
        assert settings.prefix is not None
        self._settings = settings
        self._prefix = settings.prefix
        self._client = client

    def commit(self, committables: Sequence[Any]) -> None:
        """Show the rows of transactions. Raises CommitRejectedError for one that Kafka has aborted."""
        for transaction in committables:
            reason = self._end(transaction, commit=True)
            if reason is None:
                continue
            text = loss_text(self._prefix, transaction, reason, self._settings.servers)
            if checkpoint_before(self._prefix, transaction) not in self._settings.accepted_losses:
                raise CommitRejectedError(text)
            _LOG.warning("%s. Property %s allows it.", text, ACCEPT_LOSS)

    def abort(self, committables: Sequence[Any]) -> None:
        """Discard the rows of transactions that no checkpoint holds."""
        for transaction in committables:
            reason = self._end(transaction, commit=False)
            if reason is not None:
                _LOG.warning("Transaction %s was not aborted: Kafka answers %s", transaction.name, reason)

    def _end(self, transaction: KafkaTransaction, *, commit: bool) -> str | None:
        try:
            return self._client.end(
                transaction.name, transaction.producer_id, transaction.producer_epoch, commit=commit
            )
        except KafkaTransactionError as error:
            if error.is_transient:
                raise
            # Brokers would refuse it again, for example since a right is missing.
            raise CommitRejectedError(str(error)) from error

    def close(self) -> None:
        self._client.close()
