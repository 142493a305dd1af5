"""Where batches are cut and how keys are mixed never changes what a key puts out, whatever the kind of its state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.savepoints.all_kinds import Mean
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream
from yarrow.datastream.functions import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from yarrow.testing.operator_harness import OperatorHarness

LONG = Types.LONG()


class EveryKind(KeyedProcessFunction[str, tuple[str, int], Any]):
    """Puts out all that is kept of a key at each of its rows, and once more by a timer at the end."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", LONG))
        self.values: ListState[int] = runtime_context.get_list_state(ListStateDescriptor("values", LONG))
        self.last: MapState[int, int] = runtime_context.get_map_state(MapStateDescriptor("last", LONG, LONG))
        self.product = runtime_context.get_reducing_state(
            ReducingStateDescriptor("product", lambda a, b: (31 * a + b) % 1009, LONG)
        )
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([LONG, LONG]))
        )

    def process_element(self, value: tuple[str, int], ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.values.add(value[1])
        self.last.put(value[1] % 3, count)
        if value[1] % 7 == 0:
            self.last.remove((value[1] + 1) % 3)
        self.product.add(value[1])
        self.mean.add(value[1])
        ctx.timer_service().register_event_time_timer(1000)
        yield self._all(value[0])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield self._all(ctx.get_current_key())

    def _all(self, key: str) -> Any:
        last = sorted(self.last.items())
        return (key, self.count.value(), list(self.values.get()), last, self.product.get(), self.mean.get())


def counted(stream: DataStream) -> DataStream:
    return stream.key_by(lambda row: row[0], Types.STRING()).process(EveryKind())


def by_key(
    backend: str, rows: list[tuple[str, int]], cuts: list[int], chunk_rows: int
) -> dict[str, list[Any]]:
    configuration = {"state.backend.type": backend}
    with OperatorHarness(counted, configuration=configuration, chunk_rows=chunk_rows) as harness:
        edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
        for start, end in pairwise(edges):
            harness.push(*rows[start:end])
        harness.end()
        found: dict[str, list[Any]] = defaultdict(list)
        for row in harness.output:
            found[row[0]].append(row)
        return dict(found)


def mixed(rows: list[tuple[str, int]], keys: list[str]) -> list[tuple[str, int]]:
    """The rows with those of each key in their order, and the keys in another: that of `keys` first."""
    waiting: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in rows:
        waiting[row[0]].append(row)
    order = [key for key in keys if waiting[key]] + [row[0] for row in reversed(rows)]
    return [waiting[key].pop(0) for key in order if waiting[key]]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@settings(max_examples=25)
@given(
    rows=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 50)), max_size=40),
    keys=st.lists(st.sampled_from("abcd"), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    chunk_rows=st.integers(1, 9),
)
def test_cuts_and_the_order_of_keys_never_change_results(
    backend: str, rows: list[tuple[str, int]], keys: list[str], cuts: list[int], chunk_rows: int
) -> None:
    other = mixed(rows, keys)
    assert sorted(other) == sorted(rows)
    whole = by_key("hashmap", rows, [], 100)
    assert by_key(backend, other, cuts, chunk_rows) == whole
