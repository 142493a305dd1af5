"""What the sink assumes of librdkafka and of Kafka's protocol, each on a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.topic_under_test import SECONDS, TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from yarrow.datastream.connectors.kafka.cluster.client import FATAL_ERRORS, ClusterClient
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.cluster.client_settings import producer_settings
from yarrow.datastream.connectors.kafka.cluster.end_transaction import EMPTY, ONGOING, TransactionClient
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTransactionError
from yarrow.datastream.connectors.kafka.cluster.property_names import PRODUCER

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).resolve().parents[2]
#: Writes rows in a transaction, flushes, and waits to be killed.
WRITER = """
import sys, time
from confluent_kafka import Producer
servers, name, topic, count = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
producer.init_transactions(60)
producer.begin_transaction()
for number in range(int(count)):
    producer.produce(topic, b"row %d" % number)
assert producer.flush(60) == 0
print("flushed", flush=True)
time.sleep(600)
"""


@pytest.fixture
def target(kafka: KafkaCluster, new_topic: Callable[..., str]) -> TopicUnderTest:
    return TopicUnderTest(kafka, new_topic(partitions=2))


@pytest.fixture
def client(target: TopicUnderTest) -> Iterator[TransactionClient]:
    with target.client() as client:
        yield client


def open_transaction(target: TopicUnderTest, name: str, **settings: str | int) -> Producer:
    """A producer with one row in an open transaction, on the brokers."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer(
        {
            "bootstrap.servers": target.cluster.bootstrap_servers,
            "transactional.id": name,
            "error_cb": lambda error: None,
            **named,
        }
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(target.topic, b"row")
    assert producer.flush(SECONDS) == 0
    return producer


def test_a_killed_process_and_a_killed_broker_leave_a_transaction_that_can_be_committed(
    target: TopicUnderTest,
) -> None:
    name = f"{target.prefix}-killed"
    arguments = [target.cluster.bootstrap_servers, name, target.topic, "1000"]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "flushed\n"
        writer.send_signal(signal.SIGKILL)
    target.cluster.kill()
    target.cluster.start()
    target.cluster.wait_until_ready()
    assert target.rows() == []
    with target.client() as client:
        facts = client.describe(name)
        assert (facts.state, facts.producer_epoch) == (ONGOING, 0)
        for _ in range(2):
            assert client.end(name, facts.producer_id, facts.producer_epoch, commit=True) is None
    assert len(set(target.rows())) == len(target.rows()) == 1000


def test_a_client_that_is_dropped_leaves_its_transaction_open(
    target: TopicUnderTest, client: TransactionClient
) -> None:
    name = f"{target.prefix}-dropped"
    producer = open_transaction(target, name)
    del producer
    assert client.describe(name).state == ONGOING
    assert client.listed(target.prefix, ONGOING) == [name]


def test_a_name_without_a_transaction_tells_its_last_time_out_and_a_new_epoch_for_each_registration(
    target: TopicUnderTest,
) -> None:
    name = f"{target.prefix}-named"
    with target.client() as client:
        assert client.find(name) is None
        for epoch in range(3):
            client.register(name, 1001 + epoch)
            facts = client.find(name)
            assert facts is not None
            assert (facts.state, facts.producer_epoch, facts.timeout_ms) == (EMPTY, epoch, 1001 + epoch)
        assert client.listed(target.prefix, EMPTY) == [name]
    target.cluster.kill()
    target.cluster.start()
    target.cluster.wait_until_ready()
    with target.client() as client:
        assert client.find(name) == facts
        # It may be shorter than the brokers' limit alone.
        with pytest.raises(KafkaTransactionError, match=f"did not register the transaction {name}"):
            client.register(name, 900_001)
        assert client.find(name) == facts
        # A name with an open transaction is not among those without one.
        open_transaction(target, f"{target.prefix}-open")
        assert client.listed(target.prefix, EMPTY) == [name]


def test_statistics_and_the_coordinator_tell_the_same_id_and_epoch(
    target: TopicUnderTest, client: TransactionClient
) -> None:
    name = f"{target.prefix}-told"
    told: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": target.cluster.bootstrap_servers,
            "transactional.id": name,
            "statistics.interval.ms": 50,
            "stats_cb": told.append,
        }
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(target.topic, b"row")
    producer.flush(SECONDS)
    told.clear()
    while not told:
        producer.poll(0.1)
    known = json.loads(told[0])["eos"]
    facts = client.describe(name)
    assert (known["producer_id"], known["producer_epoch"]) == (facts.producer_id, facts.producer_epoch)
    producer.abort_transaction(SECONDS)


def test_an_aborted_transaction_is_not_committed(target: TopicUnderTest, client: TransactionClient) -> None:
    name = f"{target.prefix}-aborted"
    _producer = open_transaction(target, name)
    facts = client.describe(name)
    for _ in range(2):
        assert client.end(name, facts.producer_id, facts.producer_epoch, commit=False) is None
    reason = client.end(name, facts.producer_id, facts.producer_epoch, commit=True)
    assert reason == "INVALID_TXN_STATE"
    assert target.rows() == []


def test_a_committed_transaction_is_not_aborted(target: TopicUnderTest, client: TransactionClient) -> None:
    name = f"{target.prefix}-committed"
    _producer = open_transaction(target, name)
    facts = client.describe(name)
    assert client.end(name, facts.producer_id, facts.producer_epoch, commit=True) is None
    reason = client.end(name, facts.producer_id, facts.producer_epoch, commit=False)
    assert reason == "INVALID_TXN_STATE"
    assert target.rows() == ["row"]


def test_a_fence_aborts_and_shuts_out_the_producer(target: TopicUnderTest, client: TransactionClient) -> None:
    name = f"{target.prefix}-fenced"
    producer = open_transaction(target, name)
    facts = client.describe(name)
    client.fence(name)
    assert client.listed(target.prefix, ONGOING) == []
    assert client.end(name, facts.producer_id, facts.producer_epoch, commit=True) == "PRODUCER_FENCED"
    producer.produce(target.topic, b"late")
    # The client raises its fatal error where it is polled, and not always in the same form.
    with pytest.raises(FATAL_ERRORS):
        while True:
            producer.produce(target.topic, b"later")
            producer.flush(SECONDS)
    assert target.rows() == []
    assert client.listed(target.prefix, ONGOING) == []


def test_the_brokers_limit_is_known(target: TopicUnderTest) -> None:
    properties = ClientProperties({"bootstrap.servers": target.cluster.bootstrap_servers})
    settings = producer_settings("test", properties)
    asked = ClusterClient(settings, properties, SECONDS, PRODUCER)
    assert asked.broker_setting("transaction.max.timeout.ms") == "900000"
    assert asked.broker_setting("no.such.setting") is None


def test_an_unknown_name_and_a_dead_broker_are_told_apart(
    target: TopicUnderTest, client: TransactionClient
) -> None:
    assert client.end(f"{target.prefix}-nobody", 1, 0, commit=True) == "INVALID_PRODUCER_ID_MAPPING"
    properties = ClientProperties({"bootstrap.servers": target.cluster.bootstrap_servers})
    soon = TransactionClient(producer_settings("test", properties), properties, 1.0)
    target.cluster.kill()
    try:
        with pytest.raises(KafkaTransactionError, match=r"did not commit the transaction p-.*-nobody"):
            soon.end(f"{target.prefix}-nobody", 1, 0, commit=True)
    finally:
        soon.close()
        target.cluster.start()
        target.cluster.wait_until_ready()
    assert client.listed(target.prefix, ONGOING) == []
