"""Random bounded programs as BatchTasks, against the same programs in plain Python.

The model knows rows with their timestamps and nothing of tasks: keyed operators see the rows of a key in order of
time. Where the order of two rows is not defined (equal times on different ways), the program uses functions that
cannot tell.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collecting_graph, run_batch, shuffled
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.container.batch.batch_inputs import BatchInputs
from yarrow.container.batch.folding import combining_partition
from yarrow.datastream import (
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from yarrow.datastream.state import (
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from yarrow.runtime.data.elements import MIN_TIMESTAMP

#: (key, number, mark)
Row = tuple[str, int, int]
ASIDE = OutputTag("aside")
PRIME = 1009


class Stamped(NamedTuple):
    row: Row
    time: int | None


class Stream(NamedTuple):
    """A stream of the program, the same in the model, and whether no two rows of a key have equal times."""

    stream: DataStream
    rows: list[Stamped]
    ordered: bool


# ---------------------------------------------------------------------- functions of both


def negate(row: Row) -> Row:
    return row[0], -row[1], row[2]


def rename(row: Row) -> Row:
    return f"k{row[1] % 3}", row[1], row[2]


def twice(row: Row) -> list[Row]:
    return [row, (row[0], row[1] + 1, row[2])] if row[1] % 2 else []


def is_small(row: Row) -> bool:
    return row[1] < 5


def join_marks(one: Row, other: Row) -> Row:
    """Order matters, but not how rows are grouped: a mark is a linear function, applied behind those before it."""
    (slope, rise), (next_slope, next_rise) = linear(one[2]), linear(other[2])
    return (
        one[0],
        one[1] + other[1],
        slope * next_slope % PRIME * PRIME + (rise * next_slope + next_rise) % PRIME,
    )


def linear(mark: int) -> tuple[int, int]:
    return divmod(mark, PRIME) if mark >= PRIME else (31, mark)


def add(one: Row, other: Row) -> Row:
    """Order does not matter."""
    return one[0], one[1] + other[1], max(one[2], other[2])


class Part(ProcessFunction[Row, Row]):
    def process_element(self, value: Row, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield (ASIDE, negate(value)) if value[2] % 3 == 0 else value


class Summary(KeyedProcessFunction[str, Row, Row]):
    """All kinds of state, and a timer for each record; nothing that tells the order of equal times."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor[int]("count", Types.INT()))
        self.numbers = runtime_context.get_list_state(ListStateDescriptor[int]("numbers", Types.INT()))
        self.marks: MapState[int, int] = runtime_context.get_map_state(
            MapStateDescriptor("marks", Types.INT(), Types.INT())
        )
        self.least: ReducingState[int] = runtime_context.get_reducing_state(
            ReducingStateDescriptor("least", min, Types.INT())
        )

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> None:
        assert ctx.timer_service().current_watermark() == MIN_TIMESTAMP
        self.count.update((self.count.value() or 0) + 1)
        self.numbers.add(value[1])
        self.marks.put(value[2], value[1])
        self.least.add(value[1])
        timers = ctx.timer_service()
        timers.register_event_time_timer(value[2] % 4)
        if value[1] > 3:
            timers.register_processing_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        ctx.timer_service().register_event_time_timer(timestamp + 100)
        numbers = sorted(self.numbers.get() or [])
        number = (self.count.value() or 0) * 1000 + sum(numbers) + len(list(self.marks.keys()))
        yield ctx.get_current_key(), number + (self.least.get() or 0), timestamp
        self.count.clear()


def model_of_summary(key: str, rows: list[Stamped]) -> Iterator[Stamped]:
    count = len(rows)
    numbers = [row.row[1] for row in rows]
    rest = sum(numbers) + len({row.row[2] for row in rows}) + min(numbers)
    timers: list[tuple[int, int | None]] = [(time, time) for time in sorted({row.row[2] % 4 for row in rows})]
    timers += [(time, None) for time in sorted({number for number in numbers if number > 3})]
    for time, stamp in timers:
        yield Stamped((key, count * 1000 + rest, time), stamp)
        count = 0


