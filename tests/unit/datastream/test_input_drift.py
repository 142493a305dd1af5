"""set_max_input_drift while a program is built: where it stands in the graph, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from yarrow.common import Configuration, Duration, TimestampAssigner, WatermarkStrategy
from yarrow.datastream import CoMapFunction, DataStream, OutputTag, StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.common.errors import InvalidProgramError


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


class Either(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


TIMED = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
DRIFT = Duration.of_seconds(10)


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration())


def numbers(env: StreamExecutionEnvironment, name: str, strategy: WatermarkStrategy = TIMED) -> DataStream:
    return env.from_source(NumberSequenceSource(1, 9), strategy, name)


def test_the_vertex_has_the_bound() -> None:
    env = environment()
    first, second = numbers(env, "first"), numbers(env, "second")
    first.connect(second).map(Either()).name("both").set_max_input_drift(DRIFT).print()
    vertices = env.get_job_graph("drift").vertices
    assert {v.head.name: v.max_input_drift_ms for v in vertices if v.max_input_drift_ms is not None} == {
        "both": 10_000
    }


def test_an_interval_join_and_a_union_take_it() -> None:
    env = environment()
    first, second = numbers(env, "first"), numbers(env, "second")
    first.union(second).map(str).set_max_input_drift(DRIFT)
    assert env.get_job_graph("drift", clear_transformations=False)


def with_itself(stream: DataStream) -> DataStream:
    return stream.connect(stream.map(int)).map(Either())


def with_side_output(stream: DataStream) -> DataStream:
    return stream.connect(stream.get_side_output(OutputTag("late"))).map(Either())


REFUSED: dict[str, tuple[Callable[[StreamExecutionEnvironment], object], str]] = {
    "one stream": (
        lambda env: numbers(env, "first").map(str).set_max_input_drift(DRIFT),
        "reads one stream",
    ),
    "a source": (lambda env: numbers(env, "first").set_max_input_drift(DRIFT), "reads one stream"),
    "one source": (
        lambda env: with_itself(numbers(env, "first")).set_max_input_drift(DRIFT),
        "come from the source 'first'",
    ),
    "one source behind a side output": (
        lambda env: with_side_output(numbers(env, "first").map(str)).set_max_input_drift(DRIFT),
        "come from the source 'first'",
    ),
    "no time": (
        lambda env: (
            numbers(env, "first").connect(env.from_sequence(1, 9)).map(Either()).set_max_input_drift(DRIFT)
        ),
        "'Sequence Source' gives operator 'Co-Map' records without event time",
    ),
    "union": (
        lambda env: numbers(env, "first").union(numbers(env, "second")).set_max_input_drift(DRIFT),
        "concerns an operator",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_wait_is_refused(what: str) -> None:
    program, message = REFUSED[what]
    with pytest.raises(InvalidProgramError, match=message):
        program(environment())


def test_a_drift_is_a_length_of_time() -> None:
    env = environment()
    both = numbers(env, "first").connect(numbers(env, "second")).map(Either())
    with pytest.raises(ValueError, match="max_drift must not be negative: -1 ms"):
        both.set_max_input_drift(Duration.of_millis(-1))
    with pytest.raises(TypeError, match=r"max_drift must be a Time, .*of_millis\(10\), not 10"):
        both.set_max_input_drift(10)  # type: ignore[arg-type]
