"""Live ETL on Kafka, in one command: a broker, a shop that sells meanwhile, two jobs, and the table at the end.

    python examples/live_etl/run.py

    shop.py       writes orders, payments, customers and rules, minute by minute
    turnover.py   the first job: normalizes, joins, flags and adds up, into a compacted topic
    standings.py  the second job: reads this topic, and adds up again

The example starts its broker by scripts/kafka in a folder of its own. When the last record is counted, it drains both
jobs, prints the table, and takes the broker down. It does so also if a job fails, and at Ctrl-C. With `--servers` it
takes a broker that runs already, and leaves its topics there.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import shop
import standings
import tables
import turnover
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from yarrow.common import JobClient

KAFKA = Path(__file__).resolve().parents[2] / "scripts" / "kafka"
#: Partitions of the topics that the shop fills, and of all.
SOURCES = {shop.ORDERS: 2, shop.PAYMENTS: 2, shop.CUSTOMERS: 1, shop.RULES: 1}
TOPICS = {**SOURCES, tables.TURNOVER: 2, tables.STANDINGS: 1, tables.LETTERS: 1}
COMPACTED = {shop.CUSTOMERS, tables.TURNOVER, tables.STANDINGS}
#: Seconds in which a broker or a job must have done what is asked.
PATIENCE = 60.0
Offsets = dict[tuple[str, int], int]


def main() -> None:
    """Runs the example and prints the table."""
    arguments = argparse.ArgumentParser(description="Live ETL on Kafka.")
    arguments.add_argument("--minutes", type=int, default=30, help="minutes that the shop is open")
    arguments.add_argument("--pace", type=float, default=0.3, help="seconds that such a minute takes here")
    arguments.add_argument("--servers", help="HOST:PORT of a broker that runs already")
    given = arguments.parse_args()
    signal.signal(signal.SIGTERM, end)
    with tempfile.TemporaryDirectory(prefix="live-etl-") as folder, broker(folder, given.servers) as servers:
        make_topics(servers)
        live(servers, given.minutes, given.pace, f"{folder}/savepoints")
        print_tables(servers)


def live(servers: str, minutes: int, pace: float, savepoints: str) -> None:
    """Let the shop sell and both jobs count, until all is counted."""
    first = turnover.start(servers)
    jobs = {turnover.GROUP: first}
    try:
        jobs[standings.GROUP] = second = standings.start(servers)
        for minute, records in enumerate(shop.by_minute(shop.records(minutes))):
            shop.send(servers, records)
            clock = tables.clock_time(shop.OPENING + minute * shop.MINUTE)
            print(f"{clock} {len(records)} records", file=sys.stderr)
            threading.Event().wait(pace)
            require_running(jobs)
        wait_until_read(servers, turnover.GROUP, [*SOURCES], jobs)
        # A drained job takes event time to its end: all windows close, and its sinks commit.
        first.stop_with_savepoint(True, savepoints).result(PATIENCE)
        del jobs[turnover.GROUP]
        wait_until_read(servers, standings.GROUP, [tables.TURNOVER], jobs)
        second.stop_with_savepoint(True, savepoints).result(PATIENCE)
        del jobs[standings.GROUP]
    finally:
        for job in jobs.values():
            if not job.get_job_status().result().is_globally_terminal_state():
                job.cancel().result(PATIENCE)


def require_running(jobs: Mapping[str, JobClient]) -> None:
    """Raise the error of a job that has failed."""
    for job in jobs.values():
        if job.get_job_status().result().is_globally_terminal_state():
            job.get_job_execution_result().result()


def wait_until_read(servers: str, group: str, topics: list[str], jobs: Mapping[str, JobClient]) -> None:
    """Wait until a job has counted each record of some topics: it commits its offsets at each checkpoint."""
    wanted = {place: last + 1 for topic in topics for place, last in last_offsets(servers, topic).items()}
    ends = time.monotonic() + PATIENCE
    while not all(committed >= wanted[place] for place, committed in offsets(servers, group, wanted).items()):
        require_running(jobs)
        if time.monotonic() > ends:
            raise TimeoutError(f"{group} has not read all of {', '.join(topics)} within {PATIENCE:g} s")
        threading.Event().wait(0.2)


# The broker, its topics, and what they hold.


@contextmanager
def broker(folder: str, servers: str | None) -> Iterator[str]:
    """Start a broker, give its address, and take it down; or give that of a broker that runs already."""
    if servers is not None:
        yield servers
        return
    command = [str(KAFKA), "{}", "--directory", f"{folder}/kafka"]
    try:
        started = subprocess.run(
            [word.format("up") for word in command], stdout=subprocess.PIPE, text=True, check=True
        )
        yield started.stdout.split()[-1]
    finally:
        subprocess.run([word.format("down") for word in command], stdout=subprocess.DEVNULL, check=True)


def make_topics(servers: str) -> None:
    """Make the topics. Times of the records lie in the past, so that no topic may forget by age."""
    settings = {"retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics(
        [
            NewTopic(
                name,
                partitions,
                config=settings | ({"cleanup.policy": "compact"} if name in COMPACTED else {}),
            )
            for name, partitions in TOPICS.items()
        ],
        operation_timeout=PATIENCE,
    )
    for future in made.values():
        future.result(PATIENCE)


def read(servers: str, topic: str) -> list[Message]:
    """Return all committed records of a topic."""
    settings = {"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": "true", "enable.auto.commit": "false"})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(TOPICS[topic])])
        found: list[Message] = []
        ended = 0
        while ended < TOPICS[topic]:
            message = consumer.poll(PATIENCE)
            if message is None:
                raise ConnectionError(f"Kafka at {servers} does not answer within {PATIENCE:g} s")
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise KafkaException(error)
        return found
    finally:
        consumer.close()


def last_offsets(servers: str, topic: str) -> Offsets:
    """Return the offset of the last record of each partition."""
    return {(topic, message.partition() or 0): message.offset() or 0 for message in read(servers, topic)}


def offsets(servers: str, group: str, places: Iterable[tuple[str, int]]) -> Offsets:
    """Return what a group has committed; an offset below 0 stands for none."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(*place) for place in places], PATIENCE)
        return {(place.topic, place.partition): place.offset for place in found}
    finally:
        consumer.close()


def table(servers: str, topic: str) -> dict[str, dict[str, int]]:
    """Return the rows of a compacted topic by their keys."""
    rows: dict[str, dict[str, int]] = {}
    for message in read(servers, topic):
        key, value = (message.key() or b"").decode(), message.value()
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = json.loads(value)
    return rows


def print_tables(servers: str) -> None:
    """Print the standings, and what went to the dead letters."""
    print(f"{'country':<8}{'paid':>6}{'unpaid':>8}{'euros':>11}{'flagged':>9}")
    for country, row in sorted(table(servers, tables.STANDINGS).items()):
        euros = f"{row['cents'] / 100:.2f}"
        print(f"{country:<8}{row['paid']:>6}{row['unpaid']:>8}{euros:>11}{row['flagged']:>9}")
    letters = Counter(
        json.loads(message.value() or b"")["source"] for message in read(servers, tables.LETTERS)
    )
    for source, number in sorted(letters.items()):
        print(f"{number} dead letters from {source}")


def end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that nothing stays behind."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
