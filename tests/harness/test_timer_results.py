"""Results of timers flow on in few calls of the loop behind them, each before the function runs on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from yarrow.container.chain.chain_loops import ChainLoops
from yarrow.datastream import KeyedProcessFunction, OutputTag
from yarrow.datastream.data_stream import DataStream
from yarrow.testing.operator_harness import Fragment, FragmentFailedError, OperatorHarness

SIDE = OutputTag("side")


class AtTimer(KeyedProcessFunction[Any, Any, Any]):
    """Registers a timer for each record, of both kinds of time."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_processing_time_timer(1)
        ctx.timer_service().register_event_time_timer(7)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        return self.results(timestamp)

    def results(self, timestamp: int) -> Iterable[Any]:
        """What a timer emits."""
        return ()


def behind(function: AtTimer) -> Fragment:
    return lambda rows: rows.key_by(lambda value: value).process(function).map(lambda value: value)


class Thousands(AtTimer):
    def results(self, timestamp: int) -> Iterable[Any]:
        return range(3000)


def test_a_timers_results_take_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    run = ChainLoops.run

    def counted(loops: ChainLoops, key: tuple[Any, ...], rows: Any, timestamps: Any) -> None:
        calls.append(key)
        run(loops, key, rows, timestamps)

    with OperatorHarness(behind(Thousands())) as harness:
        harness.push("a")
        monkeypatch.setattr(ChainLoops, "run", counted)
        harness.advance(1)
        assert harness.output == list(range(3000))
        assert len([key for key in calls if key == ("behind", 0, None)]) == 3


def test_rows_of_both_kinds_of_timers_keep_their_timestamps() -> None:
    class Told(AtTimer):
        def results(self, timestamp: int) -> Iterable[Any]:
            return [timestamp] * 3

    with OperatorHarness(behind(Told())) as harness:
        harness.push("a", "b")
        harness.advance(1)
        harness.watermark(10)
        harness.push("a")
        harness.advance(1)
        assert harness.output == [1] * 6 + [7] * 6 + [1] * 3
        assert harness.timestamps() == [None] * 6 + [7] * 6 + [None] * 3


class Grown(AtTimer):
    """Emits one list again and again, and changes it in between."""

    def results(self, timestamp: int) -> Iterator[Any]:
        grown: list[int] = []
        for number in range(5):
            grown.append(number)
            yield grown


@pytest.mark.parametrize("kind", ["processing time", "event time"])
def test_each_result_flows_on_before_the_function_runs_on(kind: str) -> None:
    with OperatorHarness(behind(Grown())) as harness:
        harness.push("a")
        if kind == "event time":
            harness.watermark(10)
        else:
            harness.advance(1)
        assert harness.output == [list(range(count)) for count in range(1, 6)]


def test_side_outputs_between_rows() -> None:
    class Mixed(AtTimer):
        def results(self, timestamp: int) -> Iterator[Any]:
            for number in range(6):
                yield (SIDE, number) if number % 3 else number
            yield OutputTag("unread"), -1

    def fragment(rows: DataStream) -> list[DataStream]:
        made = rows.key_by(lambda value: value).process(Mixed())
        return [made.map(lambda value: value), made.get_side_output(SIDE).map(lambda value: value)]

    with OperatorHarness(fragment) as harness:
        harness.push("a")
        harness.advance(1)
        harness.watermark(10)
        assert harness.outputs(0) == [0, 3, 0, 3] and harness.outputs(1) == [1, 2, 4, 5] * 2
        assert harness.timestamps(0) == [None, None, 7, 7]
        assert harness.timestamps(1) == [None] * 4 + [7] * 4


class FailsLate(AtTimer):
    def results(self, timestamp: int) -> Iterator[Any]:
        yield 1
        raise SystemExit("in the timer")


def test_an_error_names_the_operator_whose_code_failed() -> None:
    def fails(value: Any) -> Any:
        raise ValueError("in the map")

    def fragment(rows: DataStream) -> DataStream:
        return rows.key_by(lambda value: value).process(Thousands()).name("timers").map(fails).name("behind")

    for failing, operator, message in [
        (fragment, "behind", "in the map"),
        (behind(FailsLate()), "KeyedProcess", "user code called sys.exit('in the timer')"),
    ]:
        with pytest.raises(FragmentFailedError) as raised, OperatorHarness(failing) as harness:
            harness.push("a")
            harness.advance(1)
        cause = raised.value.cause
        assert (cause.operator_name, cause.message) == (operator, message)
