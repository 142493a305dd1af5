"""Patterns and pre-aggregated windows killed wherever an unaligned checkpoint may stand, at parallelism 1 to 4.

Barriers overtake records, partial values and watermarks. A run cuts and kills over and over, and its results are those
of the rows in plain Python.
"""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

import pytest

from tests.harness.test_loops_restored import advance, until_complete
from tests.support.loop_run import LoopRun
from tests.support.pattern_model import Kind, Whole, all_matches
from tests.support.restarted_job import MAX_PARALLELISM
from tests.support.window_functions import NumbersInPlace
from yarrow.cep import CEP
from yarrow.common import Time, Types
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.datastream.functions import KeyedProcessFunction, ProcessWindowFunction, RuntimeContext
from yarrow.datastream.state import ListState, ListStateDescriptor
from yarrow.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows, WindowAssigner
from yarrow.runtime.data.elements import RowBatch, Watermark
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.transformations import SourceTransformation

#: More than a run sends before its last attempt.
ROWS = 90
ATTEMPTS = 7
KEYS = 3
#: Rows are so much out of order, ms.
DISORDER = 50
ROW = Types.TUPLE([Types.LONG(), Types.LONG(), Types.STRING()])
#: A key, and a text of what was found. Records in flight go on at another parallelism only if their types are declared.
RESULT = Types.TUPLE([Types.LONG(), Types.STRING()])
#: Behind all rows.
END = 10**9

#: (key, number, letter)
Row = tuple[int, int, str]


def row_of(number: int) -> Row:
    """A row; keys and letters in no order that repeats soon."""
    return number * number % 7 % KEYS, number, "abcab"[number * 3 % 11 % 5]


def time_of(number: int) -> int:
    """The time of a row, ms: never behind the watermark that comes before it."""
    return 10 * number + number * 37 % (DISORDER - 1)


def text_of(numbers: Iterable[int]) -> str:
    """What is shown of a result."""
    return " ".join(map(str, numbers))


class Shown(ProcessWindowFunction[Any, Any, int, Any]):
    """Shows the bounds of a window and its numbers."""

    def process(self, key: int, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        for numbers in elements:
            yield key, text_of([window.start, window.end, *numbers])


class Found(KeyedProcessFunction[int, Any, str]):
    """Keeps all results of a key, and puts them out at the end of event time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._found: ListState[Any] = runtime_context.get_list_state(ListStateDescriptor("found", RESULT))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self._found.add(value)
        ctx.timer_service().register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[str]:
        yield repr([tuple(result) for result in self._found])


class TimedRun(LoopRun):
    """A run of a job whose source sends the watermark behind each row."""

    def send_row(self) -> None:
        """Sends the next row, or the end behind the last one."""
        if self.sent >= ROWS:
            super().send_row()
            return
        time = time_of(self.sent)
        channels = self.fragment.inputs[self._source]
        channels[self.sent % len(channels)].send_batch(RowBatch([row_of(self.sent)], [time]))
        self.sent += 1
        self.send(Watermark(10 * self.sent - 1))


# ---------------------------------------------------------------------- jobs and their models

WHOLE = Whole((Kind("a", "a"), Kind("b", "b"), Kind("c", "c")), 90)


def pattern(rows: DataStream) -> DataStream:
    found = CEP.pattern(rows.key_by(lambda row: row[0], Types.LONG()), WHOLE.pattern(lambda row: row[2]))
    return found.select(
        lambda match: (match["a"][0][0], text_of(match[step][0][1] for step in "abc")), output_type=RESULT
    ).uid("operator")


def matches() -> Counter[Any]:
    """All matches of the rows."""
    found: Counter[Any] = Counter()
    for key in range(KEYS):
        numbers = sorted((n for n in range(ROWS) if row_of(n)[0] == key), key=time_of)
        rows = [(row_of(number)[2], time_of(number)) for number in numbers]
        for match in all_matches(WHOLE, rows):
            found[key, text_of(numbers[at] for _, at in match.taken)] += 1
    return found


def pre_aggregated(assigner: WindowAssigner[Any, Any], lateness: int, rows: DataStream) -> DataStream:
    cut = rows.key_by(lambda row: row[0], Types.LONG()).window(assigner).allowed_lateness(lateness)
    numbers = Types.LIST(Types.LONG())
    return cut.aggregate(NumbersInPlace(), Shown(), numbers, RESULT, pre_aggregate=True).uid("operator")


def windows(size: int, slide: int) -> Counter[Any]:
    """The rows of each window."""
    numbers: dict[tuple[int, int], list[int]] = {}
    for number in range(ROWS):
        key, time = row_of(number)[0], time_of(number)
        first = time - time % slide
        for start in range(first, first - size, -slide):
            numbers.setdefault((key, start), []).append(number)
    return Counter((key, text_of([start, start + size, *found])) for (key, start), found in numbers.items())


TUMBLING = TumblingEventTimeWindows.of(Time.milliseconds(80))
SLIDING = SlidingEventTimeWindows.of(Time.milliseconds(90), Time.milliseconds(30))
JOBS: dict[str, tuple[Callable[[DataStream], DataStream], Callable[[], Counter[Any]]]] = {
    "a pattern": (pattern, matches),
    "tumbling windows": (partial(pre_aggregated, TUMBLING, 0), partial(windows, 80, 80)),
    "sliding windows with lateness": (partial(pre_aggregated, SLIDING, 40), partial(windows, 90, 30)),
}


@lru_cache
def job(parallelism: int, name: str) -> JobGraph:
    """The graph of a job whose source a test replaces."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    env.set_max_parallelism(MAX_PARALLELISM)
    env.set_buffer_timeout(0)
    source = env.from_collection([(0, 0, "")], ROW).uid("source").set_parallelism(1).disable_chaining()
    # The test sends timestamps in its place.
    assert isinstance(source.transformation, SourceTransformation)
    source.transformation.without_time = False
    rows = source.rebalance().map(lambda row: row, ROW).uid("rows")
    results = JOBS[name][0](rows).key_by(lambda result: result[0], Types.LONG())
    results.process(Found(), Types.STRING()).uid("found").print().uid("print")
    return env.get_job_graph("overtaken")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, "rocksdb" if name == "tumbling windows" else "hashmap") for name in JOBS]
    + [("a pattern", "rocksdb")],
)
def test_killed_and_restored_over_and_over_with_barriers_that_overtake(name: str, backend: str) -> None:
    held = 0
    draw = random.Random(0)
    run = TimedRun(partial(job, name=name), (), 0, {"state.backend.type": backend})
    for attempt in range(ATTEMPTS):
        run.start(1 + (attempt + 1) % 4)
        advance(run, draw.randrange(30))
        cut = run.begin_checkpoint(unaligned=True)
        # A kill before the checkpoint is complete, or at once behind it, or some time later.
        until_complete(run, cut.number, draw.choice([draw.randrange(40), 2000, 2000]))
        if run.completed is cut:
            held += run.channels_held
        advance(run, draw.randrange(6))
        run.kill()
    assert held > 0, "barriers have overtaken records"
    assert not run.printed and run.sent < ROWS
    run.start(2)
    run.finish()
    found = [ast.literal_eval(line.rpartition("> ")[2]) for text in run.printed for line in text.splitlines()]
    assert Counter(result for of_key in found for result in of_key) == JOBS[name][1]()
    run.kill()
