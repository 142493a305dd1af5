"""The topic of the benchmarks on Kafka: one partition of payments as JSON, on the broker of `scripts/kafka up`.

The broker stays up between runs, since filling the topic takes longer than reading it. As a program it fills the topic
up to so many records.
"""

from __future__ import annotations

import sys

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.kafka.cluster import KafkaCluster

TOPIC = "bench-payments"
#: Of every client that reads the topic.
SETTINGS = {
    "enable.auto.commit": "false",
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": "10",
}
_SECONDS = 30.0


class Payment(msgspec.Struct):
    """A record."""

    user: int
    name: str
    amount: float
    page: str


def broker() -> str:
    """The address of the shared broker, which is started if need be."""
    cluster = KafkaCluster.at()
    cluster.up()
    return cluster.bootstrap_servers


def filled(servers: str, records: int) -> None:
    """Fills the topic up to so many records."""
    there = _records_of(servers)
    if there is None:
        KafkaCluster.at().create_topic(TOPIC, 1, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1_000_000})
    for number in range(there or 0, records):
        payment = Payment(number % 1000, f"user{number % 1000}", number * 0.5, f"/pages/{number % 77}")
        while True:
            try:
                producer.produce(TOPIC, msgspec.json.encode(payment), key=b"%d" % payment.user)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def _records_of(servers: str) -> int | None:
    """The number of records of the topic; None = there is no topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench"})
    try:
        if TOPIC not in consumer.list_topics(timeout=_SECONDS).topics:
            return None
        return consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), _SECONDS)[1]
    finally:
        consumer.close()


if __name__ == "__main__":
    filled(broker(), int(sys.argv[1]))
