"""Decisions about transactions: how long they may be open, and what is said of one that is lost."""

from __future__ import annotations

import pytest

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTransactionError
from yarrow.datastream.connectors.kafka.writing.kafka_transaction import (
    KafkaTransaction,
    checkpoint_before,
    loss_text,
)
from yarrow.datastream.connectors.kafka.writing.transaction_timeouts import (
    NeededTimeout,
    needed_timeout,
    transaction_timeout_ms,
)
from yarrow.runtime.config.settings import Settings

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
    assert transaction_timeout_ms(asked, limit, of_job(needed)) == chosen


def of_job(needed: int | None) -> NeededTimeout | None:
    return None if needed is None else NeededTimeout(needed, "the.option")


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
        transaction_timeout_ms(asked, limit, of_job(needed))


def test_a_loss_names_transaction_checkpoint_and_remedy() -> None:
    transaction = KafkaTransaction(NAME, 7, 0)
    assert checkpoint_before("orders", transaction) == 17
    text = loss_text("orders", transaction, "PRODUCER_FENCED", "broker:9092")
    for part in (NAME, "producer id 7", "behind checkpoint 17", "accept-loss to 17", "PRODUCER_FENCED"):
        assert part in text


def test_a_transaction_that_kafka_has_forgotten_is_not_called_lost() -> None:
    text = loss_text("orders", KafkaTransaction(NAME, 7, 0), "INVALID_PRODUCER_ID_MAPPING", "broker:9092")
    assert "does not know" in text and "If the transaction was committed then, nothing is lost" in text
    assert "has aborted" not in text and "accept-loss to 17" in text


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({}, None),
        ({"execution.checkpointing.interval": "30 min"}, 1_800_000 + 600_000 + 50_000),
        (
            {
                "execution.checkpointing.interval": "1 s",
                "execution.checkpointing.min-pause": "1 min",
                "execution.checkpointing.timeout": "2 min",
                "heartbeat.timeout": "10 s",
            },
            60_000 + 120_000 + 10_000,
        ),
    ],
)
def test_a_transaction_is_open_until_the_next_checkpoint_is_complete(
    options: dict[str, str], needed: int | None
) -> None:
    found = needed_timeout(Settings(options, "the job"))
    assert (None if found is None else found.milliseconds) == needed


def test_a_transaction_of_a_batch_job_is_open_as_long_as_its_longest_stage() -> None:
    options = {"execution.runtime-mode": "BATCH", "execution.checkpointing.interval": "30 min"}
    assert needed_timeout(Settings(options, "the job")) == (600_000, "execution.batch.longest-stage")
    longer = needed_timeout(Settings({**options, "execution.batch.longest-stage": "1 h"}, "the job"))
    with pytest.raises(KafkaTransactionError, match=r"up to 3600000 ms \(execution.batch.longest-stage\)"):
        transaction_timeout_ms(None, 900_000, longer)
