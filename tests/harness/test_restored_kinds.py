"""State under the uid of an operator that is of another kind now: a restore refuses it, or drops it by request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pytest

from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.container.operators.cep.pending_rows import PENDING_ROWS
from yarrow.container.operators.columnar.columnar_aggregation import STATE_NAME as AGGREGATES
from yarrow.container.operators.columnar_join.columnar_join import SIDES
from yarrow.container.operators.columnar_pattern.pending_batches import PENDING_BATCHES
from yarrow.container.operators.columnar_window.columnar_windows import STATE_NAME as COLUMNAR_WINDOWS
from yarrow.container.operators.event_time_order.ordering import WAITING_ROWS
from yarrow.container.operators.join.immediate_join import KEPT_ROWS
from yarrow.container.operators.join.interval_join import LEFT_ROWS
from yarrow.container.operators.join.key_rows import ROWS
from yarrow.container.operators.window.evicting_windows import CONTENTS_WITH_TIMES
from yarrow.container.operators.window.stored_forms import COUNTS, SESSIONS, SLICES
from yarrow.container.operators.window.window_contents import CONTENTS
from yarrow.datastream import DataStream, ProcessJoinFunction, WindowedStream
from yarrow.datastream.functions import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    RuntimeContext,
)
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.datastream.window import (
    CountTrigger,
    TumblingEventTimeWindows,
)
from yarrow.runtime.graph.engine_specs import any_engine_spec
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot.assignment import assign
from yarrow.runtime.snapshot.errors import SavepointMismatchError
from yarrow.runtime.snapshot.savepoint_check import (
    _WRITERS,
    _WRITERS_WITHOUT_KEYS,
    Outcome,
    check_savepoint,
)
from yarrow.state_processor import SavepointEnvironment, SavepointWriter
from yarrow.testing import HarnessSnapshot, HarnessState, OperatorHarness

UID = "changing"


def first(row: Any) -> Any:
    return row[0]


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    """Emits both rows."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right


class Counts(KeyedProcessFunction[Any, Any, Any]):
    """Emits how many rows a key has had; sets a timer at each."""

    _count: ValueState[Any]

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        ctx.timer_service().register_event_time_timer((ctx.timestamp() or 0) + 5)
        yield value[0], count

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield "timer", timestamp


