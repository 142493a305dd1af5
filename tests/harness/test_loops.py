"""Loops in the operator harness: how they end, what stops with them, and where feedback waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

import pytest

from tests.support.loop_jobs import LOOPS, check_exact, loop_job
from tests.support.loop_run import LoopRun
from yarrow.common import Time, Types
from yarrow.datastream import DataStream, FlatMapFunction, KeyedProcessFunction
from yarrow.datastream.window import TumblingEventTimeWindows
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.data.elements import EndOfData, Watermark
from yarrow.runtime.graph.states import ExecutionState
from yarrow.testing.operator_harness import OperatorHarness

NUMBER = Types.LONG()
RECORDS = range(10)


def halving(numbers: DataStream, wait: int = 0) -> DataStream:
    """Numbers go round, halved, until they are 1."""
    loop = numbers.iterate(wait)
    halves = loop.map(lambda number: number // 2, NUMBER)
    loop.close_with(halves.filter(lambda number: number > 1))
    return halves


def ended(harness: OperatorHarness) -> bool:
    return any(isinstance(element, EndOfData) for element in harness.controls())


def test_records_go_round_and_bear_their_times() -> None:
    with OperatorHarness(halving, types=[NUMBER]) as harness:
        harness.push(9, 4, timestamps=[100, None])
        found = list(zip(harness.output, harness.timestamps(), strict=True))
        assert [number for number, time in found if time == 100] == [4, 2, 1]
        assert [number for number, time in found if time is None] == [2, 1]


def test_event_time_is_that_of_the_input_alone() -> None:
    with OperatorHarness(halving, types=[NUMBER]) as harness:
        harness.push(8, timestamps=[5])
        harness.watermark(70)
        assert harness.controls() == [Watermark(70)]


@pytest.mark.differs(told="`iterate` is Flink's former one")
def test_an_empty_loop_ends_with_its_input() -> None:
    with OperatorHarness(halving, types=[NUMBER]) as harness:
        harness.push(8)
        harness.end()
        assert ended(harness) and harness.output == [4, 2, 1]
        assert harness.states[-1][1] is ExecutionState.FINISHED
        assert harness.metrics()["Iteration.feedbackRecords"] == 2


def test_a_loop_with_a_wait_ends_so_long_behind_its_last_feedback() -> None:
    with OperatorHarness(partial(halving, wait=500), types=[NUMBER]) as harness:
        harness.push(8)
        harness.end()
        harness.advance(0.499)
        assert not ended(harness)
        harness.advance(0.001)
        assert ended(harness)


class Later(KeyedProcessFunction[int, int, int]):
    """Puts a number out after 100 ms of processing time."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 100)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[int]:
        yield ctx.get_current_key() - 1


def later(numbers: DataStream, wait: int) -> DataStream:
    """Numbers go round until they are 0, and pause each time."""
    loop = numbers.iterate(wait)
    paused = loop.key_by(lambda number: number, NUMBER).process(Later(), NUMBER)
    loop.close_with(paused.filter(lambda number: number > 0))
    return paused


def test_a_wait_outlasts_pauses_in_the_loop() -> None:
    with OperatorHarness(partial(later, wait=150), types=[NUMBER]) as harness:
        harness.push(3)
        harness.end()
        for _ in range(3):
            assert not ended(harness)
            harness.advance(0.1)
        assert harness.output == [2, 1, 0]
        harness.advance(0.15)
        assert ended(harness)


@pytest.mark.slow
def test_what_event_time_brings_forth_at_the_end_goes_round() -> None:
    def windows(numbers: DataStream) -> DataStream:
        loop = numbers.iterate()
        keyed = loop.key_by(lambda number: number % 2, NUMBER)
        sums = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).reduce(lambda a, b: a + b)
        loop.close_with(sums.filter(lambda total: total < 0))
        negative = loop.filter(lambda number: number < 0)
        return negative.union(sums.filter(lambda total: total > 0))

    with OperatorHarness(windows, types=[NUMBER]) as harness:
        harness.push(1, -4, 3, timestamps=[1, 2, 3])
        harness.watermark(2**63 - 1)
        harness.end()
        assert sorted(harness.output) == [-4, -4, 4]
        assert ended(harness)


