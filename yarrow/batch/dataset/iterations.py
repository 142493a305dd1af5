"""Loops: what bulk and delta iterations have in common, and the borders of a delta iteration.

Owner: the thread that builds the program. The body is written once. Each superstep executes it over what the one
before has left. Must not know the class of data sets that a program sees.
"""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from yarrow.batch.dataset.fields import key_of
from yarrow.batch.dataset.iteration_graph import OpenIteration
from yarrow.batch.dataset.row_operations import RowOperations
from yarrow.datastream.functions.iteration_functions import Aggregator, ConvergenceCriterion
from yarrow.datastream.operator_settings import OperatorSettings
from yarrow.runtime.graph.data_set_spec import SolutionSetUpdateOperator
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec

#: The class of data sets that a program sees.
D = TypeVar("D", bound=RowOperations[Any])


class IterationSettings:
    """The name and the aggregators of an iteration whose body is being written."""

    _loop: OpenIteration

    def name(self, name: str) -> Self:
        """Set the name of the iteration."""
        self._loop.name(name)
        return self

    def get_max_iterations(self) -> int:
        """Return the greatest number of supersteps."""
        return self._loop.max_iterations

    def register_aggregator(self, name: str, aggregator: Aggregator[Any]) -> Self:
        """Add an aggregator, which functions of the body find in their iteration runtime context."""
        self._loop.register_aggregator(name, aggregator)
        return self

    def register_aggregation_convergence_criterion(
        self, name: str, aggregator: Aggregator[Any], criterion: ConvergenceCriterion[Any]
    ) -> Self:
        """Add an aggregator whose value is asked behind each superstep whether the iteration ends."""
        self._loop.register_convergence(name, aggregator, criterion)
        return self


class DeltaLoop(IterationSettings, Generic[D]):
    """An iteration over a solution set, of which each superstep replaces rows by key, and a workset."""

    def __init__(
        self, solution_set: RowOperations[D], workset: D, max_iterations: int, keys: tuple[Any, ...]
    ) -> None:
        solution_set._same_program(workset, "iterate_delta")
        self._data = solution_set
        self._initial_workset = workset
        builder = solution_set._builder
        reads = [workset._rows(), solution_set._rows()]
        selector = key_of("iterate_delta", keys, solution_set.transformation.output_type)
        self._selector = builder.pickle(selector, "Delta Iteration", "key selector")
        self._loop = OpenIteration(builder, "Delta Iteration", reads, max_iterations)
        self._workset, self._solution_set = (solution_set._made(begun) for begun in self._loop.inputs)

    def parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks with which the solution set and the workset begin a superstep."""
        for begun in self._loop.inputs:
            OperatorSettings(begun).set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the number of subtasks with which a superstep begins."""
        return self._solution_set.get_parallelism()

    def get_initial_workset(self) -> D:
        """Return the data set that is the workset of the first superstep."""
        return self._initial_workset

    def get_initial_solution_set(self) -> D:
        """Return the data set that is the solution set of the first superstep."""
        return self._data._itself()

    def get_workset(self) -> D:
        """Return the rows that the superstep before has put on the workset."""
        return self._workset

    def get_solution_set(self) -> D:
        """Return the solution set as the superstep before has left it."""
        return self._solution_set

    def close_with(self, solution_set_delta: D, new_workset: D) -> D:
        """End the body; return the solution set as the last superstep has left it.

        Each row of the delta replaces the row of the solution set that has its key, or is added. A superstep that
        leaves no row on the workset is the last one.
        """
        data, builder = self._data, self._data._builder
        changed = builder.as_rows(data._same_program(solution_set_delta, "close_with"))
        workset = builder.as_rows(data._same_program(new_workset, "close_with"))
        by_key = PartitionerSpec(kind=PartitionerKind.KEY_GROUP, key_selector=self._selector)
        updated = builder.two_input(
            builder.partition(self._solution_set.transformation, by_key),
            builder.partition(changed, by_key),
            "Solution Set",
            SolutionSetUpdateOperator(key_selectors=(self._selector, self._selector)),
            output_type=self._solution_set.transformation.output_type,
        )
        _, left = self._loop.close([workset, updated], ends_when_empty=True)
        return data._made(left)
