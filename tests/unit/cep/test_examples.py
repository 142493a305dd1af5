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
NAMES = [
    "fraud_rule.py",
    "offers.py",
    "intrusion_attempts.py",
    "network_quality.py",
    "heartbeat.py",
    "flights/growing_delays.py",
    "flights/operations.py",
]


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


def test_an_intrusion_is_told_with_the_addresses_of_its_failures() -> None:
    example = loaded("intrusion_attempts.py")
    found = match(
        example["attempts"](),
        example["LOGINS"],
        key=lambda login: login.user,
        timestamp=lambda login: login.second * 1000,
    )
    assert [example["alarm"](each) for each in found] == [
        "root entered at 21 s behind 3 failures from 203.0.113.7, 203.0.113.9"
    ]


def test_cells_that_do_not_recover_are_repaired() -> None:
    example = loaded("network_quality.py")
    found = match(
        example["failing"](),
        example["MEASUREMENTS"],
        key=lambda measurement: measurement.cell,
        timestamp=lambda measurement: measurement.minute * 60_000,
    )
    assert [example["order"](each) for each in found] == [
        "cell north: loss 2.1 -> 3.0 -> 4.5 %, and no recovery"
    ]


def test_a_heartbeat_that_stays_out_is_told_when_its_time_has_passed() -> None:
    example = loaded("heartbeat.py")
    found = match(
        example["silence"](),
        example["BEATS"],
        key=lambda beat: beat[0],
        timestamp=lambda beat: beat[1] * 1000,
    )
    assert [(example["warning"](each.match), each.timestamp) for each in found.results] == [
        ("m1 has been silent since 9 s", 19_000),
        ("m1 has been silent since 30 s", 40_000),
        ("m2 has been silent since 1 s", 11_000),
        ("m2 has been silent since 20 s", 30_000),
    ]


@pytest.mark.parametrize("job", ["raise", "gather"])
def test_the_jobs_of_alarms_plan(job: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "alarms").write_text("hall,m1,20\n")
    monkeypatch.setattr(sys, "argv", ["alarm_stream.py", job, str(tmp_path)])
    with pytest.raises(ProgramAborted), plan_only():
        runpy.run_path(str(EXAMPLES / "alarm_stream.py"), run_name="__main__")


def test_alarms_of_one_pattern_are_the_rows_of_another() -> None:
    example = loaded("alarm_stream.py")
    hot = match(
        example["hot"](),
        example["READINGS"],
        key=lambda reading: reading[1],
        timestamp=lambda reading: reading[2] * 1000,
    )
    alarms = [example["alarm"](each) for each in hot]
    assert sorted(alarms) == ["hall,m1,20", "hall,m2,22"]
    assigner = example["TimeOfAlarm"]()
    rooms = match(
        example["several"](),
        alarms,
        key=lambda line: line.split(",")[0],
        timestamp=lambda line: assigner.extract_timestamp(line, 0),
    )
    assert [example["report"](each) for each in rooms] == ["hall: m1 and m2 are hot at 22 s"]


def test_an_airport_is_disturbed_by_gusts_delays_and_a_cancellation() -> None:
    example = loaded("flights/operations.py")
    line = "2013,1,1,{},515,{},830,819,11,UA,15,N1,JFK,IAH,227,1400,5,{},2013-01-01T10:00:00Z"
    flights = [("517", 70, 5), ("518", 10, 10), ("550", 65, 15), ("NA", "NA", 20), ("NA", "NA", 25)]
    weather = "JFK,2013,1,1,5,39,26,59,270,30,{},0,1012,10,2013-01-01T{}:00:00Z"
    events = [example["of_weather"](weather.format(*each)) for each in (("NA", "09"), (40.3, 10))]
    events += [example["of_flight"](line.format(*each)) for each in flights]
    assert [event.kind for event in events] == [
        "quiet",
        "gust",
        "late",
        "quiet",
        "late",
        "cancelled",
        "cancelled",
    ]
    found = match(example["disturbed"](), events, timestamp=lambda event: event.time)
    assert [example["line_of"](each) for each in found] == [
        "2013-01-01 10:20 JFK: gusts of 40 mph, 2 late departures, then UA15 to IAH cancelled"
    ]


def test_delays_of_an_aircraft_grow() -> None:
    example = loaded("flights/growing_delays.py")
    line = "2013,1,1,517,515,{},830,819,11,UA,1545,N1,EWR,IAH,227,1400,5,{},2013-01-01T10:00:00Z"
    legs = [example["leg"](line.format(delay, at)) for at, delay in enumerate([25, 30, "NA", 20, 21, 45, 50])]
    assert (legs[0].aircraft, legs[0].way, legs[1].time - legs[0].time) == ("N1", "EWR-IAH", 60_000)
    found = match(example["growing"](), legs, timestamp=lambda leg: leg.time)
    assert [example["risk"](each) for each in found] == [
        "2013-01-01 N1: EWR-IAH +20, EWR-IAH +21, EWR-IAH +45"
    ]
