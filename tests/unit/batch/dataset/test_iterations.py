"""Iterations of DataSet programs: the examples against plain loops, and what is refused."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.architecture.source_tree import ROOT
from tests.support.batch_runner import shuffled
from tests.support.data_sets import data_set_environment, graph_of, rows_of, run
from yarrow.batch.dataset import DataSet, DeltaIteration
from yarrow.batch.dataset.functions import (
    LongSumAggregator,
    LongZeroConvergence,
    RichFilterFunction,
    RichMapFunction,
)
from yarrow.common import Types
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.batch.batch_rules import BatchRefusedError

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(Path(ROOT) / "examples" / f"{name}.py"))


def test_k_means_is_that_of_a_plain_loop() -> None:
    program = example("k_means")
    points = program["points"](200)
    begin = [(number, *points[number]) for number in range(4)]
    env = data_set_environment(2)
    data = env.from_collection(points, program["POINT"]).rebalance()
    done = run(program["k_means"](data, env.from_collection(begin, program["CENTROID"]), 30))
    expected = program["plain"](points, begin, 30)
    assert sorted(done.rows()) == [pytest.approx(centroid) for centroid in expected]
    assert 1 < done.supersteps["k-means"] < 30


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=14),
    st.integers(1, 3),
    st.integers(0, 9),
)
def test_connected_components_are_those_of_a_search(
    edges: list[tuple[int, int]], parallelism: int, seed: int
) -> None:
    program = example("connected_components")
    env = data_set_environment(parallelism)
    both = env.from_collection([*edges, *((other, one) for one, other in edges)], PAIR).rebalance()
    found = rows_of(program["connected_components"](env.generate_sequence(0, 9), both), deal=shuffled(seed))
    assert sorted(found) == sorted(program["plain"](10, edges).items())


class Halved(RichMapFunction[int, int]):
    def map(self, value: int) -> int:
        context = self.get_iteration_runtime_context()
        context.get_iteration_aggregator("sum").aggregate(value // 2)
        return value // 2


class Large(RichFilterFunction[int]):
    def filter(self, value: int) -> bool:
        return value * self.get_iteration_runtime_context().get_superstep_number() > 10


def test_bulk_iterations_end_by_number_criterion_or_aggregate() -> None:
    def numbers() -> DataSet:
        return data_set_environment(2).from_collection([64, 20, 3], Types.LONG())

    loop = numbers().iterate(2).register_aggregator("sum", LongSumAggregator())
    assert loop.get_max_iterations() == 2
    assert sorted(rows_of(loop.close_with(loop.map(Halved(), Types.LONG())))) == [0, 5, 16]

    loop = numbers().iterate(50).name("halve")
    loop.register_aggregation_convergence_criterion("sum", LongSumAggregator(), LongZeroConvergence())
    done = run(loop.close_with(loop.map(Halved(), Types.LONG())))
    assert (done.rows(), done.supersteps) == ([0, 0, 0], {"halve": 7})

    loop = numbers().iterate(50).name("halve").register_aggregator("sum", LongSumAggregator())
    halved = loop.map(Halved(), Types.LONG())
    done = run(loop.close_with(halved, halved.filter(Large())))
    assert (sorted(done.rows()), done.supersteps) == ([0, 0, 2], {"halve": 5})


def test_a_program_without_the_result_of_an_iteration_has_no_iteration() -> None:
    env = data_set_environment(2)
    loop = env.from_elements(1).iterate(3)
    loop.close_with(loop.map(lambda number: number))
    graph = graph_of(env.from_elements(5))
    assert [vertex.name for vertex in graph.vertices] == ["Source: Collection Source -> Sink: Collect"]


def test_the_delta_replaces_rows_and_adds_new_ones() -> None:
    env = data_set_environment(2)
    solution = env.from_collection([(1, 10), (2, 20)], PAIR)
    workset = env.from_collection([(2, 3), (7, 3)], PAIR)
    loop: DeltaIteration = solution.iterate_delta(workset, 10, 0).parallelism(3)
    assert (loop.get_parallelism(), loop.get_workset().get_parallelism()) == (3, 3)
    assert loop.get_max_iterations() == 10
    assert (loop.get_initial_solution_set(), loop.get_initial_workset()) == (solution, workset)
    changed = loop.get_workset().map(lambda row: (row[0], row[1] - 1), PAIR)
    left = changed.filter(lambda row: row[1] > 0)
    done = run(loop.name("count down").close_with(changed, left))
    assert (sorted(done.rows()), done.supersteps) == ([(1, 10), (2, 0), (7, 0)], {"count down": 3})


def test_what_iterations_refuse() -> None:
    env = data_set_environment(2)
    numbers = env.from_collection([1], Types.LONG())
    with pytest.raises(InvalidProgramError, match="number of its supersteps"):
        numbers.iterate(0)
    with pytest.raises(TypeError, match="iterate_delta takes a DataSet"):
        numbers.iterate_delta([1], 5, "*")  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match=r"iterate_delta\(\) needs a key"):
        numbers.iterate_delta(numbers, 5)
    loop = numbers.iterate(3)
    body = loop.map(lambda number: number, Types.LONG())
    result = loop.close_with(body)
    with pytest.raises(InvalidProgramError, match="is closed"):
        loop.close_with(body)
    with pytest.raises(BatchRefusedError, match="behind the iteration"):
        graph_of(result.union(body))
    other = data_set_environment(2).from_elements(1)
    with pytest.raises(InvalidProgramError, match="two execution environments"):
        numbers.iterate(3).close_with(other)
