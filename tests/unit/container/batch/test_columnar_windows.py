"""Columnar windows over bounded input: what a list gives, whatever the order of the chunks and the parallelism."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from tests.support.batch_runner import collect, shuffled
from tests.unit.container.batch.test_joins import SMALL, rows, timed
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Time
from yarrow.datastream import OutputTag, WindowGroups
from yarrow.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("name", pa.string())])
#: Windows, and their size and slide.
WINDOWS: list[tuple[WindowAssigner[Any, Any], int, int]] = [
    (TumblingEventTimeWindows.of(Time.milliseconds(50)), 50, 50),
    (SlidingEventTimeWindows.of(Time.milliseconds(90), Time.milliseconds(60)), 90, 60),
]


@pytest.mark.slow
@pytest.mark.parametrize(("assigner", "size", "slide"), WINDOWS, ids=["tumbling", "sliding"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_are_those_of_a_list(
    assigner: WindowAssigner[Any, Any], size: int, slide: int, parallelism: int
) -> None:
    late = OutputTag("late")
    for seed in range(2):
        found, env = rows(seed, "a"), environment(parallelism)
        columns = timed(env, found).to_arrow(SCHEMA)
        windows = columns.key_by("k").window(assigner).side_output_late_data(late)
        made = windows.aggregate([("at", "sum"), ("name", "max"), (None, "count")])
        results = collect(env, made.to_rows(as_tuple=True), settings=SMALL, deal=shuffled(seed))
        content: dict[Any, list[Any]] = defaultdict(list)
        for row in found:
            first = row[1] // slide * slide
            for start in range(first, row[1] - size, -slide):
                content[row[0], start].append(row)
        expected = [
            (key, start, start + size, sum(row[1] for row in held), max(row[2] for row in held), len(held))
            for (key, start), held in content.items()
        ]
        assert sorted(results) == sorted(expected)


def test_sessions_are_those_of_a_list() -> None:
    found, env = rows(4, "a"), environment(3)
    columns = timed(env, found).to_arrow(SCHEMA)
    windows = columns.key_by("k").window(EventTimeSessionWindows.with_gap(Time.milliseconds(12)))
    made = windows.aggregate([("at", "min"), ("at", "max"), (None, "count")])
    results = collect(env, made.to_rows(as_tuple=True), settings=SMALL, deal=shuffled(4))
    expected: list[list[int]] = []
    for key, time, _ in sorted(found):
        if expected and expected[-1][0] == key and time <= expected[-1][2]:
            expected[-1][2] = time + 12
            expected[-1][4] = time
            expected[-1][5] += 1
        else:
            expected.append([key, time, time + 12, time, time, 1])
    assert sorted(results) == sorted(map(tuple, expected))


def test_no_row_is_late_in_bounded_input() -> None:
    late = OutputTag("late")
    found, env = rows(5, "a"), environment(2)
    columns = timed(env, found).to_arrow(SCHEMA)
    windows = columns.key_by("k").window(WINDOWS[0][0]).side_output_late_data(late)
    made = windows.count()
    assert collect(env, made.get_side_output(late).to_rows(), settings=SMALL, deal=shuffled(5)) == []


def names_of(batch: pa.RecordBatch, groups: WindowGroups) -> dict[str, Any]:
    offsets = pa.array(groups.offsets, pa.int32())
    return {
        "names": pa.ListArray.from_arrays(offsets, batch["name"]),
        "times": pa.ListArray.from_arrays(offsets, batch["at"]),
    }


@pytest.mark.parametrize("parallelism", [1, 3])
def test_aggregates_of_users_get_the_rows_of_a_list(parallelism: int) -> None:
    found, env = rows(6, "a"), environment(parallelism)
    windows = timed(env, found).to_arrow(SCHEMA).key_by("k").window(WINDOWS[1][0])
    schema = pa.schema([("names", pa.list_(pa.string())), ("times", pa.list_(pa.int64()))])
    made = windows.aggregate_batches(names_of, schema)
    results = collect(env, made.to_rows(as_tuple=True), settings=SMALL, deal=shuffled(6))
    content: dict[Any, list[Any]] = defaultdict(list)
    for row in found:
        for start in range(row[1] // 60 * 60, row[1] - 90, -60):
            content[row[0], start].append(row)
    assert all(list(times) == sorted(times) for *_, times in results)
    shown = [(*bounds, sorted(zip(times, names, strict=True))) for *bounds, names, times in results]
    expected = [
        (key, start, start + 90, sorted((row[1], row[2]) for row in held))
        for (key, start), held in content.items()
    ]
    assert sorted(shown) == sorted(expected)
