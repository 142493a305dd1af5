"""Programs that make watermarks behind a source: the stream goes on with the watermark to which history has come."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import run_batch
from tests.support.timed_program import INTERVAL, Row, late_records, steps, streamed, timed_history
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.state_processor import SavepointReader


def history(*program: Any, **options: Any) -> list[Any]:
    """Runs a history; returns its results."""
    return run_batch(timed_history(*program, **options)).rows()


_ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=8)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    first=_ROWS,
    batches=st.lists(_ROWS, max_size=4),
    delay=st.sampled_from([0, 3, 20]),
    waits=st.booleans(),
    limits=st.sampled_from([{}, {"pipeline.watermark.max-jump": "10 ms"}]),
)
def test_the_stream_behind_a_history_equals_the_stream_over_all_rows(
    first: list[Row], batches: list[list[Row]], delay: int, waits: bool, limits: dict[str, str]
) -> None:
    """Late rows are late in both, and each row sees the same watermark, also before the first one of the stream."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        results = history(
            [sorted(first, key=lambda row: row[1])], delay, path, waits=waits, configuration=limits
        )
        with streamed(delay, path, limits) as running:
            found, late = steps(running, batches), late_records(running)
    with streamed(delay, None, limits) as running:
        for row in sorted(first, key=lambda row: row[1]):
            running.push([row])
            running.advance(INTERVAL)
        before, late_before = running.take(), late_records(running)
        expected = steps(running, batches)
        assert found == expected
        assert late == late_records(running) - late_before
    timers = [result for result in before if result[1] == "timer"]
    assert sorted(result for result in results if result[1] == "timer") == sorted(timers)


def test_the_least_watermark_of_all_subtasks_is_handed_over(tmp_path: Path) -> None:
    path = str(tmp_path / "savepoint")
    history([[("a", 10), ("b", 40)], [("c", 5), ("a", 20)]], 5, path, parallelism=2)
    with SavepointReader.read(path) as reader:
        stored = reader.read_union_state("times", "watermark").to_pylist()
    assert sorted(row["value"] for row in stored) == [20 - 6, 40 - 6]
    with streamed(5, path) as running:
        assert steps(running, [[("d", 13), ("d", 15)]])[0] == [("d", 13, 14), ("d", 15, 14)]
        assert late_records(running) == 1


@pytest.mark.parametrize(("waits", "watermark"), [(True, MIN_TIMESTAMP), (False, 40 - 1)])
def test_a_subtask_without_rows_holds_back_time_unless_its_input_has_ended(
    tmp_path: Path, waits: bool, watermark: int
) -> None:
    """As in a stream: rows may still come to it, with any time."""
    path = str(tmp_path / "savepoint")
    results = history([[("a", 10), ("b", 40)]], 0, path, waits=waits, parallelism=2)
    assert (("a", "timer", 13) in results) is not waits
    with streamed(0, path) as running:
        running.push([("c", 30)])
        assert ("c", 30, watermark) in running.take()


def test_a_savepoint_of_the_stream_does_not_bear_it(tmp_path: Path) -> None:
    path, later = str(tmp_path / "savepoint"), str(tmp_path / "later")
    history([[("a", 10)]], 0, path)
    with streamed(0, path) as running:
        running.write(later)
    with SavepointReader.read(path) as reader:
        assert "times" in {operator.uid for operator in reader.operators()}
    with SavepointReader.read(later) as reader:
        assert {operator.uid for operator in reader.operators()} == {"lateness"}
