"""The job shapes of the fault proof: each with what it must put out, computed without the engine.

Owner: `build` on the client, functions in workers. Every shape's output is a function of its input alone, whatever the
order in which inputs arrive. Rows are (key, ...) so that order per key can be compared where it is defined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.support.restored_state import Counting
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.functions import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from yarrow.datastream.state import (
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
)
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common import fault_points
from yarrow.testing.fault_plan import RECORD_POINT
from yarrow.testing.gated_source import GatedSource, Input, key_of

#: Width of the time intervals in `timers`, ms.
INTERVAL = 250


class RecordPoint(MapFunction[Any, Any]):
    """Stands at the point `user.record` for each row."""

    def map(self, value: Any) -> Any:
        fault_points.reach(RECORD_POINT, row=value[2])
        return value


class RowTimestamps(TimestampAssigner):
    """The timestamp that is in the row."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        timestamp: int = value[1]
        return timestamp


class IntervalSums(KeyedProcessFunction[str, Input, Any]):
    """Sums the values of each interval of event time; an event-time timer at its end emits the sum."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sums: MapState[int, int] = runtime_context.get_map_state(
            MapStateDescriptor("sums", Types.LONG(), Types.LONG())
        )

    def process_element(self, value: Input, ctx: KeyedProcessFunction.Context) -> None:
        end = value[1] // INTERVAL * INTERVAL + INTERVAL
        self._sums.put(end, (self._sums.get(end) or 0) + value[3])
        ctx.timer_service().register_event_time_timer(end - 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        end = timestamp + 1
        yield (ctx.get_current_key(), end, self._sums.get(end))
        self._sums.remove(end)


class Joining(KeyedCoProcessFunction[str, Input, Input, Any]):
    """Every pair of rows of one key and value modulo 5, once."""

    def open(self, runtime_context: RuntimeContext) -> None:
        row = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING(), Types.LONG()])
        self._left: ListState[Any] = runtime_context.get_list_state(ListStateDescriptor("left", row))
        self._right: ListState[Any] = runtime_context.get_list_state(ListStateDescriptor("right", row))

    def process_element1(self, value: Input, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        self._left.add(value)
        for other in self._right:
            if other[3] % 5 == value[3] % 5:
                yield (value[0], value[2], other[2])

    def process_element2(self, value: Input, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        self._right.add(value)
        for other in self._left:
            if other[3] % 5 == value[3] % 5:
                yield (value[0], other[2], value[2])


RULES: MapStateDescriptor[int, int] = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
RULE_COUNT = 7


class Ruling(KeyedBroadcastProcessFunction[str, Input, Any, Any]):
    """Each row with the number of its rule, which is broadcast; rows wait in keyed state until the last timestamp."""

    def open(self, runtime_context: RuntimeContext) -> None:
        row = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING(), Types.LONG()])
        self._waiting: ListState[Any] = runtime_context.get_list_state(ListStateDescriptor("waiting", row))

    def process_element(self, value: Input, ctx: Any) -> Iterable[Any]:
        number = ctx.get_broadcast_state(RULES).get(value[3] % RULE_COUNT)
        if number is not None:
            yield (value[0], value[2], number)
        else:
            self._waiting.add(value)
            ctx.timer_service().register_event_time_timer(2**62)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        rules = ctx.get_broadcast_state(RULES)
        for value in self._waiting:
            yield (value[0], value[2], rules.get(value[3] % RULE_COUNT))
        self._waiting.clear()


class AsRule(MapFunction[Input, Any]):
    """Makes a rule (number, result) of a row of the second source."""

    def map(self, value: Input) -> Any:
        number = int(value[2].partition(":")[2]) % RULE_COUNT
        return (number, number * 100)


@dataclass(frozen=True, slots=True)
class JobShape:
    """A job under faults."""

    name: str
    #: (environment, folder of the gates, sink) -> nothing; the job is in the environment.
    build: Callable[[StreamExecutionEnvironment, str, Sink[Any]], None]
    #: Everything that it puts out.
    expected: Callable[[], list[Any]]
    #: Holds rows that lie in one order against the order that they must have.
    check_order: Callable[[list[Any]], None] | None = None
    #: Rows are (key, n, identity): which row is the n-th of its key depends on how inputs interleave. `expected` gives
    #: identities then.
    counts: bool = False
    #: Whether batch mode runs the job, and what it puts out there where that is something else.
    runs_bounded: bool = True
    expected_bounded: Callable[[], list[Any]] | None = None


def read(env: StreamExecutionEnvironment, source: GatedSource) -> DataStream:
    """The source with its timestamps, and the point at which a record is in a function's hands."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(RowTimestamps())
    return (
        env.from_source(source, strategy, f"source {source.tag}")
        .map(RecordPoint())
        .name(f"record {source.tag}")
    )


