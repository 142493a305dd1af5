"""A function that returns a value where results were expected: a sentence with the value, and no line of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from yarrow.cep import CEP, Pattern, PatternProcessFunction
from yarrow.common.time import Time
from yarrow.datastream import DataStream, KeyedProcessFunction, ProcessFunction, ProcessJoinFunction
from yarrow.datastream.functions import ProcessWindowFunction
from yarrow.datastream.window import CountEvictor, EventTimeSessionWindows, TumblingEventTimeWindows
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

TUMBLING, SESSIONS = (
    TumblingEventTimeWindows.of(Time.seconds(1)),
    EventTimeSessionWindows.with_gap(Time.seconds(1)),
)


class Counted(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return len(list(elements))


class Alarm(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        return 1


class Element(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        return 1


class Pair(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        return 1


class Match(PatternProcessFunction):
    def process_match(self, match: Any, ctx: Any) -> Any:
        return 1


def one(value: Any) -> Any:
    return 1


def by_value(rows: DataStream) -> Any:
    return rows.key_by(lambda row: row)


def interval_join(rows: DataStream, distance: int = 1) -> Any:
    joined = by_value(rows).interval_join(by_value(rows.map(lambda row: row)))
    return joined.between(Time.seconds(-distance), Time.seconds(distance))


CASES: dict[str, Callable[[DataStream], DataStream]] = {
    "flat_map": lambda rows: rows.flat_map(one),
    "process function": lambda rows: rows.process(Element()),
    "timer": lambda rows: by_value(rows).process(Alarm()),
    "window": lambda rows: by_value(rows).window(TUMBLING).process(Counted()),
    "incremental window": lambda rows: by_value(rows).window(TUMBLING).reduce(max, Counted()),
    "session": lambda rows: by_value(rows).window(SESSIONS).process(Counted()),
    "incremental session": lambda rows: by_value(rows).window(SESSIONS).reduce(max, Counted()),
    "evicting window": lambda rows: by_value(rows).window(TUMBLING).evictor(CountEvictor.of(9)).process(Counted()),
    "interval join": lambda rows: interval_join(rows).process(Pair()),
    "interval join of one time": lambda rows: interval_join(rows, 0).process(Pair()),
    "pattern": lambda rows: CEP.pattern(rows, Pattern.begin("a")).process(Match()),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_value_in_place_of_results_is_told(case: str) -> None:
    with pytest.raises(FragmentFailedError) as failed, OperatorHarness(CASES[case]) as harness:
        harness.push(7, timestamps=[1])
        harness.watermark(10_000)
        harness.run()
    cause = failed.value.cause
    assert "the function gave 1 of type int, where an iterable of results was expected" in cause.stacktrace
    assert "Traceback" not in cause.stacktrace