class OtherCounts(Counts):
    """Keeps its count under another name."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("other", Types.LONG()))


class CountsOfTwo(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Counts the rows of two streams as Counts does those of one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[0], count

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        return self.process_element1(value, ctx)


def add(left: Any, right: Any) -> Any:
    return left[0], left[1] + right[1]


def window(assigner: Any, stream: DataStream) -> WindowedStream:
    return stream.key_by(first).window(assigner)


TEN = TumblingEventTimeWindows.of(Time.milliseconds(10))


def reduced(a: DataStream, b: DataStream) -> DataStream:
    return window(TEN, a.union(b)).reduce(add).uid(UID)


def triggered(a: DataStream, b: DataStream) -> DataStream:
    return window(TEN, a.union(b)).trigger(CountTrigger.of(2)).reduce(add).uid(UID)


def window_join(a: DataStream, b: DataStream) -> DataStream:
    both = a.join(b).where(first).equal_to(first).window(TEN)
    return both.apply(lambda left, right: (left, right)).uid(UID)


def co_group(a: DataStream, b: DataStream) -> DataStream:
    both = a.co_group(b).where(first).equal_to(first).window(TEN)
    return both.apply(lambda left, right: [(len([*left]), len([*right]))]).uid(UID)


def as_of(a: DataStream, b: DataStream) -> DataStream:
    joined: DataStream = a.key_by(first).as_of_join(b.key_by(first)).backward().process(Pairs())
    return joined.uid(UID)


def interval(a: DataStream, b: DataStream) -> DataStream:
    joined = a.key_by(first).interval_join(b.key_by(first))
    return joined.between(Time.milliseconds(-5), Time.milliseconds(5)).process(Pairs()).uid(UID)


def counts(a: DataStream, b: DataStream) -> DataStream:
    return a.union(b).key_by(first).process(Counts()).uid(UID)


def other_counts(a: DataStream, b: DataStream) -> DataStream:
    return a.union(b).key_by(first).process(OtherCounts()).uid(UID)


def counts_of_two(a: DataStream, b: DataStream) -> DataStream:
    return a.key_by(first).connect(b.key_by(first)).process(CountsOfTwo()).uid(UID)


def rolling(a: DataStream, b: DataStream) -> DataStream:
    return a.union(b).key_by(first).reduce(add).uid(UID)


def in_order(a: DataStream, b: DataStream) -> DataStream:
    return a.union(b).in_event_time_order().uid(UID)


def in_order_by_key(a: DataStream, b: DataStream) -> DataStream:
    return a.union(b).key_by(first).in_event_time_order().uid(UID)


def mapped(a: DataStream, b: DataStream) -> DataStream:
    return a.union(b).map(first).uid(UID)


def cut(fragment: Any, backend: str) -> HarnessSnapshot:
    """A savepoint of the fragment with a row of each input that waits."""
    with OperatorHarness(fragment, inputs=2, configuration={"state.backend.type": backend}) as harness:
        harness.push(("a", 1), timestamps=[101])
        harness.push(("a", 2), timestamps=[102], input=1)
        return harness.snapshot()


def restarted(fragment: Any, snapshot: HarnessSnapshot, backend: str) -> OperatorHarness:
    state = HarnessState(snapshot=snapshot)
    return OperatorHarness(fragment, inputs=2, configuration={"state.backend.type": backend}, state=state)


def graph_of(fragment: Any) -> JobGraph:
    with OperatorHarness(fragment, inputs=2) as harness:
        return harness.graph


def without_kinds(snapshot: HarnessSnapshot) -> HarnessSnapshot:
    """The savepoint as a version that stored no kinds has written it."""
    operators = tuple(
        msgspec.structs.replace(state, kind=msgspec.UNSET) for state in snapshot.metadata.operators
    )
    return HarnessSnapshot(msgspec.structs.replace(snapshot.metadata, operators=operators))


ORDER = "rows of a stream without keys in event-time order"
ORDER_BY_KEY = "rows of a keyed stream in event-time order"
CHANGES = [
    (as_of, window_join, "an as-of join", "a join or co_group by window"),
    (reduced, window_join, "windows", "a join or co_group by window"),
    (window_join, reduced, "a join or co_group by window", "windows"),
    (reduced, counts, "windows", "a function"),
    (counts, reduced, "a function", "windows"),
    (interval, as_of, "an interval join", "an as-of join"),
    (as_of, interval, "an as-of join", "an interval join"),
    (counts, rolling, "a function", "a running aggregate"),
    (reduced, rolling, "windows", "a running aggregate"),
    (rolling, counts, "a running aggregate", "a function"),
    (in_order, in_order_by_key, ORDER, ORDER_BY_KEY),
    (in_order_by_key, in_order, ORDER_BY_KEY, ORDER),
    (in_order_by_key, counts, ORDER_BY_KEY, "a function"),
    (reduced, mapped, "windows", "a function"),
]  # fmt: skip


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(("before", "after", "was", "now"), CHANGES)
def test_a_restore_refuses_the_state_of_another_kind(
    before: Any, after: Any, was: str, now: str, backend: str
) -> None:
    snapshot = cut(before, backend)
    said = f"(uid '{UID}'): the snapshot holds the state of {was}, the program declares {now}"
    with pytest.raises(SavepointMismatchError, match=re.escape(said)) as refused:
        restarted(after, snapshot, backend).close()
    assert "another uid" in str(refused.value) and "--allowNonRestoredState" in str(refused.value)
    found = check_savepoint(snapshot.metadata, graph_of(after))
    assert [each.reason for each in found if each.outcome is Outcome.REFUSED] == [str(refused.value)]


@pytest.mark.parametrize(("before", "after", "was", "now"), CHANGES)
def test_the_state_of_another_kind_is_dropped_by_request(before: Any, after: Any, was: str, now: str) -> None:
    snapshot, graph = cut(before, "hashmap"), graph_of(after)
    found = check_savepoint(snapshot.metadata, graph, allow_non_restored=True)
    (dropped,) = [each for each in found if each.outcome is Outcome.DROPPED]
    assert was in dropped.reason and now in dropped.reason
    assert assign(snapshot.metadata, graph, allow_non_restored=True).tasks == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (as_of, window_join),
        (reduced, counts),
        (reduced, rolling),
        (rolling, counts),
        (interval, window_join),
        (in_order, in_order_by_key),
        (in_order_by_key, in_order),
    ],
)
def test_a_savepoint_without_kinds_is_refused_by_the_names_of_its_states(before: Any, after: Any) -> None:
    snapshot = without_kinds(cut(before, "hashmap"))
    with pytest.raises(SavepointMismatchError, match="the snapshot holds the state of"):
        restarted(after, snapshot, "hashmap").close()
    restarted(before, snapshot, "hashmap").close()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (reduced, triggered),
        (triggered, reduced),
        (window_join, co_group),
        (co_group, window_join),
        (counts, other_counts),
        (counts, counts_of_two),
        (counts_of_two, counts),
    ],
)
def test_kinds_that_store_alike_go_on(before: Any, after: Any, backend: str) -> None:
    with restarted(after, cut(before, backend), backend) as harness:
        harness.push(("a", 5), timestamps=[103])
        harness.push(("a", 6), timestamps=[104], input=1)
        for input in range(2):
            harness.watermark(1000, input)
        assert harness.output


def test_a_function_of_two_streams_goes_on_with_the_count_of_one() -> None:
    with restarted(counts_of_two, cut(counts, "hashmap"), "hashmap") as harness:
        harness.push(("a", 5), timestamps=[103])
        assert harness.output == [("a", 3)]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_an_operator_that_keeps_no_records_may_become_any_other(backend: str) -> None:
    with OperatorHarness(reduced, inputs=2, configuration={"state.backend.type": backend}) as harness:
        harness.push(("a", 1), timestamps=[101])
        for input in range(2):
            harness.watermark(200, input)
        snapshot = harness.snapshot()
    with restarted(counts, snapshot, backend) as harness:
        harness.push(("a", 5), timestamps=[203])
        assert harness.output == [("a", 1)]


def test_the_names_that_tell_kinds_are_those_of_states_and_the_kinds_those_of_specs() -> None:
    stored = {CONTENTS, CONTENTS_WITH_TIMES, COUNTS, SESSIONS, SLICES, COLUMNAR_WINDOWS, LEFT_ROWS, SIDES[0]}
    stored |= {ROWS, KEPT_ROWS, PENDING_ROWS, PENDING_BATCHES, AGGREGATES, WAITING_ROWS}
    assert _WRITERS.keys() == stored and _WRITERS_WITHOUT_KEYS.keys() == {WAITING_ROWS}
    kinds = {spec.keeps_state_as for spec in get_args(any_engine_spec())} | {"a join or co_group by window"}
    assert {
        kind for found in (_WRITERS, _WRITERS_WITHOUT_KEYS) for each in found.values() for kind in each
    } <= kinds


def test_a_savepoint_environment_refuses_the_state_of_another_kind(tmp_path: Path) -> None:
    with SavepointEnvironment(lambda stream: reduced(stream, stream), trust_pickle=True) as environment:
        environment.push_timestamped([(("a", 1), 101)])
        path = environment.write(f"{tmp_path}/made")
    with pytest.raises(SavepointMismatchError, match="the state of windows, the program declares a function"):
        SavepointEnvironment(lambda stream: counts(stream, stream), path, trust_pickle=True)


def test_an_operator_of_another_kind_takes_up_a_state_that_was_renamed_for_it(tmp_path: Path) -> None:
    with SavepointEnvironment(lambda stream: stream.key_by(first).reduce(add).uid(UID), trust_pickle=True) as made:
        made.push([("a", 3), ("a", 4)])
        path = made.write(f"{tmp_path}/made")

    def sums(table: pa.Table) -> pa.Table:
        values = [value["f1"] for value in table["value"].to_pylist()]
        return pa.table({"key": table["key"], "value": values})

    def process(stream: DataStream) -> DataStream:
        return stream.key_by(first).process(Counts()).uid(UID)

    kept = SavepointWriter.from_existing_savepoint(path, trust_pickle=True)
    with pytest.raises(SavepointMismatchError, match="the state of a running aggregate"):
        SavepointEnvironment(process, kept.write(f"{tmp_path}/kept"), trust_pickle=True)
    count: ValueStateDescriptor[int] = ValueStateDescriptor("count", Types.LONG())
    kept.transform_state(UID, AGGREGATES, sums, count)
    with SavepointEnvironment(process, kept.write(f"{tmp_path}/renamed"), trust_pickle=True) as restored:
        restored.push_timestamped([(("a", 1), 101)])
        assert restored.take() == [("a", 8)]
