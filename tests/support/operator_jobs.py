"""Job shapes of the fault proof for operators of time, of calls and of loops, each with a plain model of its output.

Owner: `build` on the client, functions in workers. The models know rows alone. Which row is late does not depend on the
machine: the rows of `windows` come from one reader, and a watermark follows each of them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.fault_jobs import LEFT, RIGHT, JobShape, RecordPoint, RowTimestamps, at, read
from yarrow.cep import CEP, Pattern
from yarrow.common import Duration, Time, WatermarkStrategy
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from yarrow.datastream import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    OutputTag,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.functions import (
    AsyncRetryStrategy,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from yarrow.testing.gated_source import GatedSource, Input, key_of

ROW = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING(), Types.LONG()])
#: Of what the shapes put out, whose rows begin with a key and have texts behind it.
TEXTS = Types.PICKLED_BYTE_ARRAY()


class HeldUntilFault:
    """Tells which rows an operator has to hold until the fault has happened, so that checkpoints find them there."""

    def __init__(self, folder: str, rows: int, most: int) -> None:
        """`most` rows of each split are held: those before the gate at which the source waits for the fault."""
        self._file = os.path.join(folder, "fired") if folder else ""
        self._first = int(0.8 * rows)
        self._behind = self._first + most

    def holds(self, identity: str) -> bool:
        """Whether the row is to stay where it is for now. Bounded jobs hold none."""
        index = int(identity.partition(":")[2])
        if not self._file or not self._first <= index < self._behind:
            return False
        return not os.path.exists(self._file)


# ---------------------------------------------------------------------- windows

WINDOW_SOURCE = GatedSource("w", "", splits=1, rows=400)
SIZE, GAP, BOUND = 250, 80, 100
#: A row that is late is behind its time by so much, ms: more than an event time that is under way between two tasks.
DELAY = 1000
LATE: OutputTag = OutputTag("late", ROW)


def out_of_order(row: Input) -> Input:
    """The row with one of five keys and another time: some come behind their neighbours, each sixth one too late.

    A reader of GatedSource stops between six rows. So the first row after a restore is one of the late ones.
    """
    _, timestamp, identity, value = row
    index = timestamp // 10
    if index >= 120 and index % 6 == 0:
        timestamp -= DELAY
    elif index >= 8 and index % 7 == 3:
        timestamp -= 80
    return (f"k{value % 5}", timestamp, identity, value)


class BehindEachRow(WatermarkGenerator):
    """Emits a watermark behind each row."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp - BOUND)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        return None


class Identities(AggregateFunction[Input, Any, Any]):
    """The identities of rows, in their order."""

    def create_accumulator(self) -> Any:
        return ()

    def add(self, value: Input, accumulator: Any) -> Any:
        return (*accumulator, value[2])

    def get_result(self, accumulator: Any) -> Any:
        return tuple(sorted(accumulator))

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class Tumbling(ProcessWindowFunction[Any, Any, str, Any]):
    """A result with the bounds of its window, and one of `sessions` with its own."""

    KIND = "tumbling"

    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        for identities in elements:
            yield (key, self.KIND, window.start, window.end, identities)


class Sessions(Tumbling):
    """The same of sessions."""

    KIND = "session"


