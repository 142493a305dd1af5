"""What both jobs share: settings, and the topics that they write, with rows, keys and sinks.

A table is a compacted topic: Kafka keeps the last record of each key, and a record without a value removes its key.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from yarrow.common import RestartStrategies, Row, Types
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors import DeliveryGuarantee
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink, ProducerRecord
from yarrow.datastream.formats.json import JsonRowSerializationSchema

TURNOVER, STANDINGS, LETTERS = "turnover", "standings", "dead-letters"

TEXT, NUMBER = Types.STRING(), Types.LONG()
#: A country in a minute; the numbers are None where the row is removed.
MINUTE = Types.ROW_NAMED(
    ["country", "minute", "paid", "unpaid", "cents", "flagged"], [TEXT, TEXT, NUMBER, NUMBER, NUMBER, NUMBER]
)
STANDING = Types.ROW_NAMED(
    ["country", "paid", "unpaid", "cents", "flagged"], [TEXT, NUMBER, NUMBER, NUMBER, NUMBER]
)
#: `position` is the offset of a record that could not be read, and None for a row that could not be converted.
DEAD_LETTER = Types.ROW_NAMED(["source", "position", "raw", "error"], [TEXT, NUMBER, TEXT, TEXT])


def program(parallelism: int) -> StreamExecutionEnvironment:
    """Return an environment with checkpoints. A job that fails four times in a minute has failed."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    env.enable_checkpointing(500)
    restarts = RestartStrategies.failure_rate_restart(3, timedelta(minutes=1), timedelta(milliseconds=500))
    return env.set_restart_strategy(restarts)


def clock_time(at: int) -> str:
    """Return hour and minute of a time in ms."""
    return f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M}"


def removed(country: str, minute: str) -> Row:
    """Return the row that removes a minute from the table."""
    return Row(country=country, minute=minute, paid=None, unpaid=None, cents=None, flagged=None)


class MinuteRecord(KafkaRecordSerializationSchema[Row]):
    """A row of the table of minutes: country and minute are its key."""

    def serialize(self, element: Row, timestamp: int | None) -> ProducerRecord:
        key = f"{element.country} {element.minute}".encode()
        numbers = {name: getattr(element, name) for name in ("paid", "unpaid", "cents", "flagged")}
        value = None if element.paid is None else json.dumps(numbers).encode()
        return ProducerRecord(TURNOVER, value, key, timestamp=timestamp)


class StandingRecord(KafkaRecordSerializationSchema[Row]):
    """A row of the standings, whose key is the country."""

    def serialize(self, element: Row, timestamp: int | None) -> ProducerRecord:
        numbers = {name: getattr(element, name) for name in ("paid", "unpaid", "cents", "flagged")}
        return ProducerRecord(STANDINGS, json.dumps(numbers).encode(), element.country.encode())


def upserts(servers: str, name: str, serializer: KafkaRecordSerializationSchema[Row]) -> KafkaSink[Any]:
    """Return the sink of a table, exactly once."""
    builder = KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(serializer)
    return (
        builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(name)
        .build()
    )


def dead_letters(servers: str) -> KafkaSink[Any]:
    """Return the sink of dead letters, which are JSON objects, exactly once too."""
    values = JsonRowSerializationSchema.builder().with_type_info(DEAD_LETTER).build()
    builder = KafkaRecordSerializationSchema.builder().set_topic(LETTERS)
    return upserts(servers, LETTERS, builder.set_value_serialization_schema(values).build())
