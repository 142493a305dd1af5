"""The flights example's pipeline, run by a SparkDriver, against a plain loop over the same file."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.batch_runner import collecting_graph
from tests.support.spark_driver import DriverUnderTest
from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.runtime.graph.job_graph import JobGraph

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module that the driver's processes import too, by the search path of the program."""
    monkeypatch.syspath_prepend(str(FLIGHTS))
    import delays  # type: ignore[import-not-found]

    monkeypatch.setitem(sys.modules, "delays", delays)
    module: ModuleType = delays
    return module


def flights_graph(example: ModuleType) -> JobGraph:
    """The program of the example, up to its end."""
    env = environment(2)
    source = example.FlightsSource(example.flights_file())
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "flights")
    flown = lines.map(example.parse).process(example.SetCancelledAside()).name("set cancelled aside")
    delays = (
        flown.map(example.first_delay).key_by(lambda delay: (delay.origin, delay.carrier)).reduce(example.add)
    )
    return collecting_graph(env, delays.union(flown.get_side_output(example.CANCELLED)))


@pytest.mark.spark
def test_the_job_agrees_with_a_plain_loop(driver: DriverUnderTest, example: ModuleType) -> None:
    outcome = driver.run(flights_graph(example))
    assert outcome.failure is None, outcome.failure.stacktrace
    rows = outcome.collected()
    table = {(row.origin, row.carrier): row for row in rows if isinstance(row, example.Delays)}
    plain, cancelled = runpy.run_path(str(FLIGHTS / "plain.py"))["plain_delays"]()
    assert {key: (row.flights, row.mean, row.worst) for key, row in table.items()} == plain
    assert len(rows) == len(table) + cancelled
    assert cancelled == 8255