def _build_windows(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    strategy = WatermarkStrategy.for_generator(BehindEachRow).with_timestamp_assigner(RowTimestamps())
    rows = env.from_source(at(WINDOW_SOURCE, folder), WatermarkStrategy.no_watermarks(), "source w")
    rows = rows.set_parallelism(1).map(RecordPoint(), ROW).set_parallelism(1).map(out_of_order, ROW)
    timed = rows.set_parallelism(1).assign_timestamps_and_watermarks(strategy).set_parallelism(1)
    keyed = timed.key_by(key_of, Types.STRING())
    found = []
    for assigner, function in (
        (TumblingEventTimeWindows.of(Time.milliseconds(SIZE)), Tumbling()),
        (EventTimeSessionWindows.with_gap(Time.milliseconds(GAP)), Sessions()),
    ):
        windows = keyed.window(assigner).side_output_late_data(LATE)
        fired = windows.aggregate(Identities(), function, TEXTS, TEXTS).uid(function.KIND)
        late = fired.get_side_output(LATE).map(_LateRow(function.KIND), TEXTS).uid(f"late {function.KIND}")
        found += [fired, late]
    found[0].union(*found[1:]).sink_to(sink).uid("sink")


class _LateRow(MapFunction[Input, Any]):
    def __init__(self, kind: str) -> None:
        self._kind = kind

    def map(self, value: Input) -> Any:
        return (value[0], self._kind, "late", value[2])


def _windows_of(rows: Iterable[Input], kind: str, *, bounded: bool) -> list[Any]:
    """The model of windows: rows one by one, with all windows that are open."""
    #: (key, start, end) -> identities
    windows: dict[tuple[str, int, int], list[str]] = {}
    found: list[Any] = []
    watermark = -(2**63)
    for key, timestamp, identity, _ in rows:
        start = timestamp - timestamp % SIZE
        end = start + SIZE
        merged = []
        if kind == "session":
            start, end = timestamp, timestamp + GAP
            merged = [
                w for w in windows if w[0] == key and w[2] - 1 > watermark and w[1] <= end and start <= w[2]
            ]
            start, end = min([start, *(w[1] for w in merged)]), max([end, *(w[2] for w in merged)])
        if end - 1 <= watermark:
            found.append((key, kind, "late", identity))
            continue
        together = [identity, *(each for window in merged for each in windows.pop(window))]
        windows.setdefault((key, start, end), []).extend(together)
        if not bounded:
            watermark = max(watermark, timestamp - BOUND)
    return found + [
        (key, kind, start, end, tuple(sorted(rows))) for (key, start, end), rows in windows.items()
    ]


def _expected_windows(*, bounded: bool = False) -> list[Any]:
    rows = [out_of_order(row) for row in WINDOW_SOURCE.all_rows()]
    if bounded:
        rows.sort(key=lambda row: row[1])
    return [row for kind in ("tumbling", "session") for row in _windows_of(rows, kind, bounded=bounded)]


# ---------------------------------------------------------------------- joins

BEFORE, BEHIND, TOLERANCE = -100, 50, 300


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    """The identities of both rows, with the name of the join."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield (left[0], self._kind, left[2], "nothing" if right is None else right[2])


def _build_joins(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    left = read(env, at(LEFT, folder)).key_by(key_of, Types.STRING())
    right = read(env, at(RIGHT, folder)).key_by(key_of, Types.STRING())
    interval = left.interval_join(right).between(Time.milliseconds(BEFORE), Time.milliseconds(BEHIND))
    as_of = left.as_of_join(right).backward(Time.milliseconds(TOLERANCE))
    near = interval.left_outer().process(Pairs("interval"), TEXTS).uid("interval")
    last = as_of.left_outer().process(Pairs("as of"), TEXTS).uid("as of")
    near.union(last).sink_to(sink).uid("sink")


def _expected_joins() -> list[Any]:
    of_key = defaultdict(list)
    for key, timestamp, identity, _ in RIGHT.all_rows():
        of_key[key].append((timestamp, identity))
    found = []
    for key, timestamp, identity, _ in LEFT.all_rows():
        near = [other for time, other in of_key[key] if BEFORE <= time - timestamp <= BEHIND]
        found += [(key, "interval", identity, other) for other in near or ["nothing"]]
        before = [row for row in of_key[key] if timestamp - TOLERANCE <= row[0] <= timestamp]
        found.append((key, "as of", identity, max(before)[1] if before else "nothing"))
    return found


# ---------------------------------------------------------------------- asynchronous calls

#: Rows of each split whose calls last until the fault has happened.
HELD_CALLS = 5
#: More rows than a reader has between its first held row and the last gate. By key, rows of a slower reader wait behind
#: held ones, too. A full queue would let no barrier pass until the fault, which may wait for a barrier.
CAPACITY = 64


class Answers(AsyncFunction[Input, Any]):
    """Answers sooner or later, some rows at the second attempt; calls of held rows wait for the fault."""

    def __init__(self, kind: str, folder: str) -> None:
        self._kind = kind
        self._held = HeldUntilFault(folder, LEFT.rows, HELD_CALLS)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._refused: set[str] = set()

    async def async_invoke(self, value: Input) -> list[Any]:
        key, _, identity, number = value
        while self._held.holds(identity):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # another process makes the file
        await asyncio.sleep(number % 4 / 1000)
        if self._kind == "any order" and number % 9 == 0 and identity not in self._refused:
            self._refused.add(identity)
            raise ConnectionError(f"{identity} has to ask again")
        return [(key, self._kind, identity)]


def _build_calls(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    rows = read(env, at(LEFT, folder))
    limit = Duration.of_minutes(10)
    attempts = AsyncRetryStrategy.fixed_delay(3, 1, None, lambda error: isinstance(error, ConnectionError))
    in_any = AsyncDataStream.unordered_wait_with_retry(
        rows, Answers("any order", folder), limit, attempts, CAPACITY, TEXTS
    )
    by_key = AsyncDataStream.ordered_by_key(
        rows.key_by(key_of, Types.STRING()), Answers("by key", folder), limit, len(LEFT.all_rows()), TEXTS
    )
    in_any.uid("any order").union(by_key.uid("by key")).sink_to(sink).uid("sink")


def _expected_calls() -> list[Any]:
    return [(row[0], kind, row[2]) for row in LEFT.all_rows() for kind in ("any order", "by key")]


def _calls_in_order(part: list[Any]) -> None:
    """Results by key come in the order in which a split has the rows of the key."""
    positions: dict[tuple[str, str], int] = {}
    for key, kind, identity in part:
        if kind == "by key":
            split, _, index = identity.partition(":")
            assert positions.get((key, split), -1) < int(index), f"{key}: {identity} came late"
            positions[key, split] = int(index)


# ---------------------------------------------------------------------- a loop

#: (identity, value, rounds that are behind it, whether it is held)
STEP = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.BOOLEAN()])
VISIT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING(), Types.LONG(), Types.LONG()])
HELD_STEPS = 1


class Holding(MapFunction[Any, Any]):
    """Marks rows that go round once more without a visit, until the fault has happened."""

    def __init__(self, folder: str) -> None:
        self._held = HeldUntilFault(folder, LEFT.rows, HELD_STEPS)

    def map(self, value: Any) -> Any:
        identity, number, rounds, _ = value
        held = self._held.holds(identity)
        if held:
            # A row that goes round without a rest takes the processor from all others.
            threading.Event().wait(0.001)
        return (identity, number, rounds, held)


class Visits(KeyedProcessFunction[str, Any, Any]):
    """Counts the visits of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield (ctx.get_current_key(), count, *value[:3])


def _key_of_step(step: Any) -> str:
    return f"k{(step[1] + step[2]) % 5}"


def _build_loop(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    steps = read(env, at(LEFT, folder)).map(lambda row: (row[2], row[3], 0, False), STEP).uid("steps")
    loop = steps.iterate().uid("loop")
    marked = loop.map(Holding(folder), STEP).uid("holding")
    free = marked.filter(lambda step: not step[3]).key_by(_key_of_step, Types.STRING())
    visits = free.process(Visits(), VISIT).uid("visits")
    again = visits.filter(lambda visit: visit[4] < visit[3] % 4)
    moved = again.map(lambda visit: (visit[2], visit[3], visit[4] + 1, False), STEP)
    loop.close_with(moved.union(marked.filter(lambda step: step[3])))
    told = visits.map(lambda visit: (visit[0], visit[1], f"{visit[2]}/{visit[4]}"), TEXTS)
    told.sink_to(sink).uid("sink")


def _expected_loop() -> list[Any]:
    return sorted(f"{row[2]}/{number}" for row in LEFT.all_rows() for number in range(row[3] % 4 + 1))


# ---------------------------------------------------------------------- a pattern

WITHIN = 400
TIMED_OUT = OutputTag("timed out", TEXTS)


def _is(remainder: int) -> Callable[[Input], bool]:
    return lambda row: row[3] % 4 == remainder


def _build_pattern(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    rows = read(env, at(LEFT, folder)).key_by(key_of, Types.STRING())
    pattern = Pattern.begin("a").where(_is(0)).followed_by("b").where(_is(1)).followed_by("c").where(_is(2))
    matches = CEP.pattern(rows, pattern.within(Time.milliseconds(WITHIN))).select(
        lambda match: (match["a"][0][0], *(match[step][0][2] for step in "abc")),
        TIMED_OUT,
        lambda match, timestamp: (match["a"][0][0], match["a"][0][2], "timed out", timestamp),
        TEXTS,
    )
    matches.uid("pattern").union(matches.get_side_output(TIMED_OUT)).sink_to(sink).uid("sink")


def _expected_pattern() -> list[Any]:
    of_key = defaultdict(list)
    for row in sorted(LEFT.all_rows(), key=lambda row: row[1]):
        of_key[row[0]].append(row)
    found: list[Any] = []
    for key, rows in of_key.items():
        for place, (_, begun, first, value) in enumerate(rows):
            if value % 4:
                continue
            taken = [first]
            for row in rows[place + 1 :]:
                if row[1] < begun + WITHIN and len(taken) < 3 and row[3] % 4 == len(taken):
                    taken.append(row[2])
            found.append((key, *taken) if len(taken) == 3 else (key, first, "timed out", begun + WITHIN))
    return found


WINDOWS = JobShape(
    "windows", _build_windows, _expected_windows, expected_bounded=lambda: _expected_windows(bounded=True)
)
JOINS = JobShape("joins", _build_joins, _expected_joins)
CALLS = JobShape("calls", _build_calls, _expected_calls, check_order=_calls_in_order)
LOOP = JobShape("loop", _build_loop, _expected_loop, counts=True, runs_bounded=False)
PATTERN = JobShape("pattern", _build_pattern, _expected_pattern)
OPERATOR_SHAPES = (WINDOWS, JOINS, CALLS, LOOP, PATTERN)
