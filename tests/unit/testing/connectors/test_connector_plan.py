"""Plans of connectors: a number makes the same plan each time, and numbers in a row have all kinds."""

from __future__ import annotations

import itertools

import pytest

from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.testing.connectors import PlanKind, make_connector_plan
from yarrow.testing.connectors.connector_plan import CUT_OFF, kinds_of
from yarrow.testing.fault_plan import FaultAction

OUTAGES = ["killed", "cut off"]


@pytest.mark.parametrize("guarantee", DeliveryGuarantee)
def test_a_number_makes_one_plan_and_numbers_in_a_row_make_all_kinds(guarantee: DeliveryGuarantee) -> None:
    kinds = kinds_of(guarantee, OUTAGES)
    plans = [make_connector_plan(number, guarantee, OUTAGES) for number in range(len(kinds))]
    assert [plan.kind for plan in plans] == kinds
    assert plans == [make_connector_plan(number, guarantee, OUTAGES[::-1]) for number in range(len(kinds))]
    assert len({str(plan) for plan in plans}) == len(plans)


def test_all_that_is_not_the_kind_is_chosen_by_the_number() -> None:
    kinds = kinds_of(DeliveryGuarantee.EXACTLY_ONCE, OUTAGES)
    outages = [
        make_connector_plan(number, outages=OUTAGES)
        for number in range(kinds.index(PlanKind.OUTAGE), 300, len(kinds))
    ]
    assert {plan.kind for plan in outages} == {PlanKind.OUTAGE}
    assert {plan.outage for plan in outages} == set(OUTAGES)
    assert all(plan.seconds > 0 for plan in outages)
    assert len({plan.seconds for plan in outages}) > 10


def test_without_outages_no_plan_has_one() -> None:
    plans = [make_connector_plan(number) for number in range(60)]
    without = {PlanKind.OUTAGE, PlanKind.OUTAGE_AND_KILL, PlanKind.MASTER_ELECTED}
    assert {plan.kind for plan in plans} == set(PlanKind) - without
    assert not any(plan.outage for plan in plans)


def test_masters_are_elected_only_where_that_is_offered() -> None:
    plans = [make_connector_plan(number, outages=OUTAGES, elections=True) for number in range(60)]
    assert {plan.kind for plan in plans} == set(PlanKind)


@pytest.mark.parametrize("kind", sorted(CUT_OFF, key=str))
def test_a_cut_finds_a_worker_that_is_held_and_ends_in_each_of_its_ways(kind: PlanKind) -> None:
    plans = [plan for plan in map(make_connector_plan, range(300)) if plan.kind is kind]
    assert {(plan.breaks, plan.late) for plan in plans} == set(itertools.product((False, True), repeat=2))
    faults = [plan.fault for plan in plans if plan.fault is not None]
    assert len(faults) == len(plans) and {fault.action for fault in faults} == {FaultAction.HOLD}
    assert len({fault.point for fault in faults}) > 5


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.NONE])
def test_no_point_of_a_commit_where_nothing_is_committed(guarantee: DeliveryGuarantee) -> None:
    plans = [make_connector_plan(number, guarantee, OUTAGES) for number in range(300)]
    points = {plan.fault.point for plan in plans if plan.fault is not None}
    assert points and not any("commit" in point for point in points)


def test_the_commit_is_hit_twice() -> None:
    (plan,) = [plan for plan in map(make_connector_plan, range(13)) if plan.kind is PlanKind.COMMIT_TWICE]
    assert plan.fault is not None and plan.fault.times == 2
    assert "2 times" in str(plan.fault)
