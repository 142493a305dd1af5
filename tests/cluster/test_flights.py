"""The flights example, run as a user runs it, against a plain loop over the same file."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import DEADLINE

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "examples" / "flights"


@pytest.mark.cluster
def test_the_job_agrees_with_a_plain_loop() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    job = subprocess.run(
        [sys.executable, str(FLIGHTS / "delays.py")],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=environment,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    _, *rows, last = job.stdout.splitlines()
    table, cancelled = runpy.run_path(str(FLIGHTS / "plain.py"))["plain_delays"]()
    assert rows == [
        f"{origin:8}{carrier:8}{flights:9,}{mean:12.1f}{worst:8,}"
        for (origin, carrier), (flights, mean, worst) in sorted(table.items())
    ]
    assert (cancelled, last) == (8255, "8,255 flights were cancelled.")
