"""Aggregates by several key columns against plain Python: all key columns in the result, state cut off and taken up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.stored_keys import key_groups_of_columns
from tests.unit.container.operators.columnar.columns import KEY_COLUMNS, array_of, cut
from tests.unit.container.state.contexts import MAX_PARALLELISM, context, snapshot_of
from yarrow.common.types import Row
from yarrow.container.operators.columnar.aggregate_columns import AggregationError
from yarrow.container.operators.columnar.columnar_aggregation import STATE_NAME, VectorizedAggregation
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.data.key_groups import key_group_range_for_operator_index
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.graph.column_spec import ArrowAggregateOperator
from yarrow.runtime.graph.operator_spec import AggregateKind, ColumnAggregate
from yarrow.runtime.snapshot.handles import KeyedStateHandle
from yarrow.testing.operator_harness import OperatorHarness

K = AggregateKind
_SUM_AND_COUNT = (ColumnAggregate(K.SUM, "value", "sum"), ColumnAggregate(K.COUNT, None, "count"))


class Subtask:
    """One subtask of the aggregation with its state."""

    def __init__(
        self,
        keys: tuple[str, ...],
        handles: Sequence[KeyedStateHandle] = (),
        subtask: int = 0,
        parallelism: int = 1,
    ) -> None:
        self.keys = keys
        spec = ArrowAggregateOperator(key_column=keys, aggregates=_SUM_AND_COUNT)
        self.operator = VectorizedAggregation("totals", spec)
        self.backend = HeapKeyedStateBackend(
            context(subtask=subtask, parallelism=parallelism, restored=handles)
        )
        self.backend.register_section(STATE_NAME, self.operator)

    def run(self, batch: ArrowBatch) -> dict[Any, tuple[Any, int]]:
        """Sum and count emitted for each canonical key."""
        found: dict[Any, tuple[Any, int]] = {}
        for result in self.operator.process_batch(batch):
            assert result.batch.schema.names == [*self.keys, "sum", "count"]
            for row in result.batch.to_pylist():
                key = _canonical([row[name] for name in self.keys])
                assert key not in found, "a key came twice in one result"
                found[key] = (row["sum"], row["count"])
        return found


def _canonical(values: Sequence[Any]) -> Any:
    return canonicalize(tuple(Row(**value) if isinstance(value, dict) else value for value in values))


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_totals_are_those_of_plain_python_also_across_a_snapshot(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(KEY_COLUMNS)), min_size=2, max_size=3))
    count = data.draw(st.integers(1, 30))
    keys = [
        data.draw(st.lists(st.none() | KEY_COLUMNS[name][1], min_size=count, max_size=count))
        for name in names
    ]
    values = data.draw(st.lists(st.none() | st.integers(-99, 99), min_size=count, max_size=count))
    columns = {
        f"k{at}": array_of(part, KEY_COLUMNS[name][0])
        for at, (name, part) in enumerate(zip(names, keys, strict=True))
    }
    batches = cut(
        {**columns, "value": pa.array(values, pa.int64())},
        data.draw(st.lists(st.integers(0, 30), max_size=4)),
    )
    model: dict[Any, tuple[Any, int]] = {}
    for row, value in zip(zip(*keys, strict=True), values, strict=True):
        key = _canonical(row)
        total, rows = model.get(key, (None, 0))
        model[key] = ((total or 0) + value if value is not None else total, rows + 1)

    final: dict[Any, tuple[Any, int]] = {}
    subtask, cut_behind = Subtask(tuple(columns)), data.draw(st.integers(0, len(batches)))
    for number, batch in enumerate(batches):
        if number == cut_behind:
            subtask = Subtask(tuple(columns), snapshot_of(subtask.backend))
        final |= subtask.run(batch)
    assert final == model


def test_rescaled_again_and_again_the_totals_are_the_same() -> None:
    generator = np.random.default_rng(1)
    golden = Subtask(("a", "b"))
    subtasks, handles = 2, list[KeyedStateHandle]()
    for following in (3, 1, 4, 0):
        a = pa.array(generator.integers(0, 60, 10_000))
        b = pa.array([f"b{number}" for number in generator.integers(0, 50, 10_000)])
        batch = pa.record_batch({"a": a, "b": b, "value": pa.array(generator.integers(-5, 5, 10_000))})
        expected = golden.run(ArrowBatch(batch))
        groups = key_groups_of_columns([a, b], MAX_PARALLELISM)
        found: dict[Any, Any] = {}
        written: list[KeyedStateHandle] = []
        for index in range(subtasks):
            owned = key_group_range_for_operator_index(MAX_PARALLELISM, subtasks, index)
            part = Subtask(("a", "b"), handles, index, subtasks)
            own = batch.filter(pa.array((groups >= owned.start) & (groups <= owned.end)))
            found |= part.run(ArrowBatch(own))
            written += snapshot_of(part.backend)
        assert found == expected
        subtasks, handles = following, written


def test_errors_name_the_columns_and_the_key() -> None:
    operator = Subtask(("a", "b"))
    with pytest.raises(AggregationError, match=r"'totals': key column 'b': a column of Arrow type list"):
        operator.run(ArrowBatch(pa.record_batch({"a": [1], "b": [[1]], "value": [1]})))
    with pytest.raises(AggregationError, match=r"the batch has no column named 'b'"):
        Subtask(("a", "b")).run(ArrowBatch(pa.record_batch({"a": [1], "value": [1]})))
    most = 2**63 - 1
    with pytest.raises(AggregationError, match=r"sum of column 'value' for the key \(1, 'x'\)"):
        Subtask(("a", "b")).run(
            ArrowBatch(pa.record_batch({"a": [1, 1], "b": ["x", "x"], "value": [most, most]}))
        )
    operator = Subtask(("a", "b"))
    operator.run(ArrowBatch(pa.record_batch({"a": [1], "b": ["x"], "value": [1]})))
    handles = snapshot_of(operator.backend)
    with pytest.raises(
        AggregationError,
        match=r"do not fit the key columns 'a', 'b', 'c'.*\(1, 'x'\) is no tuple of 3 values",
    ):
        Subtask(("a", "b", "c"), handles).run(
            ArrowBatch(pa.record_batch({"a": [1], "b": ["x"], "c": [2], "value": [1]}))
        )


def test_in_the_harness_all_key_columns_are_in_the_result() -> None:
    schema = pa.schema([("city", pa.string()), ("day", pa.int32()), ("amount", pa.int64())])
    with OperatorHarness(
        lambda stream: stream.key_by("city", "day").sum("amount"), types=[schema]
    ) as harness:
        for rows in (
            [("Rom", 1, 5), ("Rom", 2, 7), ("Rom", 1, 1), (None, 1, 2)],
            [("Rom", 2, 1), (None, 1, 1)],
        ):
            columns = [
                pa.array(values, field.type)
                for values, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            harness.push_batch(pa.record_batch(columns, schema=schema))
        assert [batch.to_pydict() for batch in harness.record_batches()] == [
            {"city": ["Rom", "Rom", None], "day": [2, 1, 1], "amount_sum": [7, 6, 2]},
            {"city": ["Rom", None], "day": [2, 1], "amount_sum": [8, 3]},
        ]


def test_views_of_text_are_key_columns() -> None:
    texts = pa.array(["a", None, "a text that is longer than a view holds in itself", "a"]).cast(
        pa.string_view()
    )
    columns = {"a": texts, "b": pa.array([1, 1, 1, 1]), "value": pa.array([1, 2, 3, 4])}
    found = Subtask(("a", "b")).run(ArrowBatch(pa.record_batch(columns)))
    assert found == {("a", 1): (5, 2), (None, 1): (2, 1), (texts[2].as_py(), 1): (3, 1)}
