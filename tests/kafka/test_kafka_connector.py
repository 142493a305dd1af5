"""The contract of connectors on a real Kafka, by the public kit: topic to topic under seeded plans.

A plan that fails is printed, and replays by its number: pytest -k "exactly_once and [17]".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.kafka_under_test import NewTopic, kafka_topics
from tests.support.kafka.cluster import KafkaCluster
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.connectors import ConnectorCheckError, PlanKind, check_connector, make_connector_plan

pytestmark = [pytest.mark.kafka, pytest.mark.fault]

#: Numbers of plans.
PLANS = {
    DeliveryGuarantee.EXACTLY_ONCE: tuple(range(17)),
    DeliveryGuarantee.AT_LEAST_ONCE: (2, 9),
    DeliveryGuarantee.NONE: (4,),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    configuration = {"resourcemanager.taskmanager-timeout": "1 s"}
    with mini_cluster(task_executors=2, slots=2, configuration=configuration) as running:
        yield running


def check(
    guarantee: DeliveryGuarantee,
    number: int,
    kafka: KafkaCluster,
    new_topic: NewTopic,
    cluster: MiniCluster,
    folder: Path,
) -> None:
    with kafka_topics(kafka, new_topic, guarantee) as topics:
        plan = make_connector_plan(number, guarantee, topics.outages())
        check_connector(topics, plan, cluster, folder)


@pytest.mark.parametrize("number", PLANS[DeliveryGuarantee.EXACTLY_ONCE])
def test_exactly_once(
    number: int, kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, tmp_path: Path
) -> None:
    check(DeliveryGuarantee.EXACTLY_ONCE, number, kafka, new_topic, cluster, tmp_path)


@pytest.mark.parametrize("number", PLANS[DeliveryGuarantee.AT_LEAST_ONCE])
def test_at_least_once(
    number: int, kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, tmp_path: Path
) -> None:
    check(DeliveryGuarantee.AT_LEAST_ONCE, number, kafka, new_topic, cluster, tmp_path)


@pytest.mark.parametrize("number", PLANS[DeliveryGuarantee.NONE])
def test_no_claim(
    number: int, kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, tmp_path: Path
) -> None:
    check(DeliveryGuarantee.NONE, number, kafka, new_topic, cluster, tmp_path)


@pytest.mark.parametrize("kind", [PlanKind.TASK_EXECUTOR, PlanKind.ACKNOWLEDGEMENT])
def test_without_transactions_rows_come_too_often(
    kind: PlanKind, kafka: KafkaCluster, new_topic: NewTopic, cluster: MiniCluster, tmp_path: Path
) -> None:
    with kafka_topics(kafka, new_topic) as topics:
        topics.asked_for = DeliveryGuarantee.AT_LEAST_ONCE
        plan = make_connector_plan(list(PlanKind).index(kind), outages=topics.outages())
        assert plan.kind is kind
        with pytest.raises(ConnectorCheckError, match="too often"):
            check_connector(topics, plan, cluster, tmp_path)
