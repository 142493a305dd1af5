"""Decisions about transactions: how long they may be open, and what is said of one that is lost."""

from __future__ import annotations

import pytest

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTransactionError
from yarrow.datastream.connectors.kafka.writing.kafka_transaction import (
    KafkaTransaction,
    checkpoint_before,
    loss_text,
)
from yarrow.datastream.connectors.kafka.writing.transaction_timeouts import transaction_timeout_ms

NAME = "orders-0123456789abcdef-3-17-fedcba9876543210-1"


@pytest.mark.parametrize(
    ("asked", "limit", "needed", "chosen"),
    [
        (None, 900_000, 650_000, 900_000),
        (None, None, 650_000, 900_000),
        (None, 60_000, None, 60_000),
        (700_000, 900_000, 650_000, 700_000),
        (700_000, None, 650_000, 700_000),
        (650_000, 650_000, 650_000, 650_000),
    ],
)
def test_time_outs_that_fit(asked: int | None, limit: int | None, needed: int | None, chosen: int) -> None:
    assert transaction_timeout_ms(asked, limit, needed, "checkpoints") == chosen


@pytest.mark.parametrize(
    ("asked", "limit", "needed", "told"),
    [
        (900_001, 900_000, None, r"transaction.timeout.ms=900001 .*transaction.max.timeout.ms=900000"),
        (10_000, 900_000, 650_000, r"after 10000 ms.*650000.*Raise transaction.timeout.ms to 650000"),
        (10_000, 20_000, 650_000, r"Raise transaction.max.timeout.ms on the brokers to 650000"),
        (None, 20_000, 650_000, r"Raise transaction.max.timeout.ms on the brokers to 650000"),
    ],
)
def test_time_outs_that_do_not_fit_name_the_settings(
    asked: int | None, limit: int | None, needed: int | None, told: str
) -> None:
    with pytest.raises(KafkaTransactionError, match=told):
        transaction_timeout_ms(asked, limit, needed, "checkpoints")


def test_a_loss_names_transaction_checkpoint_and_remedy() -> None:
    transaction = KafkaTransaction(NAME, 7, 0)
    assert checkpoint_before("orders", transaction) == 17
    text = loss_text("orders", transaction, "PRODUCER_FENCED", "broker:9092")
    for part in (NAME, "producer id 7", "behind checkpoint 17", "accept-loss to 17", "PRODUCER_FENCED"):
        assert part in text
