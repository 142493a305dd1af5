"""Iterations over tasks in this process, against plain loops; and programs that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collecting_graph, shuffled
from tests.support.looping_programs import Program
from yarrow.common import Types
from yarrow.common.accumulators import IntCounter
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream import RuntimeContext
from yarrow.datastream.functions import MapFunction
from yarrow.datastream.functions.iteration_functions import (
    ConvergenceCriterion,
    DoubleSumAggregator,
    LongSumAggregator,
    LongZeroConvergence,
)
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.batch import batch_planner
from yarrow.runtime.graph.batch.batch_plan_text import lines_of
from yarrow.runtime.graph.batch.batch_rules import BatchRefusedError
from yarrow.runtime.graph.data_set_spec import SolutionSetUpdateOperator
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import BatchRunner


class Step(MapFunction[int, int]):
    """Collatz' step; counts numbers that are not yet 1."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.superstep = runtime_context.get_iteration_runtime_context()
        self.steps = IntCounter()
        runtime_context.add_accumulator("steps", self.steps)
        number = self.superstep.get_superstep_number()
        previous = self.superstep.get_previous_iteration_aggregate("above one")
        assert (previous is None) == (number == 1)

    def map(self, value: int) -> int:
        if value == 1:
            return 1
        self.steps.add(1)
        after = value // 2 if value % 2 == 0 else 3 * value + 1
        if after != 1:
            self.superstep.get_iteration_aggregator("above one").aggregate(1)
        return after


def collatz(number: int) -> int:
    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 3), st.integers(0, 9))
def test_an_aggregate_ends_a_bulk_iteration(numbers: list[int], parallelism: int, seed: int) -> None:
    program = Program(parallelism)
    loop = program.begin(program.rows(numbers, Types.LONG()), most=200)
    loop.register_convergence("above one", LongSumAggregator(), LongZeroConvergence())
    (result,) = loop.close([program.stream(loop.inputs[0]).map(Step(), Types.LONG()).transformation])
    run = program.run(program.stream(result), deal=shuffled(seed))
    assert run.rows() == [1] * len(numbers)
    assert run.supersteps == {"loop": max(1, *map(collatz, numbers))}
    # What functions count adds up over all supersteps.
    counted = [each.accumulators.get("steps", 0) for each in run.results.values()]
    assert sum(counted) == sum(map(collatz, numbers))


@pytest.mark.parametrize(("most", "supersteps"), [(2, 2), (50, 4)])
def test_a_criterion_without_rows_ends_a_bulk_iteration(most: int, supersteps: int) -> None:
    program = Program()
    loop = program.begin(program.rows([1, 5]), most=most)
    grown = program.stream(loop.inputs[0]).map(lambda number: number * 2)
    (result,) = loop.close([grown.transformation], grown.filter(lambda number: number < 16).transformation)
    run = program.run(program.stream(result))
    assert sorted(run.rows()) == [2**supersteps, 5 * 2**supersteps]
    assert run.supersteps == {"loop": supersteps}


def test_data_sets_from_outside_are_the_same_in_each_superstep() -> None:
    program = Program()
    factors = program.rows([("a", 2), ("b", 3)])
    loop = program.begin(program.rows([("a", 1), ("b", 1), ("a", 5)]), most=3)
    joined = program.join(
        loop.inputs[0], 0, factors.transformation, 0, lambda row, by: (row[0], row[1] * by[1])
    )
    (result,) = loop.close([joined.transformation])
    assert sorted(program.run(program.stream(result)).rows()) == [("a", 8), ("a", 40), ("b", 27)]


def test_two_iterations_one_behind_the_other_and_a_union_at_the_begin() -> None:
    program = Program()
    first = program.begin(program.rows([1]).union(program.rows([2])), most=3, name="first")
    (doubled,) = first.close([program.stream(first.inputs[0]).map(lambda number: number * 2).transformation])
    second = program.begin(program.stream(doubled), most=2, name="second")
    (rest,) = second.close([program.stream(second.inputs[0]).map(lambda number: number + 1).transformation])
    run = program.run(program.stream(rest))
    assert sorted(run.rows()) == [10, 18]
    assert run.supersteps == {"first": 3, "second": 2}


