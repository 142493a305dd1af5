"""A record that cannot be written is named with its topic and the setting that decides."""

from __future__ import annotations

import pytest

from yarrow.datastream.connectors.kafka.writing.delivery_failures import (
    FailedRecord,
    failure_text,
    needs_user,
)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("MSG_SIZE_TOO_LARGE", "max.message.bytes above 103"),
        ("UNKNOWN_TOPIC_OR_PART", "Make the topic first"),
        ("_UNKNOWN_TOPIC", "Make the topic first"),
        ("TOPIC_AUTHORIZATION_FAILED", "right WRITE on topic orders"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "WRITE and DESCRIBE on transactional ids"),
        ("CLUSTER_AUTHORIZATION_FAILED", "IDEMPOTENT_WRITE"),
        ("_MSG_TIMED_OUT", "delivery.timeout.ms=5000"),
        ("PRODUCER_FENCED", "writes these rows again"),
        ("INVALID_RECORD", "set_key_serialization_schema"),
        ("NOT_ENOUGH_REPLICAS", "min.insync.replicas"),
    ],
)
def test_the_remedy_follows_from_the_error(code: str, told: str) -> None:
    record = FailedRecord("orders", -1, b"key", b"v" * 100)
    text = failure_text(record, code, "Broker: text", {"message.timeout.ms": "5000"})
    assert text.startswith("KafkaSink cannot write the record with key b'key' and value of 100 bytes")
    assert f"to topic orders: {code} (Broker: text). " in text
    assert told in text


def test_a_record_above_the_sinks_own_limit_names_that_limit() -> None:
    record = FailedRecord("orders", 2, None, b"v" * 100)
    text = failure_text(record, "MSG_SIZE_TOO_LARGE", "large", {"message.max.bytes": "50"})
    assert "the record with no key" in text and "topic orders, partition 2" in text
    assert "max.request.size is 50: raise it above 100" in text


def test_a_partition_that_was_chosen_may_be_the_mistake() -> None:
    record = FailedRecord("orders", 9, b"k", None)
    text = failure_text(record, "_UNKNOWN_PARTITION", "no", {})
    assert "no value" in text and "let the partitioner choose" in text


def test_an_error_without_a_remedy_stands_alone() -> None:
    assert failure_text(FailedRecord("t", -1, None, None), "OTHER", "odd", {}).endswith("OTHER (odd)")


def test_missing_topics_and_rights_need_the_user_and_an_outage_does_not() -> None:
    for code in (
        "_UNKNOWN_TOPIC",
        "UNKNOWN_TOPIC_OR_PART",
        "TOPIC_AUTHORIZATION_FAILED",
        "MSG_SIZE_TOO_LARGE",
    ):
        assert needs_user(code)
    for code in ("_MSG_TIMED_OUT", "PRODUCER_FENCED", "NOT_ENOUGH_REPLICAS", "_ALL_BROKERS_DOWN"):
        assert not needs_user(code)
