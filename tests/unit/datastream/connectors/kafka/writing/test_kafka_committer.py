"""A committer passes on what may succeed later, and rejects what brokers would refuse again."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import errors

from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.base import CommitRejectedError
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionClient
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTransactionError
from yarrow.datastream.connectors.kafka.writing.kafka_committer import KafkaCommitter
from yarrow.datastream.connectors.kafka.writing.kafka_transaction import KafkaTransaction


class Answering(TransactionClient):
    """A client whose connection answers with errors."""

    def __init__(self, *answers: errors.KafkaError) -> None:
        super().__init__({"bootstrap.servers": "localhost:1"}, settings().properties, 0.5)
        self.answers = list(answers)
        self.asked = 0

    def _connect(self) -> None:
        self._net = self
        self._manager = self

    async def sleep(self, seconds: float) -> None:
        return None

    def run(self, question: Any) -> Any:
        running = question()
        try:
            running.send(None)
        except StopIteration as ended:
            return ended.value
        raise AssertionError("nothing waits")

    async def send(self, request: Any, node_id: Any = None) -> Any:
        self.asked += 1
        raise self.answers.pop(0)

    def close(self) -> None:
        self._net = self._manager = None


def settings() -> Any:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("t")
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink: Any = (
        KafkaSink.builder()
        .set_bootstrap_servers("localhost:1")
        .set_record_serializer(serializer)
        .set_transactional_id_prefix("p")
        .build()
    )
    return sink._settings


def test_a_right_that_is_missing_rejects_the_commit_at_once() -> None:
    client = Answering(errors.NotCoordinatorError(), errors.TransactionalIdAuthorizationFailedError())
    with pytest.raises(CommitRejectedError, match="did not commit the transaction p-x"):
        KafkaCommitter(settings(), client).commit([KafkaTransaction("p-x", 1, 0)])
    assert client.asked == 2, "what passes is asked again, what does not is not"


def test_a_commit_that_may_succeed_later_is_not_rejected() -> None:
    client = Answering(*[errors.KafkaConnectionError("down") for _ in range(10_000)])
    with pytest.raises(KafkaTransactionError, match="did not commit the transaction p-x"):
        KafkaCommitter(settings(), client).commit([KafkaTransaction("p-x", 1, 0)])
    assert client.asked > 1


@pytest.mark.parametrize(
    "passing",
    [
        errors.ConcurrentTransactionsError,
        errors.CoordinatorLoadInProgressError,
        errors.CoordinatorNotAvailableError,
        errors.KafkaConnectionError,
        errors.KafkaTimeoutError,
        errors.NodeNotReadyError,
        errors.NotCoordinatorError,
        errors.RequestTimedOutError,
    ],
)
def test_the_library_calls_these_errors_transient(passing: type[errors.KafkaError]) -> None:
    assert passing.retriable
