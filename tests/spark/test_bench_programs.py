"""The bounded benchmark programs and a peer of theirs on Spark give the same small results."""

from __future__ import annotations

import json

import pytest

from bench.cases import batch as cases
from bench.programs import batch
from bench.runner import run_program
from tests.support.spark_driver import LIMIT, DriverUnderTest

pytestmark = pytest.mark.spark

RECORDS, KEYS = 20_000, 100


@pytest.mark.parametrize("job", ["reduce", "process"])
def test_a_plan_runs_twice_in_one_driver(driver: DriverUnderTest, job: str) -> None:
    graph = batch.graph_of(job, RECORDS, KEYS, collecting=True)
    for _ in range(2):
        rows = driver.submit(graph)[1].result(LIMIT).collected()
        assert sorted(rows) == [(key, RECORDS // KEYS) for key in range(KEYS)]


def test_the_peer_gives_the_same_sums() -> None:
    command = [*cases.RDD_PROCESS.command(RECORDS), f"--keys={KEYS}", "--check"]
    assert json.loads(run_program(command).output) == {"rows": KEYS, "total": RECORDS}
