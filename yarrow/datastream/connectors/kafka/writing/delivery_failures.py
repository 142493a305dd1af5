"""Why a record could not be written, as one sentence with the record, its topic and the setting that decides.

Owner: none (pure). Source: error codes of Kafka's protocol and of librdkafka. Must not import the client library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

_SHOWN_BYTES: Final = 60
#: Missing topics and rights, and limits that a record exceeds.
_MENDED_BY_USERS: Final = frozenset(
    {
        "MSG_SIZE_TOO_LARGE",
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC",
        "UNKNOWN_PARTITION",
        "TOPIC_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
    }
)


class FailedRecord(NamedTuple):
    """A record that was not written."""

    topic: str
    #: Negative = it was not chosen.
    partition: int
    key: bytes | None
    value: bytes | None

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.value or b"") + len(self.key or b"")

    def __str__(self) -> str:
        place = f"topic {self.topic}" + (f", partition {self.partition}" if self.partition >= 0 else "")
        key = "no key" if self.key is None else f"key {_shown(self.key)}"
        size = 0 if self.value is None else len(self.value)
        value = "no value" if self.value is None else f"value of {size} bytes {_shown(self.value)}"
        return f"the record with {key} and {value} to {place}"


def failure_text(record: FailedRecord, code: str, text: str, settings: Mapping[str, str]) -> str:
    """Return the message about a record that was not written. `code` names Kafka's error, and `text` describes it."""
    remedy = _remedy(record, code, settings)
    return f"KafkaSink cannot write {record}: {code} ({text})" + (f". {remedy}" if remedy else "")


def needs_user(code: str) -> bool:
    """Whether a record that failed by this error can be written only when the user has mended something."""
    return code.lstrip("_") in _MENDED_BY_USERS


def _remedy(record: FailedRecord, code: str, settings: Mapping[str, str]) -> str:
    size = record.size
    match code.lstrip("_"):
        case "MSG_SIZE_TOO_LARGE":
            limit = settings.get("message.max.bytes", "1000000")
            if size > int(limit):
                return f"The sink's property max.request.size is {limit}: raise it above {size}"
            return (
                f"The topic allows less in a batch: raise its setting max.message.bytes above {size}, or lower the"
                " sink's batch.size"
            )
        case "UNKNOWN_TOPIC_OR_PART" | "UNKNOWN_TOPIC" | "UNKNOWN_PARTITION":
            if record.partition >= 0:
                return "The topic or this partition does not exist: make it, or let the partitioner choose another"
            return "Make the topic first: the broker does not (auto.create.topics.enable)"
        case "TOPIC_AUTHORIZATION_FAILED":
            return f"Give the user of the sink the right WRITE on topic {record.topic}"
        case "TRANSACTIONAL_ID_AUTHORIZATION_FAILED":
            return (
                "Give the user of the sink the rights WRITE and DESCRIBE on transactional ids with its prefix"
            )
        case "CLUSTER_AUTHORIZATION_FAILED":
            return "Give the user of the sink the right IDEMPOTENT_WRITE on the cluster"
        case "MSG_TIMED_OUT" | "TIMED_OUT" | "TRANSPORT" | "ALL_BROKERS_DOWN":
            waited = settings.get("message.timeout.ms", "300000")
            return f"No broker confirmed it within delivery.timeout.ms={waited}: check that the brokers run"
        case "INVALID_TXN_STATE" | "FENCED" | "PRODUCER_FENCED" | "INVALID_PRODUCER_EPOCH" | "PURGE_QUEUE":
            return (
                "The broker has ended the transaction, usually since transaction.timeout.ms was over. The job goes back"
                " to its last checkpoint and writes these rows again"
            )
        case "INVALID_REQUIRED_ACKS" | "NOT_ENOUGH_REPLICAS" | "NOT_ENOUGH_REPLICAS_AFTER_APPEND":
            return "Too few replicas are in sync: check the brokers and the topic's min.insync.replicas"
        case "INVALID_RECORD":
            return "A compacted topic takes records with a key alone: set_key_serialization_schema"
    return ""


def _shown(data: bytes) -> str:
    return repr(data) if len(data) <= _SHOWN_BYTES else f"{data[:_SHOWN_BYTES]!r}..."
