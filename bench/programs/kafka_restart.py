"""Time from kill -9 of the worker until the first row behind it is committed: Kafka -> keyed count -> Kafka.

The job is exactly once. A user that no one has seen is sent at each kill. The clock stops when a read_committed
reader sees the count of this user. Checkpoints come each second, and the restart strategy is the default one. The size
is the number of kills; the value printed is the slowest of them in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.programs.checkpoint_reports import CheckpointReports, wait_until
from bench.programs.kafka_counts import counting
from bench.programs.kafka_topic import SETTINGS, broker
from bench.programs.kafka_users import COUNTS, emptied, filled, send
from bench.programs.recovery import workers
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

#: Records a second, and the longest that a row may take.
_RATE = 2000
_SECONDS = 60.0


class SteadyUsers:
    """A thread that sends users at a steady rate. The `Producer` of the client may be used by several threads."""

    def __init__(self, servers: str) -> None:
        self.producer = Producer({"bootstrap.servers": servers})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            for number in range(_RATE // 20):
                send(self.producer, f"user{number}")

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()
        self._thread.join()
        self.producer.flush()


def wait_for(consumer: Consumer, row: bytes) -> None:
    """Return when a row is visible."""
    ends = time.monotonic() + _SECONDS
    while time.monotonic() < ends:
        if any(message.value() == row for message in consumer.consume(10_000, 0.05)):
            return
    raise SystemExit(f"no row {row!r} within {_SECONDS:g} s")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("kills", type=int)
    kills = arguments.parse_args().kills
    servers = broker()
    filled(servers, 1)
    emptied(servers)
    latest = KafkaSource.builder().set_starting_offsets(KafkaOffsetsInitializer.latest())
    client: Any = counting(servers, latest).execute_async("bench kafka restart")
    reports = CheckpointReports(client)
    wait_until(lambda: reports.completed >= 1, 30, "a checkpoint")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench-reader", **SETTINGS})
    consumer.assign([TopicPartition(COUNTS, 0, 0)])
    users = SteadyUsers(servers)
    times = []
    for number in range(kills):
        send(users.producer, f"before{number}")
        wait_for(consumer, f"before{number} 1".encode())
        (worker,) = workers()
        began = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        send(users.producer, f"after{number}")
        wait_for(consumer, f"after{number} 1".encode())
        times.append(round(time.monotonic() - began, 3))
    users.end()
    client.cancel().result()
    consumer.close()
    print(json.dumps({"value": max(times), "unit": "s", "times": times}))


if __name__ == "__main__":
    main()
