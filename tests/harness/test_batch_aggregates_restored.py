"""Aggregates of users over windows of columns, against the model of built-in ones: late rows, watermarks, restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.test_columnar_windows_restored import (
    ASSIGNERS,
    SCHEMA,
    Model,
    compare_with_the_model,
    steps_of,
    windowing,
)
from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL
from yarrow.datastream import DataStream, WindowGroups
from yarrow.datastream.window import WindowAssigner

RESULTS = pa.schema(
    [
        ("n_sum", pa.int64()), ("n_min", pa.int64()), ("x_max", pa.float64()), ("x_mean", pa.float64()),
        ("count", pa.int64()),
    ]
)  # fmt: skip


def aggregated(rows: pa.RecordBatch, groups: WindowGroups) -> pa.RecordBatch:
    """The aggregate of the model, in plain Python."""
    made = []
    for first, end in zip(groups.offsets[:-1].tolist(), groups.offsets[1:].tolist(), strict=True):
        own = rows.slice(first, end - first).to_pydict()
        assert len({*own["k"]}) == 1
        numbers = [number for number in own["n"] if number is not None]
        shares = [share for share in own["x"] if share is not None]
        made.append(
            (
                sum(numbers) if numbers else None,
                min(numbers, default=None),
                max(shares, default=None),
                sum(shares) / len(shares) if shares else None,
                end - first,
            )
        )
    columns = [
        pa.array(list(column), kind)
        for column, kind in zip(zip(*made, strict=True), RESULTS.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RESULTS)


def windowed(assigner: WindowAssigner[Any, Any], lateness: int) -> Callable[[DataStream], DataStream]:
    def build(batches: DataStream) -> DataStream:
        windows = batches.key_by("k").window(assigner).allowed_lateness(lateness)
        return windows.aggregate_batches(aggregated, RESULTS).uid("windows")

    return build


def job_of(assigner: str, lateness: int) -> RestartedColumns:
    return RestartedColumns(windowed(ASSIGNERS[assigner][0], lateness), SCHEMA, "k")


@pytest.mark.slow
@pytest.mark.parametrize("assigner", ["cumulative", "overlapping", "session", "tumbling"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(["hashmap", "rocksdb"]), lateness=st.sampled_from([0, 7]))
def test_results_are_those_of_the_model(assigner: str, lateness: int, steps: list[Any], backend: str) -> None:
    compare_with_the_model(Model(assigner, lateness), job_of(assigner, lateness), steps, backend)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("assigner", ["session", "tumbling"])
def test_a_cut_in_the_middle_of_firing_loses_and_doubles_nothing(
    monkeypatch: pytest.MonkeyPatch, assigner: str, backend: str
) -> None:
    for module in ("sliced_windows", "session_windows"):
        monkeypatch.setattr(f"yarrow.container.operators.columnar_window.{module}.MOST_ROWS", 20)
    job = job_of(assigner, 0)
    job.start(1, backend)
    job.push_rows([(key, key, None) for key in range(100)], [7] * 100)
    job.push_rows([(key, 1, None) for key in range(100)], [8] * 100)
    (operator,) = windowing(job)
    operator.on_watermark(12)
    fired = [row for batch in operator.fire_event_timers(0.0) for row in batch.batch.to_pylist()]
    assert len(fired) == 20
    assert operator.event_timers_due
    job.stop(CANONICAL)
    job.start(3, backend)
    job.watermark(12)
    found = [row.as_dict() for row, _ in job.take()]
    assert sorted(row["k"] for row in [*fired, *found]) == list(range(100))
    assert all((row["n_sum"], row["count"]) == (row["k"] + 1, 2) for row in [*fired, *found])
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())
