"""The topics of `kafka-to-kafka` and `kafka-restart`: user names in one partition, and the counts that a job writes.

Owner: the calling thread. The broker is that of `bench/programs/kafka_topic.py`, and stays up between runs.
As a program it fills the topic of names up to so many records.
"""

from __future__ import annotations

import argparse
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.programs.kafka_topic import broker
from tests.support.kafka.cluster import KafkaCluster

USERS, COUNTS = "bench-users", "bench-counts"
#: Of every client that writes counts.
WRITING = {"linger.ms": 50, "batch.size": 1_000_000}
_SECONDS = 30.0


def brought_up(about: str | None) -> tuple[str, int]:
    """Return the broker's address and the number of records that the command line asks for; both topics are ready."""
    arguments = argparse.ArgumentParser(description=about)
    arguments.add_argument("records", type=int)
    records: int = arguments.parse_args().records
    servers = broker()
    filled(servers, records)
    emptied(servers)
    return servers, records


def filled(servers: str, records: int) -> None:
    """Fill the topic of users up to so many records."""
    there = _end_of(servers, USERS)
    if there is None:
        KafkaCluster.at().create_topic(USERS, 1, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": servers, **WRITING})
    for number in range(there or 0, records):
        send(producer, f"user{number % 1000}")
    producer.flush()


def send(producer: Producer, user: str) -> None:
    """Write one user, behind those that wait."""
    while True:
        try:
            producer.produce(USERS, user)
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)


def emptied(servers: str) -> None:
    """Make the topic of counts anew."""
    cluster = KafkaCluster.at()
    if _end_of(servers, COUNTS) is not None:
        cluster.delete_topic(COUNTS)
    while True:
        try:
            return cluster.create_topic(COUNTS, 1)
        except KafkaException as error:
            # The broker removes the former one in its own time.
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise


def _end_of(servers: str, topic: str) -> int | None:
    """The end of the only partition of a topic; None = there is no topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench"})
    try:
        if topic not in consumer.list_topics(timeout=_SECONDS).topics:
            return None
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), _SECONDS)[1]
    finally:
        consumer.close()


if __name__ == "__main__":
    filled(broker(), int(sys.argv[1]))
