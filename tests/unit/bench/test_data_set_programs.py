"""The DataSet benchmark programs compute what a plain loop does, and tell the times of their supersteps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.programs import data_sets
from tests.support.batch_runner import BatchRun, run_batch
from yarrow.batch.dataset import DataSet

RECORDS, KEYS = 500, 70


def run(data: DataSet) -> BatchRun:
    graph = data_sets.collecting(data)
    return run_batch(graph, graph.configuration)


def test_grouped_reduce_counts_the_records_of_each_key() -> None:
    rows = run(data_sets.reduced(RECORDS, KEYS)).rows()
    assert sorted(rows) == sorted(Counter(number % KEYS for number in range(RECORDS)).items())


def test_rounds_move_all_rows_and_tell_when_each_begins(tmp_path: Path) -> None:
    times = tmp_path / "times"
    done = run(data_sets.rounds(20, 12, times))
    assert dict(done.rows()) == {(number + 12) % 20: number for number in range(20)}
    assert done.supersteps == {"rounds": 12}
    assert len(data_sets.lengths(times)) == 11


def test_growth_compares_the_last_supersteps_with_the_first() -> None:
    found = data_sets.growth([9.0, 1.0, 2.0, 3.0, *[5.0] * 20, 4.0, 4.0, 2.0], compared=3)
    assert (found["first_s"], found["middle_s"], found["last_s"]) == (2.0, 5.0, 4.0)
    assert (found["value"], found["supersteps"]) == (2.0, 28)


def test_a_superstep_that_began_twice_is_no_time(tmp_path: Path) -> None:
    times = tmp_path / "times"
    times.write_text("1 5.0\n2 6.5\n2 7.0\n")
    with pytest.raises(ValueError, match="once and in turn"):
        data_sets.lengths(times)


def test_components_are_those_of_a_plain_search() -> None:
    counted, expected = data_sets.components(60)
    assert len(expected) == 15
    assert run(counted).rows() == [(15, sum(expected.values()))]
