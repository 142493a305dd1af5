"""Columnar aggregates cut off by a snapshot and continued from it, at other parallelisms too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.stored_keys import key_groups
from tests.unit.container.operators.columnar.columns import KEY_COLUMNS, array_of
from tests.unit.container.operators.columnar.test_aggregation import VALUE_COLUMNS
from tests.unit.container.state.contexts import (
    CHECKPOINT,
    MAX_PARALLELISM,
    InlineOutput,
    context,
    snapshot_of,
)
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

K = AggregateKind
ALL = (K.SUM, K.MIN, K.MAX, K.MEAN, K.COUNT)


class Subtask:
    """One subtask of the aggregation, restored from handles."""

    def __init__(
        self,
        kinds: Sequence[AggregateKind],
        handles: Sequence[KeyedStateHandle] = (),
        subtask: int = 0,
        parallelism: int = 1,
    ) -> None:
        aggregates = tuple(ColumnAggregate(kind, "value", kind.value) for kind in kinds)
        self.operator = VectorizedAggregation(
            "totals", ArrowAggregateOperator(key_column="key", aggregates=aggregates)
        )
        made = context(subtask=subtask, parallelism=parallelism, restored=handles)
        self.backend = HeapKeyedStateBackend(made)
        self.backend.register_section(STATE_NAME, self.operator)

    def run(self, batch: Any) -> dict[Any, dict[str, Any]]:
        """The row emitted for each canonical key."""
        found = {}
        for result in self.operator.process_batch(ArrowBatch(batch)):
            for row in result.batch.to_pylist():
                key = row.pop("key")
                found[canonicalize(Row(**key) if isinstance(key, dict) else key)] = row
        return found


def batch_of(keys: Any, values: Any) -> Any:
    return pa.record_batch([keys, values], names=["key", "value"])


def check(kinds: Sequence[AggregateKind], first: Any, between: Any, second: Any) -> None:
    golden = Subtask(kinds)
    golden.run(first)
    before = Subtask(kinds)
    before.run(first)
    pending = before.backend.snapshot(1, CHECKPOINT)
    before.run(between)
    restored = Subtask(kinds, pending.write(InlineOutput()))
    again = Subtask(kinds, snapshot_of(restored.backend))
    expected = repr(sorted(golden.run(second).items(), key=repr))
    assert repr(sorted(restored.run(second).items(), key=repr)) == expected
    assert repr(sorted(again.run(second).items(), key=repr)) == expected
    assert restored.operator.entry_count == again.operator.entry_count == golden.operator.entry_count


@pytest.mark.slow
@pytest.mark.parametrize("name", KEY_COLUMNS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_type_of_key_comes_back(name: str, data: st.DataObject) -> None:
    kind, keys_of = KEY_COLUMNS[name]
    batches = []
    for _ in range(3):
        keys = data.draw(st.lists(st.none() | keys_of, min_size=1, max_size=20))
        values = data.draw(st.lists(st.none() | st.integers(-9, 9), min_size=len(keys), max_size=len(keys)))
        batches.append(batch_of(array_of(keys, kind), pa.array(values, pa.int64())))
    check(ALL, *batches)


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUE_COLUMNS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_aggregate_of_every_type_of_value_comes_back(name: str, data: st.DataObject) -> None:
    kind, values_of, kinds = VALUE_COLUMNS[name]
    batches = []
    for _ in range(3):
        rows = data.draw(
            st.lists(st.tuples(st.integers(0, 3), st.none() | values_of), min_size=1, max_size=20)
        )
        values = array_of([value for _, value in rows], kind)
        batches.append(batch_of(pa.array([key for key, _ in rows], pa.int64()), values))
    check((*kinds, K.COUNT), *batches)


def test_rescaled_again_and_again_the_totals_are_the_same() -> None:
    generator = np.random.default_rng(1)
    golden = Subtask(ALL)
    subtasks, handles = 2, list[KeyedStateHandle]()
    for following in (3, 1, 4, 0):
        keys = pa.array(generator.integers(0, 3000, 20_000))
        batch = batch_of(keys, pa.array(generator.integers(-5, 5, 20_000)))
        expected = golden.run(batch)
        groups = key_groups(keys, MAX_PARALLELISM)
        found: dict[Any, Any] = {}
        written: list[KeyedStateHandle] = []
        for index in range(subtasks):
            owned = key_group_range_for_operator_index(MAX_PARALLELISM, subtasks, index)
            part = Subtask(ALL, handles, index, subtasks)
            found |= part.run(batch.filter(pa.array((groups >= owned.start) & (groups <= owned.end))))
            written += snapshot_of(part.backend)
        assert found == expected
        subtasks, handles = following, written


def test_changed_columns_are_refused_by_name() -> None:
    first = Subtask((K.MAX,))
    first.run(batch_of(pa.array(["a"]), pa.array([1], pa.timestamp("s"))))
    handles = snapshot_of(first.backend)
    with pytest.raises(
        AggregationError, match=r"'totals'.*max\(value\).*timestamp\[s\], not of timestamp\[us\]"
    ):
        Subtask((K.MAX,), handles).run(batch_of(pa.array(["a"]), pa.array([1], pa.timestamp("us"))))
    with pytest.raises(AggregationError, match=r"'totals'.*no aggregate min\(value\), only max\(value\)"):
        Subtask((K.MAX, K.MIN), handles).run(batch_of(pa.array(["a"]), pa.array([1], pa.timestamp("s"))))
    with pytest.raises(AggregationError, match=r"'totals'.*key column 'key'.*not all keys are of type int64"):
        Subtask((K.MAX,), handles).run(batch_of(pa.array([1]), pa.array([1], pa.timestamp("s"))))
