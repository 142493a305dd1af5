"""The flights example against a plain loop over the same file."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights"


@pytest.mark.cluster
def test_the_job_agrees_with_a_plain_loop() -> None:
    job = runpy.run_path(str(FLIGHTS / "delays.py"))
    plain = runpy.run_path(str(FLIGHTS / "plain.py"))
    table, cancelled = job["run"]()
    expected, expected_cancelled = plain["plain_delays"]()
    assert cancelled == expected_cancelled == 8255
    assert {key: (delays.flights, delays.mean, delays.worst) for key, delays in table.items()} == expected
