"""Process functions that keep their results by key: of each kind, with timers, and with nothing changed for the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.batch_runner import collecting_graph, run_batch
from tests.unit.runtime.graph.programs import environment
from yarrow.cep import CEP, Pattern
from yarrow.cli.verification.captured_graph import sinks_of, with_functions
from yarrow.cli.verification.captured_rows import entries_in
from yarrow.cli.verification.keyed_results import KeyedResults
from yarrow.common import Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import (
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessJoinFunction,
    RuntimeContext,
)
from yarrow.datastream.functions import WindowFunction
from yarrow.datastream.state import MapStateDescriptor, ValueStateDescriptor
from yarrow.datastream.window import TumblingEventTimeWindows
from yarrow.runtime.graph.job_graph import JobGraph

ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", 4)]
ASIDE = OutputTag("aside")
LIMITS: MapStateDescriptor[str, int] = MapStateDescriptor("limits", Types.STRING(), Types.INT())


class Sums(KeyedProcessFunction[Any, Any, Any], CheckpointedFunction):
    """Emits its results without their key."""

    def initialize_state(self, context: Any) -> None:
        self.initialized = True

    def snapshot_state(self, context: Any) -> None:
        return None

    def open(self, runtime_context: RuntimeContext) -> None:
        assert self.initialized
        self.sum = runtime_context.get_state(ValueStateDescriptor[int]("sum", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(1)
        yield ASIDE, value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield self.sum.value()


class Both(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> list[int]:
        return [value[1]]

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> list[int] | None:
        return [-value[1]] if value[0] == "a" else None


class Limited(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Any]:
        limit = ctx.get_broadcast_state(LIMITS).get("most")
        assert limit is not None
        yield min(value[1], limit)

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(LIMITS).put(*value)


def graph_of(kind: str) -> JobGraph:
    env = environment(2)
    keyed = env.from_collection(ROWS).key_by(lambda row: row[0])
    match kind:
        case "one input":
            made = keyed.process(Sums())
        case "two inputs":
            other = env.from_collection(ROWS).key_by(lambda row: row[0])
            made = keyed.connect(other).process(Both())
        case _:
            limits = env.from_collection([("most", 3)]).broadcast(LIMITS)
            made = keyed.connect(limits).process(Limited())
    return collecting_graph(env, made)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("one input", [("'a'", "4"), ("'b'", "2"), ("'c'", "4")]),
        (
            "two inputs",
            [("'a'", "-1"), ("'a'", "-3"), ("'a'", "1"), ("'a'", "3"), ("'b'", "2"), ("'c'", "4")],
        ),
        ("broadcast", [("'a'", "1"), ("'a'", "3"), ("'b'", "2"), ("'c'", "3")]),
    ],
)
def test_results_are_kept_by_key_and_go_on(tmp_path: Path, kind: str, expected: list[Any]) -> None:
    graph = graph_of(kind)
    (sink,) = sinks_of(graph)
    place = sink.keyed_function
    assert place is not None and not sink.key.is_known
    operator = graph.vertices[place.vertex].operators[place.operator]
    spec: Any = operator.spec
    keeping = with_functions(graph, {place: KeyedResults(spec.function, operator.name, str(tmp_path))})
    plain = Counter(run_batch(graph).rows())
    assert Counter(run_batch(keeping).rows()) == plain
    # Another attempt of the same tasks adds nothing.
    run_batch(keeping, attempt=1)
    assert sorted((entry.key_text, entry.row_text) for entry in entries_in(tmp_path)) == expected
    assert len(plain) > 0 and sum(plain.values()) == len(expected)


def test_rows_that_a_map_has_changed_tell_no_function() -> None:
    env = environment(1)
    made = env.from_collection(ROWS).key_by(lambda row: row[0]).process(Sums())
    graph = collecting_graph(env, made.map(lambda number: number + 1), made.get_side_output(ASIDE))
    assert [sink.keyed_function for sink in sinks_of(graph)] == [None, None]


class ByNumber(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Passing(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return inputs


class Paired(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left, right


def test_rows_of_keyed_windows_joins_and_patterns_tell_no_function() -> None:
    """They have keys, and call their functions otherwise than process functions are called."""
    env = environment(1)
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByNumber())
    rows = env.from_collection(ROWS).assign_timestamps_and_watermarks(timed)
    keyed = rows.key_by(lambda row: row[0])
    windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
    whole = windows.reduce(lambda one, other: other)
    processed = windows.apply(Passing())
    joined = keyed.interval_join(keyed).between(Time.seconds(-1), Time.seconds(1)).process(Paired())
    matches = CEP.pattern(keyed, Pattern.begin("row")).select(lambda match: match["row"][0])
    graph = collecting_graph(env, whole, processed, joined, matches)
    assert [sink.keyed_function for sink in sinks_of(graph)] == [None] * 4
