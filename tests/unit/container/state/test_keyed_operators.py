"""Keyed operators in a task: generated code over one dict, over many, and over a table that wants its keys told."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.total import Total
from tests.unit.container.state import prefetching
from yarrow.common.typeinfo import Types
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.datastream import DataStream
from yarrow.datastream.functions import (
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    RuntimeContext,
)
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
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

PREFETCHING = {"state.backend.type": f"{prefetching.__name__}:PrefetchingBackend"}
READING_AHEAD = {"state.backend.type": f"{prefetching.__name__}:ReadingAheadBackend"}
BACKENDS: dict[str, dict[str, str]] = {
    "heap": {},
    "prefetching": PREFETCHING,
    "reading ahead": READING_AHEAD,
}


def summed(stream: DataStream) -> DataStream:
    return stream.key_by(lambda row: row[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))


def backend_of(harness: OperatorHarness) -> Any:
    return harness.tasks[-1].chain.operators[0].context.state


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("divided", [False, True])
def test_keys_that_are_one_key_meet_in_any_form_of_the_table(backend: str, divided: bool) -> None:
    with OperatorHarness(summed, configuration=BACKENDS[backend], chunk_rows=3) as harness:
        harness.push(("first", 0))
        state = backend_of(harness)
        if divided and backend == "heap":
            table = state._tables["_aggregation"]
            table._flat_limit, table._slots, table._weights = 0, 5, (1, 2)
        rows = [(key, 1) for key in (1, True, 1.0, "a", None, (1, 2), 2.5, float("nan"), float("nan"), 1)]
        harness.push(*rows)
        harness.push(*rows)
        assert [row[1] for row in harness.output[1:]] == [
            1,
            2,
            3,
            1,
            1,
            1,
            1,
            1,
            2,
            4,
            5,
            6,
            7,
            2,
            2,
            2,
            2,
            3,
            4,
            8,
        ]
        if divided and backend == "heap":
            assert isinstance(state, HeapKeyedStateBackend)
            assert not state._tables["_aggregation"].flat
        assert state.entries == (7 if backend == "heap" else 0)


@pytest.fixture
def told() -> Iterator[list[list[Any]]]:
    prefetching.prefetched.clear()
    yield prefetching.prefetched
    prefetching.prefetched.clear()


def test_keys_of_a_chunk_are_told_before_its_rows_run(told: list[list[Any]]) -> None:
    with OperatorHarness(summed, configuration=PREFETCHING, chunk_rows=4) as harness:
        harness.push(*[(key, 1) for key in "abcab"])
    assert [key for keys in told for key in keys] == list("abcab")
    assert all(len(keys) <= 4 for keys in told)


class Cutting(ReduceFunction[Any]):
    """Has its chunk cut at some rows, as a mail from another thread does."""

    task: ClassVar[Any] = None
    #: Rows that the task had done when the mails ran.
    cuts: ClassVar[list[int]] = []

    def reduce(self, value1: Any, value2: Any) -> Any:
        if value2[1] == 7:
            Cutting.task.post(lambda: Cutting.cuts.append(Cutting.task.records_in))
        return (value1[0], value1[1] + value2[1])


@pytest.mark.parametrize("timestamps", [None, 5])
def test_a_chunk_whose_keys_are_told_is_cut_where_it_stands(
    told: list[list[Any]], timestamps: int | None
) -> None:
    def fragment(stream: DataStream) -> DataStream:
        return stream.key_by(lambda row: row[0]).reduce(Cutting())

    with OperatorHarness(fragment, configuration=PREFETCHING, chunk_rows=100) as harness:
        Cutting.task = harness.tasks[0]
        Cutting.cuts.clear()
        # A chunk has four times as many rows as the one before at most.
        for _ in range(3):
            harness.push(*[("first", 0)] * 50)
        before = harness.tasks[0].records_in
        told.clear()
        rows = [("a", 1), ("a", 7), ("a", 1), ("b", 1), ("b", 7), ("a", 1)]
        harness.push(*rows, timestamps=None if timestamps is None else [timestamps] * len(rows))
        assert harness.output[-6:] == [("a", 1), ("a", 8), ("a", 9), ("b", 1), ("b", 8), ("a", 10)]
    assert told == [list("aaabba"), list("abba"), list("a")]
    assert Cutting.cuts == [before + 2, before + 5]


@pytest.mark.parametrize("timestamps", [None, 5])
def test_keys_that_are_told_for_several_chunks_are_told_once(
    told: list[list[Any]], timestamps: int | None
) -> None:
    def fragment(stream: DataStream) -> DataStream:
        return stream.key_by(lambda row: row[0]).reduce(Cutting())

    keys = [letter for number in range(40) for letter in "abcab"[: 1 + number % 5]]
    rows = [(key, 7 if number % 11 == 3 else 1) for number, key in enumerate(keys)]
    expected: list[tuple[str, int]] = []
    sums = dict.fromkeys("abc", 0)
    for key, amount in rows:
        sums[key] += amount
        expected.append((key, sums[key]))
    with OperatorHarness(fragment, configuration=READING_AHEAD, chunk_rows=5) as harness:
        Cutting.task = harness.tasks[0]
        # One loop is made for rows without timestamps and one for those with, each at its first chunk.
        stamps = None if timestamps is None else [timestamps]
        harness.push(("first", 0), timestamps=stamps)
        harness.push(("first", 0), timestamps=stamps)
        told.clear()
        harness.push(*rows, timestamps=None if timestamps is None else [timestamps] * len(rows))
        assert harness.output[2:] == expected
    assert [key for part in told for key in part] == keys
    assert len(told) < len(keys)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_of_the_key_selector_names_its_record_behind_the_rows_before_it(backend: str) -> None:
    def fragment(stream: DataStream) -> DataStream:
        return stream.key_by(lambda row: 10 // row).map(Chatty()).name("chatty")

    with (
        OperatorHarness(fragment, configuration=BACKENDS[backend]) as harness,
        pytest.raises(FragmentFailedError, match=r"(?s)ZeroDivisionError.*'chatty'.*had the record 0\n"),
    ):
        harness.push(4, 4, 0, 4)
    assert Chatty.seen == [4, 4]


class Chatty(MapFunction[int, int]):
    """Tells which rows it was called with."""

    seen: ClassVar[list[int]] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        Chatty.seen.clear()

    def map(self, value: int) -> int:
        Chatty.seen.append(value)
        return value


class Opened(ReduceFunction[int]):
    """A function of a state, which is opened and closed like one of an operator."""

    events: ClassVar[list[str]] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        Opened.events.append("open")

    def close(self) -> None:
        Opened.events.append("close")

    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class AllStates(KeyedProcessFunction[Any, Any, Any]):
    """Uses every kind of keyed state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.value: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("value", Types.LONG()))
        self.list: ListState[int] = runtime_context.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map: MapState[int, int] = runtime_context.get_map_state(
            MapStateDescriptor("map", Types.LONG(), Types.LONG())
        )
        self.reducing = runtime_context.get_reducing_state(
            ReducingStateDescriptor("reducing", Opened(), Types.LONG())
        )
        self.aggregating = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("aggregating", Total(), Types.LONG())
        )

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = value[1]
        self.value.update((self.value.value() or 0) + number)
        self.list.add(number)
        self.map[number % 2] = (self.map[number % 2] or 0) + number
        self.reducing.add(number)
        self.aggregating.add(number)
        yield (
            value[0],
            self.value.value(),
            list(self.list),
            dict(self.map.items()),
            self.reducing.get(),
            self.aggregating.get(),
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_get_every_kind_of_state(backend: str, told: list[list[Any]]) -> None:
    Opened.events.clear()

    def fragment(stream: DataStream) -> DataStream:
        return stream.key_by(lambda row: row[0]).process(AllStates())

    with OperatorHarness(fragment, configuration=BACKENDS[backend]) as harness:
        harness.push(("a", 1), ("b", 5), ("a", 2))
        assert harness.output[-2:] == [
            ("b", 5, [5], {1: 5}, 5, 5),
            ("a", 3, [1, 2], {1: 1, 0: 2}, 3, 3),
        ]
        found = {name: value for name, value in harness.metrics(-1).items() if "keyedStateEntries" in name}
        assert list(found.values()) == [10]
    keys = [key for keys in told for key in keys]
    assert keys == ([] if backend == "heap" else ["a", "b", "a"])
    # The function was pickled with the job; its class is this one.
    assert Opened.events == ["open", "close"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0, "a", 2.5, None]), st.integers(-5, 5)), max_size=30),
    st.lists(st.integers(1, 7), min_size=1, max_size=5),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_neither_batches_nor_the_order_of_keys_change_a_result(
    backend: str, rows: list[tuple[Any, int]], sizes: list[int], chunk_rows: int, random: Any
) -> None:
    def fragment(stream: DataStream) -> DataStream:
        return stream.key_by(lambda row: row[0]).process(AllStates())

    def results(rows: list[tuple[Any, int]], sizes: list[int], chunk_rows: int) -> dict[Any, list[Any]]:
        with OperatorHarness(fragment, configuration=BACKENDS[backend], chunk_rows=chunk_rows) as harness:
            remaining = list(rows)
            for size in cycle(sizes):
                if not remaining:
                    break
                harness.push(*remaining[:size])
                del remaining[:size]
            found: dict[Any, list[Any]] = {}
            for row in harness.output:
                found.setdefault(row[0], []).append(row)
            return found

    keys = sorted({key for key, _ in rows}, key=lambda key: random.random())
    by_key = [row for key in keys for row in rows if row[0] == key]
    assert results(by_key, sizes, chunk_rows) == results(rows, [1000], 1000)


