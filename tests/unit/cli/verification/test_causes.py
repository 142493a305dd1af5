"""Causes of differences, from the metrics of both runs and the functions of the program."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

from tests.support.batch_runner import run_batch
from tests.unit.runtime.graph.programs import environment
from yarrow.cli.verification.captured_graph import sinks_of
from yarrow.cli.verification.causes import RunFacts, causes_of, examples_in, reduces_of, with_checks
from yarrow.cli.verification.comparison import KeyDifference
from yarrow.client.job_results import merged_values
from yarrow.common import Types
from yarrow.datastream import KeyedProcessFunction, ReduceFunction, RuntimeContext
from yarrow.runtime.common.accumulators import merge_accumulators
from yarrow.runtime.graph.job_graph import JobGraph

ROWS = [("a", 3), ("b", 1), ("a", 1), ("a", 2), ("b", 5), ("b", 7)]
OTHER = KeyDifference("'a'", False, ["('a', 1)"], ["('a', 2)"], (1, 1), (1, 1))


def reduced(function: Any) -> JobGraph:
    env = environment(1)
    stream = env.from_collection(ROWS, Types.TUPLE([Types.STRING(), Types.INT()]))
    stream.key_by(lambda row: row[0]).reduce(function).name("fold").print()
    return env.get_job_graph()


def examples(graph: JobGraph) -> dict[Any, str]:
    (sink,) = sinks_of(graph)
    places = reduces_of(graph, sink.place)
    run = run_batch(with_checks(graph, places))
    found = merge_accumulators(result.accumulators for result in run.results.values())
    return examples_in(merged_values(found), places)


def plus(one: Any, other: Any) -> Any:
    return one[0], one[1] + other[1]


def minus(one: Any, other: Any) -> Any:
    return one[0], one[1] - other[1]


def middle(one: Any, other: Any) -> Any:
    return one[0], (one[1] + other[1]) / 2


class Joins(ReduceFunction[Any]):
    """A rich function that changes its first argument."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = True

    def reduce(self, value1: Any, value2: Any) -> Any:
        assert self.opened
        return value1[0], f"{value1[1]}{value2[1]}"


def test_a_reduce_for_which_order_does_not_count_has_no_example() -> None:
    assert examples(reduced(plus)) == {}
    assert examples(reduced(lambda one, other: max(one, other))) == {}


def counts(one: Any, other: Any) -> Any:
    """Counts calls: no order shows, but any grouping does."""
    return one[0], one[1] + 1


@pytest.mark.parametrize("function", [minus, middle, counts, Joins()])
def test_a_reduce_for_which_order_counts_has_an_example(function: Any) -> None:
    graph = reduced(function)
    found = examples(graph)
    (sink,) = sinks_of(graph)
    told = causes_of(graph, sink.place, OTHER, RunFacts(), RunFacts(), found)
    assert len(told) == 1
    assert told[0].startswith("The reduce of 'fold' depends on the order or grouping of records: of (")
    assert re.search(r", with the (last )?two (exchanged|reduced first) ", told[0])


def test_checks_leave_results_as_they_are() -> None:
    for function in (plus, minus, Joins()):
        graph = reduced(function)
        checked = with_checks(graph, reduces_of(graph, sinks_of(graph)[0].place))
        assert run_batch(checked).printed == run_batch(graph).printed


class Again(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        ctx.timer_service().register_processing_time_timer(timestamp + 1)


class Keeps(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield copy.copy(value)


def processed(function: Any) -> JobGraph:
    env = environment(1)
    env.from_collection(ROWS).key_by(lambda row: row[0]).process(function).name("work").print()
    return env.get_job_graph()


def told(graph: JobGraph, difference: KeyDifference = OTHER, **metrics: float) -> list[str]:
    (sink,) = sinks_of(graph)
    vertex = sink.place.vertex
    facts = RunFacts({(vertex, f"work.{name}"): value for name, value in metrics.items()})
    return causes_of(graph, sink.place, difference, facts, facts, {})


def test_late_records_and_ignored_timers_are_counted() -> None:
    assert told(processed(Keeps()), numLateRecords=3) == [
        "In STREAMING 3 late records reached 'work', behind the watermark. In BATCH no record is late."
    ]
    assert told(processed(Keeps()), numIgnoredTimers=2)[0].startswith(
        "'work' registered 2 timers in callbacks of timers."
    )


def test_processing_time_is_found_in_the_code_of_a_function() -> None:
    (cause,) = told(processed(Again()))
    assert cause.startswith("'work' uses processing time (register_processing_time_timer).")


class Asks(Again):
    """Has a property that works only while the function runs."""

    @property
    def model(self) -> Any:
        raise RuntimeError("the model is loaded by open")

    @staticmethod
    def now(ctx: KeyedProcessFunction.Context) -> int:
        return ctx.timer_service().current_processing_time()


def test_properties_of_a_function_are_not_asked() -> None:
    (cause,) = told(processed(Asks()))
    assert "(current_processing_time, register_processing_time_timer)" in cause


def test_without_a_cause_the_order_of_records_is_the_place_to_look() -> None:
    (cause,) = told(processed(Keeps()))
    assert cause.startswith("No cause is certain. STREAMING gives 'work' the records of a key as they arrive")
    env = environment(1)
    env.from_collection([1]).map(lambda n: n).print()
    graph = env.get_job_graph()
    (cause,) = causes_of(graph, sinks_of(graph)[0].place, OTHER, RunFacts(), RunFacts(), {})
    assert cause.startswith("No cause is known.")


def test_rounding_goes_before_all_other_causes() -> None:
    rounding = KeyDifference("'a'", False, ["(0.30000000000000004,)"], ["(0.3,)"], (1, 1), (1, 1))
    (cause,) = told(processed(Again()), rounding)
    assert cause.startswith("The values differ in rounding alone.")


def test_the_check_travels_to_workers() -> None:
    graph = reduced(plus)
    places = reduces_of(graph, sinks_of(graph)[0].place)
    place = places[0]
    operator = with_checks(graph, places).vertices[place.vertex].operators[place.operator]
    spec: Any = operator.spec
    assert type(cloudpickle.loads(spec.function)).__name__ == "CommutingCheck"