class History(KeyedProcessFunction[str, Row, Row]):
    """Emits a hash of what came before with the same key: order matters."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.before = runtime_context.get_state(ValueStateDescriptor[int]("before", Types.INT()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        before = ((self.before.value() or 0) * 31 + value[1]) % 1009
        self.before.update(before)
        yield value[0], before, value[2]


def model_of_history(key: str, rows: list[Stamped]) -> Iterator[Stamped]:
    before = 0
    for (_, number, mark), time in rows:
        before = (before * 31 + number) % 1009
        yield Stamped((key, before, mark), time)


class WithTime(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value, ctx.timestamp()


# ---------------------------------------------------------------------- the model


def by_key(rows: list[Stamped]) -> dict[str, list[Stamped]]:
    found: dict[str, list[Stamped]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: MIN_TIMESTAMP if row.time is None else row.time):
        found[row.row[0]].append(row)
    return found


def each(rows: list[Stamped], function: Callable[[Row], list[Row]]) -> list[Stamped]:
    return [Stamped(result, time) for row, time in rows for result in function(row)]


def folded(rows: list[Stamped], combine: Callable[[Row, Row], Row]) -> list[Stamped]:
    return [
        Stamped(reduce(combine, [row for row, _ in group]), group[-1].time) for group in by_key(rows).values()
    ]


def keyed(rows: list[Stamped], function: Callable[[str, list[Stamped]], Iterator[Stamped]]) -> list[Stamped]:
    return [result for key, group in by_key(rows).items() for result in function(key, group)]


def field(combine: Callable[[int, int], int]) -> Callable[[Row, Row], Row]:
    return lambda one, other: (one[0], combine(one[1], other[1]), one[2])


# ---------------------------------------------------------------------- programs


def steps(stream: Stream, name: str, others: list[Stream]) -> list[Stream]:
    """The streams that a step makes of one; none if its result would depend on an order that is not defined."""
    source, rows, ordered = stream
    by = source.key_by(lambda row: row[0]) if name in KEYED else None
    match name:
        case "map":
            return [Stream(source.map(negate), each(rows, lambda row: [negate(row)]), ordered)]
        case "rename":
            return [Stream(source.map(rename), each(rows, lambda row: [rename(row)]), ordered)]
        case "filter":
            return [Stream(source.filter(is_small), each(rows, lambda row: [row] * is_small(row)), ordered)]
        case "flat_map":
            return [Stream(source.flat_map(twice), each(rows, twice), False)]
        case "process":
            parted = source.process(Part())
            aside = [row for row in rows if row.row[2] % 3 == 0]
            rest = [row for row in rows if row.row[2] % 3]
            return [
                Stream(parted, rest, ordered),
                Stream(parted.get_side_output(ASIDE), each(aside, lambda row: [negate(row)]), ordered),
            ]
        case "rebalance" | "shuffle" | "global_" | "rescale":
            return [Stream(getattr(source, name)().map(lambda row: row), rows, ordered)]
        case "union":
            united = [stream, *others[-2:]]
            merged = [row for each_stream in united for row in each_stream.rows]
            return [
                Stream(
                    source.union(*[other.stream for other in united[1:]]),
                    merged,
                    len(united) == 1 and ordered,
                )
            ]
    assert by is not None
    match name:
        case "add":
            return [Stream(by.reduce(add), folded(rows, add), True)]
        case "add_in_any_order":
            return [Stream(by.reduce(add, commutes=True), folded(rows, add), True)]
        case "summary":
            return [Stream(by.process(Summary()), keyed(rows, model_of_summary), False)]
    if not ordered:
        return []
    match name:
        case "reduce":
            return [Stream(by.reduce(join_marks), folded(rows, join_marks), True)]
        case "sum":
            return [Stream(by.sum(1), folded(rows, field(lambda a, b: a + b)), True)]
        case "min" | "max":
            combine = field(min if name == "min" else max)
            return [Stream(getattr(by, name)(1), folded(rows, combine), True)]
        case "min_by":
            return [Stream(by.min_by(1), folded(rows, lambda a, b: b if b[1] < a[1] else a), True)]
        case "max_by":
            return [Stream(by.max_by(1), folded(rows, lambda a, b: b if b[1] > a[1] else a), True)]
        case "history":
            return [Stream(by.process(History()), keyed(rows, model_of_history), True)]
    raise AssertionError(name)


KEYED = ("add", "add_in_any_order", "summary", "reduce", "sum", "min", "max", "min_by", "max_by", "history")
NAMES = (
    "map", "rename", "filter", "flat_map", "process", "rebalance", "shuffle", "global_", "rescale", "union", *KEYED
)  # fmt: skip


class Times(TimestampAssigner):
    """The mark of a row is its time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