class Fan(FlatMapFunction[int, int]):
    """Three records for each, until they are 0; notes the metrics of the loop at each call."""

    look: ClassVar[Callable[[], None]]

    def flat_map(self, value: int) -> Iterable[int]:
        Fan.look()
        return [value - 1] * 3 if value else []


def test_feedback_beyond_the_bound_goes_to_disk_and_input_waits() -> None:
    def fans(numbers: DataStream) -> DataStream:
        loop = numbers.iterate()
        more = loop.flat_map(Fan(), NUMBER)
        loop.close_with(more)
        return more.filter(lambda number: number == 0)

    bounds = {"taskmanager.memory.network.loop.size": "1 kb", "taskmanager.network.loop.input-bound": "2 kb"}
    on_disk: list[float] = []
    rooms: set[int | None] = set()
    with OperatorHarness(fans, types=[NUMBER], configuration=bounds) as harness:

        def look() -> None:
            on_disk.append(harness.metrics()["Iteration.feedbackDiskBytes"])
            rooms.add(harness.tasks[0].chain.head.room)
            # The head takes a few rows at a time if rows cost much, and others wait.
            harness.clock.advance(0.0001)

        Fan.look = staticmethod(look)
        harness.push(6, 6)
        assert len(harness.output) == 2 * 3**6
        assert max(on_disk) > 0 and rooms == {None, 0}
        assert harness.metrics()["Iteration.feedbackDiskBytes"] == 0
        harness.end()
        assert ended(harness)


def test_a_record_that_cannot_change_any_more_goes_round() -> None:
    def growing(lists: DataStream) -> DataStream:
        loop = lists.iterate()

        def grow(value: list[int]) -> Iterable[list[int]]:
            value.append(len(value))
            yield value
            value.append(-1)

        grown = loop.flat_map(grow)
        loop.close_with(grown.filter(lambda value: len(value) < 4))
        return grown

    with OperatorHarness(growing) as harness:
        harness.push([])
        assert harness.output == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.slow
@pytest.mark.parametrize("form", LOOPS)
def test_a_savepoint_that_stops_the_job_has_the_records_of_the_loop(form: str) -> None:
    held = 0
    for seed in range(4):
        run = LoopRun(partial(loop_job, form=form), RECORDS, seed, {})
        run.start(1 + seed % 2)
        for _ in range(8 + seed):
            run.send_row()
            run.step()
        cut = run.begin_checkpoint(kind=SnapshotKind.SAVEPOINT_SUSPEND)
        run.end_stopped()
        assert run.completed is cut
        held += run.held_by("loop")
        run.start(1 + seed)
        run.finish()
        check_exact(run.printed, RECORDS)
        run.kill()
    assert held > 0


@pytest.mark.slow
@pytest.mark.parametrize("form", LOOPS)
def test_a_drained_job_has_emptied_its_loop(form: str) -> None:
    for seed in range(3):
        run = LoopRun(partial(loop_job, form=form), RECORDS, seed, {})
        run.start(1 + seed)
        for _ in range(6):
            run.send_row()
            run.step()
        sent = run.sent
        run.send(Watermark(2**63 - 1))
        cut = run.begin_checkpoint(kind=SnapshotKind.SAVEPOINT_TERMINATE)
        run.end_stopped()
        assert run.completed is cut and run.held_by("loop") == 0
        check_exact(run.printed, RECORDS[:sent])
        run.kill()


def test_a_savepoint_that_fails_lets_the_loop_go_on() -> None:
    run = LoopRun(loop_job, RECORDS, 1, {})
    run.start(2)
    for _ in range(6):
        run.send_row()
        run.step()
    cut = run.begin_checkpoint(kind=SnapshotKind.SAVEPOINT_SUSPEND)
    for _ in range(20):
        run.step()
    run.abort(cut)
    run.finish()
    check_exact(run.printed, RECORDS)
    run.kill()
