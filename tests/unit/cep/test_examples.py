"""The examples with patterns find what their first lines say."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from yarrow.cep import match
from yarrow.runtime.graph.executor import ProgramAborted, plan_only

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NAMES = ["fraud_rule.py", "offers.py", "flights/growing_delays.py"]


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def loaded(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / name), run_name="example")


@pytest.mark.parametrize("name", NAMES)
def test_examples_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(ProgramAborted), plan_only():
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_the_fraud_rule_reports_each_fraud_once() -> None:
    example = loaded("fraud_rule.py")
    found = match(
        example["rule"](),
        example["PAYMENTS"],
        key=lambda payment: payment[0],
        timestamp=lambda payment: payment[1] * 1000,
    )
    assert [example["alarm"](each) for each in found] == [
        "card 1111: 950 at 30 s, behind 2 small payments",
    ]


def test_offers_go_to_users_who_did_not_buy() -> None:
    example = loaded("offers.py")
    found = match(
        example["track"](),
        example["CLICKS"],
        key=lambda click: click.user,
        timestamp=lambda click: click.minute * 60_000,
    )
    assert [example["offer"](each) for each in found] == ["ann: 10 % off for boots"]


def test_delays_of_an_aircraft_grow() -> None:
    example = loaded("flights/growing_delays.py")
    line = "2013,1,1,517,515,{},830,819,11,UA,1545,N1,EWR,IAH,227,1400,5,{},2013-01-01T10:00:00Z"
    legs = [example["leg"](line.format(delay, at)) for at, delay in enumerate([25, 30, "NA", 20, 21, 45, 50])]
    assert (legs[0].aircraft, legs[0].way, legs[1].time - legs[0].time) == ("N1", "EWR-IAH", 60_000)
    found = match(example["growing"](), legs, timestamp=lambda leg: leg.time)
    assert [example["risk"](each) for each in found] == [
        "2013-01-01 N1: EWR-IAH +20, EWR-IAH +21, EWR-IAH +45"
    ]
