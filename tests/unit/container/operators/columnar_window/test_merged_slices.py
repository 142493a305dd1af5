"""Merges that windows share, against merges of each window alone: results, and how many merges a window costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.operators.columnar.aggregate_states import state_for
from yarrow.container.operators.columnar_window.merged_slices import MergedSlices
from yarrow.container.operators.columnar_window.slice_parts import BatchRows, parts_of
from yarrow.container.operators.columnar_window.slice_states import SliceStates
from yarrow.container.operators.time_slices import TimeSlices
from yarrow.runtime.graph.operator_spec import AggregateKind

SUM, MIN, MAX, MEAN, COUNT = (
    AggregateKind.SUM, AggregateKind.MIN, AggregateKind.MAX, AggregateKind.MEAN, AggregateKind.COUNT,
)  # fmt: skip
#: Kind of an aggregate, and the type of its column.
EXACT = [(SUM, pa.int64()), (MIN, pa.int32()), (MAX, pa.bool_()), (MEAN, pa.int16()), (COUNT, None)]
FLOATS = [(SUM, pa.float64()), (MIN, pa.float32()), (MAX, pa.float64()), (MEAN, pa.float64())]
OTHERS = [(MIN, pa.string()), (SUM, pa.decimal128(25, 2))]
#: More slots than slices have arrays for at first, so that few keys are merged one by one and many as arrays.
SLOTS = 40


def making(aggregates: list[Any]) -> Callable[[], SliceStates]:
    return lambda: SliceStates([state_for(kind, column) for kind, column in aggregates])


def column_of(kind: Any, numbers: list[int | None]) -> Any:
    if kind is None:
        return None
    if pa.types.is_boolean(kind):
        return pa.array([None if number is None else number > 0 for number in numbers], kind)
    if pa.types.is_floating(kind):
        shares = [None if number is None else np.nan if number == 7 else number / 4 for number in numbers]
        return pa.array(shares, kind)
    return pa.array(numbers).cast(pa.string() if pa.types.is_string(kind) else pa.int64()).cast(kind)


def shown(states: SliceStates, slots: Any) -> list[Any]:
    """Results with NaN as a text, which equals itself."""
    return [[str(value) for value in column.to_pylist()] for column in states.values(slots)]


rows_of = st.lists(
    st.tuples(st.integers(0, 59), st.integers(0, SLOTS - 1), st.none() | st.integers(-9, 9)), max_size=60
)


@pytest.mark.slow
@pytest.mark.parametrize("aggregates", [EXACT, FLOATS, OTHERS], ids=["exact", "floats", "others"])
@settings(max_examples=15, deadline=None)
@given(
    batches=st.lists(rows_of, min_size=1, max_size=6),
    layout=st.sampled_from(
        [TimeSlices(12, 3), TimeSlices(10, 2, 1), TimeSlices(15, 6), TimeSlices(20, 4, cumulative=True)]
    ),
)
def test_windows_are_those_of_slices_merged_alone(
    aggregates: list[Any], batches: list[Any], layout: TimeSlices
) -> None:
    """A batch comes before each window; its rows may come behind windows that have been merged."""
    make = making(aggregates)
    slices: dict[int, SliceStates] = {}
    merged = MergedSlices(layout, lambda start: slices.get(start), make)
    window_ends = sorted({end for start in range(-20, 60) for end in layout.ends_of(layout.slice_of(start))})
    for number, end in enumerate(window_ends):
        for time, slot, value in batches[number] if number < len(batches) else []:
            start = layout.slice_of(time)
            merged.changed(start)
            columns = [column_of(kind, [value]) for _, kind in aggregates]
            slices.setdefault(start, make()).update(np.array([slot]), columns, SLOTS)
        alone = make()
        for start in layout.slices_of(end):
            if start in slices:
                slots = slices[start].slots()
                alone.merge(slots, slices[start], slots, SLOTS)
        found = merged.window(end, SLOTS)
        assert found.slots().tolist() == alone.slots().tolist()
        assert shown(found, found.slots()) == shown(alone, alone.slots())


@pytest.mark.parametrize("size", [60, 600])
def test_a_window_costs_three_merges_at_most_whatever_its_size(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, layout = making([(SUM, pa.int64())]), TimeSlices(size, 1)
    slices = {}
    for start in range(4 * size):
        slices[start] = make()
        slices[start].update(np.array([0]), [pa.array([1])], 1)
    taken: list[SliceStates] = []
    absorb = SliceStates.absorb

    def counting(states: SliceStates, other: SliceStates, size: int) -> None:
        taken.append(other)
        absorb(states, other, size)

    monkeypatch.setattr(SliceStates, "absorb", counting)
    merged = MergedSlices(layout, slices.get, make)
    for end in range(size, 3 * size):
        assert merged.window(end, 1).values(np.array([0]))[0].to_pylist() == [size]
    # The beginning of a block takes each slice once. Ends of a block, and windows, are made of two parts each. The
    # first window finds nothing merged.
    assert len(taken) <= (1 + 2 + 2) * 2 * size + size


def test_a_firing_that_is_cut_merges_its_window_once() -> None:
    make = making([(COUNT, None)])
    states = make()
    states.update(np.array([0]), [None], 1)
    merged = MergedSlices(TimeSlices(12, 3), {3: states}.get, make)
    first = merged.window(12, 1)
    assert merged.window(12, 1) is first
    merged.changed(15)
    assert merged.window(12, 1) is first
    merged.changed(6)
    assert merged.window(12, 1) is not first


# ---------------------------------------------------------------------- the parts of a batch


@pytest.mark.parametrize("aggregates", [EXACT, FLOATS], ids=["exact", "floats"])
@settings(max_examples=15, deadline=None)
@given(rows=rows_of.filter(bool), size=st.sampled_from([SLOTS, 400]))
def test_parts_of_a_batch_bring_each_slice_its_rows(aggregates: list[Any], rows: Any, size: int) -> None:
    """Few keys are aggregated for all slices at once; many are not."""
    make, layout = making(aggregates), TimeSlices(10, 10)
    times, slots, values = (list(column) for column in zip(*(rows * 8), strict=True))
    columns = [column_of(kind, values) for _, kind in aggregates]
    batch = BatchRows(np.array(times), np.array(slots), columns, size)
    found: dict[int, SliceStates] = {}
    for part in parts_of(batch, layout, make):
        assert part.start not in found
        found[part.start] = make()
        part.add_to(found[part.start])
        assert {*part.slots.tolist()} == {*found[part.start].slots().tolist()}
    assert sorted(found) == sorted({layout.slice_of(time) for time in times})
    for start, states in found.items():
        own = [at for at, time in enumerate(times) if layout.slice_of(time) == start]
        alone = make()
        alone.update(batch.slots[own], [c if c is None else c.take(pa.array(own)) for c in columns], size)
        assert shown(states, states.slots()) == shown(alone, alone.slots())


def test_float_sums_do_not_depend_on_how_rows_come_in_batches() -> None:
    """A replay after a failure cuts batches elsewhere, and gives the same sums to the last bit."""
    make, layout = making([(SUM, pa.float64())]), TimeSlices(10, 10)
    values = [1e16, 1.0, -1e16, 1.0] * 4
    times = np.array([3, 4, 5, 15] * 4)

    def summed(cuts: list[int]) -> Any:
        slices: dict[int, SliceStates] = {}
        for first, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
            batch = BatchRows(
                times[first:end], np.zeros(end - first, np.int64), [pa.array(values[first:end])], 1
            )
            for part in parts_of(batch, layout, make):
                part.add_to(slices.setdefault(part.start, make()))
        return {start: states.values(np.array([0]))[0].to_pylist() for start, states in slices.items()}

    assert summed([]) == summed([3, 7, 8]) == summed(list(range(1, 16)))
