"""Columns that are aggregated before the shuffle: results are the same, and fewer rows are sent."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import BatchRun, collecting_graph, run_batch, shuffled
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types
from yarrow.container.batch.folding import combining_columns
from yarrow.container.operators.columnar.aggregate_columns import AggregationError
from yarrow.container.protocol.failure import OperatorFailure

SCHEMA = pa.schema(
    [
        ("key", pa.float64()),
        ("whole", pa.int32()),
        ("part", pa.float64()),
        ("word", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("flag", pa.bool_()),
    ]
)
AGGREGATES: list[Any] = [
    ("whole", "sum"),
    ("whole", "mean"),
    ("whole", "min"),
    ("part", "min"),
    ("part", "max"),
    ("word", "max"),
    ("price", "sum"),
    ("flag", "sum"),
    (None, "count"),
]


def run(
    rows: list[Any], aggregates: list[Any], schema: pa.Schema, *, combine: bool, **given: Any
) -> BatchRun:
    """`rows` are numbers of rows in `given["table"]`, or rows of (key, whole)."""
    table: pa.Table = given.get("table") or pa.Table.from_pylist(rows, schema)
    batches = table.combine_chunks().to_batches(max_chunksize=given.get("batch", 3))

    def of_number(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = [batches[number] for number in batch.column("number").to_pylist()]
        return pa.concat_batches(found) if found else pa.RecordBatch.from_pylist([], schema)

    env = environment(given.get("producers", 1))
    env.set_max_parallelism(4)
    numbers = env.from_collection([(n,) for n in range(len(batches))], Types.TUPLE([Types.LONG()]))
    columns = numbers.rebalance().to_arrow(pa.schema([("number", pa.int64())])).map_batches(of_number, schema)
    aggregated = columns.key_by("key").aggregate(aggregates)
    options = {"execution.batch.combine": str(combine).lower()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combining_columns, "MOST_KEYS", given.get("most_keys", 1000))
        return run_batch(collecting_graph(env, aggregated.to_rows()), options, deal=shuffled(1))


def shown(found: BatchRun) -> list[str]:
    return sorted(repr(tuple(row)) for row in found.rows())


def sent(found: BatchRun) -> int:
    """Rows that have come to the aggregate."""
    return sum(
        result.records_in
        for (vertex_id, _), result in found.results.items()
        if "Keyed" in found.graph.vertex(vertex_id).name
    )


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([0.0, -0.0, 1.5, math.nan, None]),
            "whole": st.one_of(st.none(), st.integers(-5, 5)),
            "part": st.one_of(st.none(), st.sampled_from([0.5, -0.0, 0.0, math.nan, math.inf])),
            "word": st.one_of(st.none(), st.sampled_from(["a", "b", ""])),
            "price": st.one_of(st.none(), st.decimals(-9, 9, places=2)),
            "flag": st.one_of(st.none(), st.booleans()),
        }
    ),
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(ROWS, st.integers(1, 3), st.sampled_from([1, 2, 1000]))
def test_results_do_not_show_what_was_aggregated(rows: list[Any], producers: int, most_keys: int) -> None:
    given: dict[str, Any] = {"producers": producers, "most_keys": most_keys}
    expected = run(rows, AGGREGATES, SCHEMA, combine=False, **given)
    assert shown(run(rows, AGGREGATES, SCHEMA, combine=True, **given)) == shown(expected)


SMALL = pa.schema([("key", pa.int64()), ("whole", pa.int64())])


def test_few_rows_are_sent_for_few_keys() -> None:
    rows = [{"key": n % 5, "whole": n} for n in range(1000)]
    found = run(rows, [("whole", "sum")], SMALL, combine=True, producers=2, batch=100)
    assert sent(found) <= 10
    assert found.rows()
    assert sent(run(rows, [("whole", "sum")], SMALL, combine=False, producers=2, batch=100)) == 1000


def test_batches_leave_as_they_come_where_keys_do_not_repeat() -> None:
    table = pa.table({"key": range(5000), "whole": [1] * 5000}, schema=SMALL)
    given: dict[str, Any] = {"table": table, "batch": 50, "most_keys": 100}
    found = run([], [("whole", "sum")], SMALL, combine=True, **given)
    assert sorted(tuple(row) for row in found.rows()) == [(n, 1) for n in range(5000)]
    assert sent(found) == 5000


def test_a_sum_that_only_one_producer_cannot_hold_is_no_failure() -> None:
    """Each producer's rows follow each other, and its sum alone is too large; the sum of all is not."""
    most = 2**63 - 1
    rows = [{"key": 1, "whole": value} for value in (most - 5, -most, 10, most - 10)]
    found = run(rows, [("whole", "sum")], SMALL, combine=True, batch=1)
    assert [tuple(row) for row in found.rows()] == [(1, most - 5)]


def test_a_sum_that_is_too_large_is_the_aggregates_failure() -> None:
    rows = [{"key": 1, "whole": 2**62} for _ in range(4)]
    with pytest.raises(OperatorFailure) as caught:
        run(rows, [("whole", "sum")], SMALL, combine=True, batch=1, producers=2)
    assert caught.value.operator_name == "Keyed Arrow Aggregation"
    assert isinstance(caught.value.__cause__, AggregationError)


def test_a_column_without_the_aggregate_is_the_aggregates_failure() -> None:
    schema = pa.schema([("key", pa.int64()), ("whole", pa.list_(pa.int64()))])
    with pytest.raises(OperatorFailure) as caught:
        run([{"key": 1, "whole": [1]}], [("whole", "sum")], schema, combine=True)
    assert caught.value.operator_name == "Keyed Arrow Aggregation"