class Counting(ReduceFunction[Any]):
    """Sums, and counts in keyed state of its own how often it was called for the key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("calls", Types.LONG()))

    def reduce(self, value1: Any, value2: Any) -> Any:
        self.calls.update((self.calls.value() or 0) + 1)
        return (value1[0], value1[1] + value2[1], self.calls.value())


class Summing(ReduceFunction[Any]):
    """The same without state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        assert runtime_context.get_index_of_this_subtask() == 0

    def reduce(self, value1: Any, value2: Any) -> Any:
        return (value1[0], value1[1] + value2[1], 0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chained", [False, True])
def test_a_reduce_function_has_keyed_state_of_the_key_at_hand(backend: str, chained: bool) -> None:
    def fragment(stream: DataStream) -> DataStream:
        keyed = stream.key_by(lambda row: row[0]).reduce(Counting())
        return keyed.map(lambda row: row) if chained else keyed

    with OperatorHarness(fragment, configuration=BACKENDS[backend]) as harness:
        # The same key in two forms: equal keys are one.
        harness.push(("a", 1, 0), ("b", 10, 0), ("a", 2, 0), (1, 5, 0), (1.0, 6, 0))
        harness.push(("b", 20, 0), ("a", 3, 0), (True, 7, 0))
        assert [row for row in harness.output if row[0] == "a"] == [("a", 1, 0), ("a", 3, 1), ("a", 6, 2)]
        assert [row for row in harness.output if row[0] == "b"] == [("b", 10, 0), ("b", 30, 1)]
        assert [row[1:] for row in harness.output if row[0] == 1] == [(5, 0), (11, 1), (18, 2)]


def test_a_reduce_function_without_state_costs_nothing_more() -> None:
    code = {}
    for function in (Counting(), Summing()):
        with OperatorHarness(lambda s, f=function: s.key_by(lambda row: row[0]).reduce(f)) as harness:
            harness.push(("a", 1, 0), ("a", 2, 0))
            code[type(function)] = harness.generated_code
    assert "current_key" in code[Counting]
    assert "current_key" not in code[Summing]


class Asking(ReduceFunction[int]):
    """Asks its context for something."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def open(self, runtime_context: RuntimeContext) -> None:
        self._ask(runtime_context)

    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


@pytest.mark.parametrize(
    "ask",
    [
        lambda context: context.get_state(ValueStateDescriptor("inner", Types.LONG())),
        lambda context: context.get_index_of_this_subtask(),
        lambda context: context.get_metrics_group(),
    ],
)
def test_the_function_of_a_state_has_no_runtime_context(ask: Any) -> None:
    class Holder(KeyedProcessFunction[Any, Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_reducing_state(ReducingStateDescriptor("held", Asking(ask), Types.LONG()))

        def process_element(self, value: Any, ctx: Any) -> Any:
            return None

    with pytest.raises(
        FragmentFailedError, match=r"function of state 'held' called get_.*have no runtime context"
    ):
        OperatorHarness(lambda s: s.key_by(lambda row: row).process(Holder()))


def test_a_changed_value_fails_the_job_in_debug_mode() -> None:
    class Careless(KeyedProcessFunction[Any, Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.state: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("seen"))

        def process_element(self, value: Any, ctx: Any) -> Any:
            seen = self.state.value()
            if seen is None:
                self.state.update([value])
            else:
                seen.append(value)

    def fragment(stream: DataStream) -> DataStream:
        return stream.key_by(lambda row: row).process(Careless())

    with OperatorHarness(fragment) as harness:
        harness.push("k", "k", "k")
    with (
        OperatorHarness(fragment, configuration={"state.backend.debug": "true"}) as harness,
        pytest.raises(FragmentFailedError, match=r"state 'seen': user code changed the value of key 'k'"),
    ):
        harness.push("k", "k", "other")
