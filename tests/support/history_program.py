"""A program whose history and stream are compared with the stream: all kinds of state, timers of both clocks.

The stream is the operators of a job in the harness. Its watermark comes up to a record's time, less the bound of
disorder, before the record: so a timer that is due between two records fires before the second one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.support.batch_runner import collecting_graph
from tests.support.split_rows import SplitRows
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Duration, Types, WatermarkStrategy
from yarrow.datastream import DataStream, KeyedProcessFunction, KeyedStream, RuntimeContext
from yarrow.datastream.functions import AggregateFunction
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.options import batch
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.batch.history import history_job
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.state_processor import SavepointEnvironment

#: (key, number, time)
Row = tuple[str, int, int]
JOB = JobID("9" * 32)


class Sum(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator * 3 + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Everything(KeyedProcessFunction[str, Row, Any]):
    """All kinds of state, timers before and behind records, and results that tell the order of everything."""

    def __init__(self, early: int, late: int, again: int) -> None:
        self.early, self.late, self.again = early, late, again

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor[int]("count", Types.INT()))
        self.numbers = runtime_context.get_list_state(ListStateDescriptor[int]("numbers", Types.INT()))
        self.marks: Any = runtime_context.get_map_state(
            MapStateDescriptor("marks", Types.INT(), Types.LONG())
        )
        self.least: Any = runtime_context.get_reducing_state(
            ReducingStateDescriptor("least", min, Types.INT())
        )
        self.total = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("total", Sum(), Types.LONG())
        )

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        key, number, time = value
        self.count.update((self.count.value() or 0) + 1)
        self.numbers.add(number)
        self.marks.put(number, time)
        self.least.add(number)
        self.total.add(number)
        timers = ctx.timer_service()
        timers.register_event_time_timer(time + self.late)
        timers.register_event_time_timer(time - self.early)
        if number % 3 == 0:
            timers.delete_event_time_timer(time + self.late - 1)
        if number % 4 == 0:
            timers.register_processing_time_timer(10**15 + number)
        yield self.told(key, time, timers.current_watermark())

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        if self.again and timestamp % 3 == 0:
            ctx.timer_service().register_event_time_timer(timestamp + self.again)
        if timestamp % 5 == 0:
            self.numbers.clear()
        yield self.told(ctx.get_current_key(), -timestamp, 0)

    def told(self, key: str, time: int, watermark: int) -> Any:
        numbers = list(self.numbers.get() or [])
        marks = sorted(self.marks.items())
        return key, time, watermark, self.count.value(), numbers, marks, self.least.get(), self.total.get()


#: What a case may have in place of the function.
Behind = Callable[[KeyedStream], DataStream]


class Case(NamedTuple):
    rows: list[Row]
    splits: int
    parallelism: int
    until: int
    delay: int
    #: An Everything, or a Behind.
    function: Any
    seed: int


@st.composite
def cases(draw: Any) -> Case:
    times = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=25)))
    rows = [(draw(st.sampled_from(["a", "b", "c", "d"])), draw(st.integers(0, 9)), time) for time in times]
    small = st.integers(0, 12)
    function = Everything(draw(small), draw(small), draw(st.sampled_from([0, 2, 7])))
    return Case(
        rows,
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
        draw(st.integers(-2, 65)),
        draw(st.sampled_from([0, 1, 5])),
        function,
        draw(st.integers(0, 1000)),
    )


def strategy(delay: int) -> WatermarkStrategy:
    return WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(delay))


def history_graph(
    case: Case,
    path: str,
    waits: bool = False,
    until: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> JobGraph:
    """The job that reads history, of a program with the function behind a source with splits."""
    time = until or str(batch.HistoryEnd(case.until))
    env = environment(case.parallelism, {batch.HISTORY_UNTIL.key: time, **(settings or {})})
    env.set_max_parallelism(16)
    splits = [[(row, row[2]) for row in case.rows[number :: case.splits]] for number in range(case.splits)]
    source = env.from_source(SplitRows(splits, waits=waits), strategy(case.delay), "rows").uid("rows")
    graph = collecting_graph(env, keyed(source, case.function))
    return history_job(graph, JOB, path, graph.configuration, drops_rows=False)


def keyed(stream: DataStream, function: Everything | Behind) -> DataStream:
    by_key = stream.key_by(lambda row: row[0])
    made = by_key.process(function) if isinstance(function, Everything) else function(by_key)
    return made.uid("everything")


def stream_results(case: Case, rows: list[Row], savepoint: str | None, first: int | None) -> list[Any]:
    """The results of the stream over `rows`, whose watermark begins at `first`."""
    with SavepointEnvironment(
        lambda stream: keyed(stream, case.function), savepoint, max_parallelism=16
    ) as running:
        if first is not None:
            running.watermark(first)
            assert running.take() == [], "timers up to the watermark of the savepoint have fired"
        for row in rows:
            running.watermark(row[2] - case.delay - 1)
            running.push_timestamped([(row, row[2])])
        again = isinstance(case.function, Everything) and case.function.again
        running.watermark(100 if again else MAX_TIMESTAMP)
        return running.take()


def of_keys(results: list[Any]) -> dict[str, list[Any]]:
    ordered = sorted(results, key=lambda result: str(result[0]))
    return {key: list(found) for key, found in itertools.groupby(ordered, key=lambda result: result[0])}
