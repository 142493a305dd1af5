"""The real Kafka and schema registry of this folder, brought up once for each process that runs tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.run_clusters import cluster_of_run
from tests.support.registry.run_registry import registry_of_run
from tests.support.registry.server import RegistryServer


@pytest.fixture(scope="session")
def kafka_of_run() -> Iterator[KafkaCluster]:
    """The cluster of this process; tests take the fixture `kafka`."""
    with cluster_of_run() as cluster:
        yield cluster


@pytest.fixture
def kafka(kafka_of_run: KafkaCluster) -> Iterator[KafkaCluster]:
    """A cluster of one node, which serves before and after each test, whatever the test does to it."""
    yield kafka_of_run
    kafka_of_run.bring_back()


@pytest.fixture(scope="session")
def registry() -> Iterator[RegistryServer]:
    """A schema registry, brought up once for each process that runs tests. Tests share it, and have own subjects."""
    with registry_of_run() as server:
        yield server


@pytest.fixture
def client(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    """The registry as others see it."""
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.fixture
def new_topic(kafka: KafkaCluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Makes topics of this test alone, and returns their names: `new_topic(partitions=2, settings={...})`."""
    made: list[str] = []

    def make(partitions: int = 1, settings: dict[str, str] | None = None) -> str:
        name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
        made.append(f"{name[:120]}-{os.getpid()}-{len(made)}")
        kafka.create_topic(made[-1], partitions, settings)
        return made[-1]

    yield make
    kafka.bring_back()
    for name in made:
        kafka.delete_topic(name)
