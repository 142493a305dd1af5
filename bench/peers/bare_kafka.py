"""A bare loop of confluent-kafka over one partition: bytes, JSON by msgspec, or JSON as columns by Arrow.

It reads so many records of the topic that `bench/programs/kafka_rows.py` fills, with the same settings of the client.
"""

from __future__ import annotations

import argparse
import io

import msgspec
from confluent_kafka import Consumer, Message, TopicPartition
from pyarrow import json as arrow_json

from bench.programs.kafka_topic import SETTINGS, TOPIC, Payment, broker, filled

_CHUNK = 10_000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--form", choices=("bytes", "json", "columns"), default="bytes")
    given = arguments.parse_args()
    servers = broker()
    filled(servers, given.records)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", **SETTINGS})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    decode = msgspec.json.Decoder(Payment).decode
    read = 0
    while read < given.records:
        values: list[bytes] = []
        messages: list[Message] = consumer.consume(_CHUNK, 0.2)
        for message in messages:
            if message.error() is not None:
                raise SystemExit(str(message.error()))
            value = message.value() or b""
            if given.form == "json":
                decode(value)
            else:
                values.append(value)
        if given.form == "columns" and values:
            arrow_json.read_json(io.BytesIO(b"\n".join(values)))
        read += len(messages)
    consumer.close()


if __name__ == "__main__":
    main()
