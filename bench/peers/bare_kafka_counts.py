"""A bare loop of confluent-kafka: counts users by key, and writes each count in one transaction a second.

The offsets belong to the transaction, as they belong to a checkpoint of the job that is held against it.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.programs.kafka_topic import SETTINGS
from bench.programs.kafka_users import COUNTS, USERS, WRITING, brought_up

_CHUNK = 10_000
_SECONDS = 30.0


def main() -> None:
    servers, records = brought_up(__doc__)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", **SETTINGS})
    consumer.assign([TopicPartition(USERS, 0, 0)])
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "bench-bare", **WRITING})
    producer.init_transactions(_SECONDS)
    producer.begin_transaction()
    counts: dict[str, int] = {}
    read = 0
    began = time.monotonic()
    while read < records:
        messages: list[Message] = consumer.consume(_CHUNK, 0.2)
        for message in messages:
            user = (message.value() or b"").decode()
            counts[user] = count = counts.get(user, 0) + 1
            while True:
                try:
                    producer.produce(COUNTS, f"{user} {count}".encode())
                    break
                except BufferError:
                    producer.poll(0.005)
        producer.poll(0)
        read += len(messages)
        if time.monotonic() - began >= 1.0 or read >= records:
            place = TopicPartition(USERS, 0, read)
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), _SECONDS)
            producer.commit_transaction(_SECONDS)
            producer.begin_transaction()
            began = time.monotonic()
    consumer.close()


if __name__ == "__main__":
    main()
