"""The plans of connectors that the suite runs: two dozen of them, most exactly once, and every kind among them."""

from __future__ import annotations

from tests.fault.test_connector_kit import FILE_PLANS, TRANSACTION_PLANS
from tests.kafka.test_kafka_connector import PLANS
from tests.yarn.test_connector_kit_elections import PLANS as ELECTIONS
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.testing.connectors import ConnectorPlan, PlanKind, make_connector_plan

EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE


def of_kafka(guarantee: DeliveryGuarantee) -> list[ConnectorPlan]:
    return [make_connector_plan(number, guarantee, ["the broker is killed"]) for number in PLANS[guarantee]]


def test_the_suite_has_twenty_four_plans_and_all_kinds() -> None:
    exactly_once = [
        *of_kafka(EXACTLY_ONCE),
        *map(make_connector_plan, (*FILE_PLANS, *TRANSACTION_PLANS)),
        *(make_connector_plan(number, elections=True) for number in ELECTIONS),
    ]
    others = [plan for guarantee in PLANS if guarantee is not EXACTLY_ONCE for plan in of_kafka(guarantee)]
    assert len(exactly_once) + len(others) == 24
    assert len(exactly_once) >= 12 and others
    assert {plan.kind for plan in exactly_once} == set(PlanKind)