class Program(NamedTuple):
    rows: list[Row]
    #: How the rows get their times: a time each, or none.
    timed: bool
    #: (name, stream that it reads, parallelism)
    steps: list[tuple[str, int, int]]

    def build(self, parallelism: int) -> tuple[StreamExecutionEnvironment, list[Stream]]:
        env = environment(parallelism)
        env.set_max_parallelism(8)
        source = env.from_collection(self.rows)
        stamped = [Stamped(row, row[2] if self.timed else None) for row in self.rows]
        if self.timed:
            strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Times())
            source = source.assign_timestamps_and_watermarks(strategy)
        streams = [Stream(source, stamped, self.timed)]
        for name, position, width in self.steps:
            others = streams[:-1]
            made = steps(streams[position % len(streams)], name, others)
            if made and name not in ("union", "process") and name in NAMES[:4] + KEYED:
                made = [made[0]._replace(stream=made[0].stream.set_parallelism(width))]
            streams += made
        return env, streams


def programs() -> st.SearchStrategy[Program]:
    rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=25).flatmap(
        lambda pairs: st.permutations(range(len(pairs))).map(
            lambda marks: [(key, number, mark) for (key, number), mark in zip(pairs, marks, strict=True)]
        )
    )
    step = st.tuples(st.sampled_from(NAMES), st.integers(0, 20), st.integers(1, 3))
    return st.builds(Program, rows, st.booleans(), st.lists(step, min_size=1, max_size=6))


def results(
    program: Program, parallelism: int, options: dict[str, str], seed: int
) -> tuple[list[Any], list[Stamped]]:
    env, streams = program.build(parallelism)
    first, *rest = [each_stream.stream for each_stream in streams]
    united = (first.union(*rest) if rest else first).process(WithTime())
    run = run_batch(collecting_graph(env, united), options, deal=shuffled(seed))
    return run.rows(), [row for each_stream in streams for row in each_stream.rows]


class Engine(NamedTuple):
    """Sizes and choices of the engine that no result shows."""

    parallelism: int
    batch_rows: int
    combine: bool
    #: Most keys of a table that folds rows before the shuffle.
    most_keys: int
    #: Bytes of rows that a task sorts in memory.
    sort_bytes: int

    def run(self, program: Program, seed: int) -> tuple[list[Any], list[Stamped]]:
        options = {
            "execution.batch.max-rows": str(self.batch_rows),
            "execution.batch.combine": str(self.combine).lower(),
        }
        with pytest.MonkeyPatch.context() as patch:
            for name in ("MOST_KEYS", "LEAST_KEYS", "FIRST_KEYS"):
                patch.setattr(combining_partition, name, self.most_keys)
            patch.setattr(BatchInputs, "sort_bytes", self.sort_bytes)
            return results(program, self.parallelism, options, seed)


def engines() -> st.SearchStrategy[Engine]:
    return st.builds(
        Engine,
        st.integers(1, 3),
        st.sampled_from([1, 3, 2048]),
        st.booleans(),
        st.sampled_from([1, 2, 1000]),
        st.sampled_from([1, 1000, 1 << 27]),
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(programs(), engines())
def test_programs_give_what_the_model_gives(program: Program, engine: Engine) -> None:
    found, expected = engine.run(program, seed=0)
    assert Counter(found) == Counter((row.row, row.time) for row in expected)
    again, _ = engine.run(program, seed=1)
    assert again == found
