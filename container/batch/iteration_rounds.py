"""IterationRounds: counts the supersteps of one iteration and decides which one is the last. Pure.

Owner: whoever runs the job. It gets what the tasks of each superstep have told, and hands out what those of the next
one need. Must not run tasks.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from yarrow.container.batch.chunk import TaskResult
from yarrow.container.codegen.user_functions import load_function
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream.functions.iteration_functions import Aggregator
from yarrow.runtime.common.accumulators import merge_accumulators
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.batch.batch_iterations import BatchIteration
from yarrow.runtime.graph.operator_spec import IterationControl


class Superstep(msgspec.Struct, frozen=True, kw_only=True):
    """One superstep, as its tasks get it."""

    #: From 1.
    number: int
    control: IterationControl
    #: Pickled values of the aggregators after the superstep before; empty in the first one.
    aggregates: dict[str, bytes] = {}


class SubtaskResult(msgspec.Struct, frozen=True):
    """What the successful attempt of a task of the body has told."""

    vertex_id: JobVertexID
    subtask: int
    attempt: int
    result: TaskResult


class IterationRounds:
    """The supersteps of one iteration."""

    def __init__(self, iteration: BatchIteration) -> None:
        self._iteration = iteration
        self._control = iteration.control
        #: The superstep to execute, or the last one.
        self.present = Superstep(number=1, control=self._control)
        self.is_over = False
        #: Why no superstep follows.
        self.why = ""
        self._totals: dict[tuple[JobVertexID, int], SubtaskResult] = {}

    def finished(self, results: Iterable[SubtaskResult]) -> None:
        """Takes the results of all tasks of the present superstep, each once, and begins the next one.

        Raises OperatorFailure, which names the iteration, if an aggregator or the criterion fails.
        """
        found = sorted(results, key=lambda each: (each.vertex_id, each.subtask))
        try:
            aggregates = merged_aggregates(self._control, found)
            converged = self._converged(aggregates)
        except Exception as error:  # user code may raise anything
            raise OperatorFailure(
                self._control.name, f"(the end of superstep {self.present.number})", error
            ) from error
        self._add(found)
        counted = self._iteration.counted
        if converged:
            self._end("the aggregate has converged")
        elif counted is not None and not rows_into(counted, found):
            self._end("no row is left for another superstep")
        elif self.present.number >= self._control.max_iterations:
            self._end("the number of supersteps is reached")
        else:
            self.present = Superstep(
                number=self.present.number + 1,
                control=self._control,
                aggregates={name: pickle.dumps(value, 5) for name, value in aggregates.items()},
            )

    def _end(self, why: str) -> None:
        self.is_over, self.why = True, why

    def _converged(self, aggregates: Mapping[str, Any]) -> bool:
        if self._control.convergence is None:
            return False
        name, blob = self._control.convergence
        criterion = load_function(blob, self._control.name)
        return bool(criterion.is_converged(self.present.number, aggregates[name]))

    def _add(self, results: Iterable[SubtaskResult]) -> None:
        for each in results:
            key = (each.vertex_id, each.subtask)
            before = self._totals.get(key)
            self._totals[key] = each if before is None else _together(before, each)

    @property
    def totals(self) -> list[SubtaskResult]:
        """What each task of the body has told, over all supersteps."""
        return list(self._totals.values())


def new_aggregators(control: IterationControl) -> dict[str, Aggregator[Any]]:
    """The aggregators of an iteration, with nothing aggregated."""
    return {name: load_function(blob, control.name) for name, blob in control.aggregators}


def merged_aggregates(control: IterationControl, results: Iterable[SubtaskResult]) -> dict[str, Any]:
    """The values of the aggregators over all tasks, in order of the tasks."""
    aggregators = new_aggregators(control)
    for each in results:
        for name, value in each.result.aggregates.items():
            aggregators[name].aggregate(pickle.loads(value))
    return {name: aggregator.get_aggregate() for name, aggregator in aggregators.items()}


def rows_into(operator: str, results: Iterable[SubtaskResult]) -> int:
    """How many rows an operator has taken, over all tasks."""
    return sum(
        rows for each in results for operator_id, rows, _ in each.result.operators if operator_id == operator
    )


def _together(one: SubtaskResult, other: SubtaskResult) -> SubtaskResult:
    first, second = one.result, other.result
    result = TaskResult(
        accumulators=merge_accumulators((first.accumulators, second.accumulators)),
        operators=tuple(
            (operator, rows_in + more_in, rows_out + more_out)
            for (operator, rows_in, rows_out), (_, more_in, more_out) in zip(
                first.operators, second.operators, strict=True
            )
        ),
        records_out=first.records_out + second.records_out,
        bytes_out=first.bytes_out + second.bytes_out,
        records_in=first.records_in + second.records_in,
        bytes_in=first.bytes_in + second.bytes_in,
        metrics=merge_accumulators((first.metrics, second.metrics)),
    )
    return SubtaskResult(other.vertex_id, other.subtask, other.attempt, result)