def edges_of(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [*pairs, *((other, one) for one, other in pairs)]


def components(vertices: int, pairs: list[tuple[int, int]]) -> dict[int, int]:
    """The least vertex of each vertex's component, by a plain search."""
    found: dict[int, int] = {}
    for start in range(vertices):
        waiting = [start]
        while waiting:
            vertex = waiting.pop()
            if vertex not in found:
                found[vertex] = start
                waiting += [other for one, other in edges_of(pairs) if one == vertex]
    return found


def smaller(candidate: tuple[int, int], known: tuple[int, int]) -> Iterator[tuple[int, int]]:
    if candidate[1] < known[1]:
        yield candidate


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12),
    st.integers(1, 3),
    st.integers(0, 9),
)
def test_connected_components_by_a_delta_iteration(
    pairs: list[tuple[int, int]], parallelism: int, seed: int
) -> None:
    program = Program(parallelism)
    own = program.rows([(vertex, vertex) for vertex in range(10)])
    edges = program.rows(edges_of(pairs))
    loop = program.begin(own, own, most=50)
    workset, solution = loop.inputs
    candidates = program.join(workset, 0, edges.transformation, 0, lambda row, edge: (edge[1], row[1]))
    least = candidates.key_by(lambda row: row[0]).min(1)
    delta = program.join(least.transformation, 0, solution, 0, smaller, is_flat=True)
    selector = program.builder.pickle(itemgetter(0), "key")
    updated = program.builder.two_input(
        program.by(solution, 0),
        program.by(delta.transformation, 0),
        "Update",
        SolutionSetUpdateOperator(key_selectors=(selector, selector)),
    )
    _, result = loop.close([delta.transformation, updated], ends_when_empty=True)
    run = program.run(program.stream(result), deal=shuffled(seed))
    assert dict(run.rows()) == components(10, pairs)
    assert len(run.rows()) == 10
    assert run.supersteps["loop"] <= 11


class Breaks(ConvergenceCriterion[float]):
    def is_converged(self, iteration: int, value: float) -> bool:
        raise ValueError("no idea")


def test_a_failing_criterion_names_the_iteration_and_the_superstep() -> None:
    program = Program()
    loop = program.begin(program.rows([1]), most=5)
    loop.register_convergence("sum", DoubleSumAggregator(), Breaks())
    (result,) = loop.close([loop.inputs[0]])
    with pytest.raises(OperatorFailure) as failed:
        program.run(program.stream(result))
    assert failed.value.operator_name == "loop"
    assert failed.value.record == "(the end of superstep 1)"


# ---------------------------------------------------------------------- what is refused


def test_a_data_set_of_the_body_cannot_be_read_outside() -> None:
    program = Program()
    loop = program.begin(program.rows([1]), most=5)
    body = program.stream(loop.inputs[0]).map(lambda number: number)
    (result,) = loop.close([body.transformation])
    body.print()
    with pytest.raises(BatchRefusedError, match=r"'Sink: Print to Std\. Out'.*iteration 'loop'.*behind"):
        program.run(program.stream(result))


def test_an_iteration_without_close_with_is_refused() -> None:
    program = Program()
    loop = program.begin(program.rows([1]), most=5)
    with pytest.raises(BatchRefusedError, match=r"'loop': .*close_with"):
        program.run(program.stream(loop.inputs[0]))


def test_nested_iterations_are_refused() -> None:
    program = Program()
    outer = program.begin(program.rows([1]), most=5, name="outer")
    inner = program.begin(program.stream(outer.inputs[0]), most=5, name="inner")
    (inside,) = inner.close([inner.inputs[0]])
    (result,) = outer.close([inside])
    with pytest.raises(BatchRefusedError, match="cannot be nested"):
        program.run(program.stream(result))


def test_what_close_with_and_aggregators_refuse() -> None:
    program = Program()
    numbers = program.rows([1], Types.LONG())
    for most in (0, -1, True, 1.5):
        with pytest.raises(InvalidProgramError, match="number of its supersteps"):
            program.begin(numbers, most=most)  # type: ignore[arg-type]
    loop = program.begin(numbers, most=5)
    loop.register_aggregator("sum", LongSumAggregator())
    with pytest.raises(InvalidProgramError, match="an aggregator 'sum' already"):
        loop.register_aggregator("sum", LongSumAggregator())
    with pytest.raises(TypeError, match="must be an Aggregator"):
        loop.register_aggregator("other", sum)  # type: ignore[arg-type]
    texts = program.rows(["x"], Types.STRING())
    with pytest.raises(InvalidProgramError, match="give both the same type"):
        loop.close([texts.transformation])
    loop.close([loop.inputs[0]])
    with pytest.raises(InvalidProgramError, match="is closed"):
        loop.close([loop.inputs[0]])


def counting(mode: str) -> JobGraph:
    program = Program(mode=mode)
    loop = program.begin(program.rows([1]), most=5)
    (result,) = loop.close([loop.inputs[0]])
    return collecting_graph(program.env, program.stream(result))


def test_a_stream_has_no_iterations_of_data_sets() -> None:
    with pytest.raises(
        UnsupportedFeatureError, match=r"'loop' belongs to an iteration.*runtime-mode to BATCH"
    ):
        counting("STREAMING")


def test_an_iteration_runs_on_spark_however_small_its_input() -> None:
    graph = counting("AUTOMATIC")
    assert graph.batch_runner is BatchRunner.SPARK
    assert graph.batch_runner_reason == "the iteration 'loop' executes a part of the plan several times"
    assert "Iteration 'loop': stages 3, 5 times at most" in [*lines_of(batch_planner.plan(graph))]
