"""The examples build their graphs, and the flights source reads in order and resumes."""

from __future__ import annotations

import runpy
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.unit.datastream.connectors.harness import SourceHarness, run_with_restores
from yarrow.runtime.graph.executor import ProgramAborted, plan_only

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"


@pytest.fixture(scope="module")
def delays() -> Any:
    # Dataclasses look their module up, so it must be known under its name while it runs.
    module = ModuleType("delays_example")
    path = EXAMPLES / "flights" / "delays.py"
    sys.modules[module.__name__] = module
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


@pytest.mark.slow
def test_flights_come_in_order_once_each(delays: Any) -> None:
    harness = SourceHarness(delays.FlightsSource(delays.flights_file()), parallelism=2)
    by_reader: list[list[str]] = []
    for reader in (0, 1):
        before = len(harness.rows)
        while harness.poll(reader, 50_000) is not None:
            pass
        by_reader.append(harness.rows[before:])
    assert [len(lines) for lines in by_reader] == [168_388, 168_388]
    for lines in by_reader:
        times = [delays.scheduled_departure(line) for line in lines]
        assert all(one <= next_one for one, next_one in pairwise(times))


@pytest.mark.slow
def test_flights_resume(delays: Any) -> None:
    rows = run_with_restores(delays.FlightsSource(delays.flights_file()), 1, 100_000, 2)
    assert len(rows) == 336_776


@pytest.mark.parametrize(
    "example",
    ["word_count.py", "hashtags.py", "sessions.py", "lookups.py", "parcels.py", "flights/delays.py"],
)
def test_examples_plan(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [example])
    with pytest.raises(ProgramAborted), plan_only():
        runpy.run_path(str(EXAMPLES / example), run_name="__main__")
