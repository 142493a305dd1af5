"""Statistics of row groups never exclude a row that meets a condition, and exclude groups by their bounds."""

from __future__ import annotations

import datetime as dt
import io
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from tests.support.modelled_conditions import CONDITIONS, ROWS, Modelled, batch_of
from yarrow.common.values.conditions import Condition
from yarrow.runtime.columns.group_statistics import GroupStatistics
from yarrow.table.expressions import col


def file_of(table: pa.Table, rows: int) -> pq.ParquetFile:
    stream = io.BytesIO()
    pq.write_table(table, stream, row_group_size=rows)
    return pq.ParquetFile(stream)


def kept(column: pa.Array, condition: Condition, rows: int = 2) -> list[int]:
    """The row groups of a file with the column `x` that a condition leaves."""
    file = file_of(pa.table({"x": column}), rows)
    statistics = GroupStatistics(file)
    return [group for group in range(file.num_row_groups) if statistics.may_have(group, condition)]


def test_whether_a_condition_fits_is_looked_at_once_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Condition] = []
    monkeypatch.setattr(
        "yarrow.runtime.columns.group_statistics.why_not_compared",
        lambda condition, schema: asked.append(condition),
    )
    statistics = GroupStatistics(file_of(pa.table({"x": [1, 2, 3, 4]}), 1))
    for condition, expected in (
        (col("x") > 2, [False, False, True, True]),
        (col("x") < 2, [True] + 3 * [False]),
    ):
        assert [statistics.may_have(group, condition) for group in range(4)] == expected
        assert asked.pop() is condition and not asked


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(ROWS.filter(bool), CONDITIONS)
def test_a_group_with_a_row_of_the_model_is_never_excluded(
    rows: list[dict[str, Any]], modelled: Modelled
) -> None:
    condition, model = modelled
    file = file_of(pa.Table.from_batches([batch_of(rows)]), 2)
    statistics = GroupStatistics(file)
    for group in range(file.num_row_groups):
        if any(model(row) for row in file.read_row_group(group).to_pylist()):
            assert statistics.may_have(group, condition)


@pytest.mark.parametrize(
    ("condition", "groups"),
    [
        (col("x") == 3, [1]),
        (col("x") != 3, [0, 1, 2]),
        (col("x") < 3, [0]),
        (col("x") <= 3, [0, 1]),
        (col("x") > 4, [2]),
        (col("x") >= 4, [1, 2]),
        (~(col("x") > 2), [0]),
        ((col("x") > 2) & (col("x") < 5), [1]),
        ((col("x") < 2) | (col("x") > 5), [0, 2]),
        (~((col("x") < 2) | (col("x") > 5)), [0, 1, 2]),
        (~(col("x") != 6), [2]),
        (col("x").is_null, []),
        (col("x") > 10**12, []),
    ],
)
def test_bounds_exclude_groups(condition: Condition, groups: list[int]) -> None:
    assert kept(pa.array([1, 2, 3, 4, 5, 6], pa.int32()), condition) == groups


def test_a_group_of_one_value_is_never_unequal_to_it() -> None:
    assert kept(pa.array([7, 7, 7, 8], pa.int64()), col("x") != 7) == [1]
    # The bounds of texts may be cut, so they are no values.
    assert kept(pa.array(["a", "a", "a", "b"]), col("x") != "a") == [0, 1]


def test_nulls_meet_no_comparison() -> None:
    column = pa.array([None, None, 1, None], pa.int64())
    assert kept(column, col("x") == 1) == [1]
    assert kept(column, ~(col("x") == 5)) == [1]
    assert kept(column, col("x").is_null) == [0, 1]
    assert kept(column, ~col("x").is_null) == [1]


def test_nan_is_not_among_the_bounds() -> None:
    column = pa.array([1.0, math.nan, 5.0, 5.0, math.nan, math.nan])
    assert kept(column, col("x") != 1.0) == [0, 1, 2]
    assert kept(column, ~(col("x") > 0.0)) == [0, 1, 2]
    assert 1 not in kept(column, col("x") < 2.0)


def test_large_numbers_without_a_sign_and_times_are_compared_as_what_they_are() -> None:
    large = pa.array([1, 2, 2**32 - 2, 2**32 - 1], pa.uint32())
    assert kept(large, col("x") > 10) == [1]
    assert kept(pa.array([1, 2, 2**63, 2**64 - 1], pa.uint64()), col("x") > 10) == [1]
    days = [dt.datetime(2024, 1, day) for day in (1, 2, 3, 4)]
    for unit in ("us", "ms"):
        assert kept(pa.array(days, pa.timestamp(unit)), col("x") > days[1]) == [1]
    # Nanoseconds are compared as cut ones.
    assert kept(pa.array(days, pa.timestamp("ns")), col("x") > days[1]) == [0, 1]


def test_what_statistics_do_not_tell_is_read() -> None:
    stream = io.BytesIO()
    pq.write_table(pa.table({"x": [1, 2]}), stream, write_statistics=False)
    assert GroupStatistics(pq.ParquetFile(stream)).may_have(0, col("x") > 5)
    # The operator names a column that cannot be compared.
    assert kept(pa.array([[1], [2]]), col("x") > 5) == [0]
    assert kept(pa.array([1, 2]), col("other") > 5) == [0]