LEFT = GatedSource("l", "")
RIGHT = GatedSource("r", "", splits=2, rows=120)
RULE_SOURCE = GatedSource("q", "", splits=1, rows=30)


def at(source: GatedSource, folder: str) -> GatedSource:
    """The source with its gates in a folder."""
    return GatedSource(source.tag, folder, splits=source.splits, rows=source.rows, keys=source.keys)


def _build_count(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    read(env, at(LEFT, folder)).key_by(key_of, Types.STRING()).process(Counting()).uid("counting").sink_to(
        sink
    ).uid("sink")


def _expected_count() -> list[Any]:
    return sorted(row[2] for row in LEFT.all_rows())


def _build_timers(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    read(env, at(LEFT, folder)).key_by(key_of, Types.STRING()).process(IntervalSums()).uid("sums").sink_to(
        sink
    ).uid("sink")


def _expected_timers() -> list[Any]:
    sums: dict[tuple[str, int], int] = defaultdict(int)
    for key, timestamp, _, value in LEFT.all_rows():
        sums[key, timestamp // INTERVAL * INTERVAL + INTERVAL] += value
    return [(key, end, total) for (key, end), total in sorted(sums.items())]


def _build_join(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    left = read(env, at(LEFT, folder)).key_by(key_of, Types.STRING())
    right = read(env, at(RIGHT, folder)).key_by(key_of, Types.STRING())
    left.connect(right).process(Joining()).uid("join").sink_to(sink).uid("sink")


def _expected_join() -> list[Any]:
    right = defaultdict(list)
    for key, _, identity, value in RIGHT.all_rows():
        right[key, value % 5].append(identity)
    return [
        (key, identity, other)
        for key, _, identity, value in LEFT.all_rows()
        for other in right[key, value % 5]
    ]


def _build_broadcast(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    rules = read(env, at(RULE_SOURCE, folder)).map(AsRule()).broadcast(RULES)
    data = read(env, at(LEFT, folder)).key_by(key_of, Types.STRING())
    data.connect(rules).process(Ruling()).uid("rules").sink_to(sink).uid("sink")


def _expected_broadcast() -> list[Any]:
    return [(key, identity, value % RULE_COUNT * 100) for key, _, identity, value in LEFT.all_rows()]


def check(shape: JobShape, parts: list[list[Any]], *, bounded: bool = False) -> None:
    """Compares what was committed with what must be; AssertionError shows the difference.

    A part is what lies in one order: everything for the transactional sink, one file for FileSink.
    """
    rows = [row for part in parts for row in part]
    expected = shape.expected if not bounded or shape.expected_bounded is None else shape.expected_bounded
    # Rows of one shape may differ in the types of their fields.
    got = sorted((row[2] for row in rows) if shape.counts else rows, key=repr)
    wanted = sorted(expected(), key=repr)
    assert got == wanted, _difference(got, wanted)
    if shape.check_order is not None:
        for part in parts:
            shape.check_order(part)
    if shape.counts:
        check_counts(rows)


def _rising(part: list[Any]) -> None:
    """Counts, or ends of intervals, of a key rise."""
    last: dict[str, int] = {}
    for key, number, _ in part:
        assert last.get(key, -1) < number, f"{key}: {number} came after {last[key]}"
        last[key] = number


def _counted_in_order(part: list[Any]) -> None:
    """Counts of a key rise, and rows of a split come in the order in which they were read."""
    _rising(part)
    positions: dict[tuple[str, str], int] = {}
    for key, _, identity in part:
        split, _, index = identity.partition(":")
        assert positions.get((key, split), -1) < int(index), f"{key}: {identity} came late"
        positions[key, split] = int(index)


def check_counts(rows: list[Any]) -> None:
    """The counts of each key are 1, 2, 3...: no row was counted twice in state, even where its output was not."""
    counts: dict[str, list[int]] = defaultdict(list)
    for key, count, _ in rows:
        counts[key].append(count)
    for key, found in counts.items():
        assert sorted(found) == list(range(1, len(found) + 1)), f"{key}: counts {sorted(found)[:20]}..."


def _difference(got: list[Any], expected: list[Any]) -> str:
    left = list(got)
    missing = []
    for row in expected:
        if row in left:
            left.remove(row)
        else:
            missing.append(row)
    return f"{len(missing)} rows are missing, as {missing[:5]}; {len(left)} are too many, as {left[:5]}"


COUNT = JobShape("count", _build_count, _expected_count, _counted_in_order, counts=True)
TIMERS = JobShape("timers", _build_timers, _expected_timers, _rising)
JOIN = JobShape("join", _build_join, _expected_join)
BROADCAST = JobShape("broadcast", _build_broadcast, _expected_broadcast)
#: The count with a FileSink instead of the test's own transactional sink.
FILES = JobShape("files", _build_count, _expected_count, _counted_in_order, counts=True)
SHAPES = (COUNT, TIMERS, JOIN, BROADCAST, FILES)
