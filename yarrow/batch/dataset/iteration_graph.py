"""OpenIteration: the borders of one iteration in the graph of a program, from its begin to close_with.

Owner: the thread that builds the program. The rows that leave an iteration do not flow back in the graph: whoever runs
the job begins the body again with them. Must not know DataSets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yarrow.datastream.functions.iteration_functions import Aggregator, ConvergenceCriterion
from yarrow.datastream.program.graph_builder import GraphBuilder
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.iteration_spec import (
    IterationCriterionOperator,
    IterationInputOperator,
    IterationOutputOperator,
    IterationResultOperator,
)
from yarrow.runtime.graph.operator_spec import IterationControl
from yarrow.runtime.graph.transformations import (
    ChainingStrategy,
    OneInputTransformation,
    SpecTransformation,
    Transformation,
)


class OpenIteration:
    """An iteration whose body is being written."""

    def __init__(
        self, builder: GraphBuilder, name: str, reads: Sequence[Transformation], max_iterations: int
    ) -> None:
        """`reads` are the data sets that go round, as they are before the first superstep.

        Raises InvalidProgramError unless there is to be at least one superstep.
        """
        if isinstance(max_iterations, bool) or not isinstance(max_iterations, int) or max_iterations < 1:
            raise InvalidProgramError(
                f"the iteration {name!r} needs the greatest number of its supersteps, from 1 on, not {max_iterations!r}"
            )
        self._builder = builder
        self._name = name
        #: The greatest number of supersteps.
        self.max_iterations = max_iterations
        self._aggregators: dict[str, bytes] = {}
        self._convergence: tuple[str, bytes] | None = None
        self._is_closed = False
        self._id = ""
        self.inputs = [self._input(read, number) for number, read in enumerate(reads)]

    def _input(self, read: Transformation, number: int) -> OneInputTransformation:
        made = self._builder.one_input(
            read,
            self._name,
            IterationInputOperator(iteration="", variable=number),
            output_type=read.output_type,
            chaining=ChainingStrategy.HEAD,
        )
        self._id = self._id or f"iteration-{made.id}"
        made.spec = IterationInputOperator(iteration=self._id, variable=number)
        return made

    def name(self, name: str) -> None:
        """Sets the name that plans, REST and messages show. Raises InvalidProgramError behind `close`."""
        self._require_open()
        self._name = name
        for made in self.inputs:
            made.name = name

    def register_aggregator(self, name: str, aggregator: Aggregator[Any]) -> None:
        """Adds an aggregator. Raises InvalidProgramError for a second one of the name, or behind `close`."""
        self._require_open()
        if name in self._aggregators:
            raise InvalidProgramError(f"the iteration {self._name!r} has an aggregator {name!r} already")
        if not isinstance(aggregator, Aggregator):
            raise TypeError(f"the aggregator {name!r} must be an Aggregator, not {type(aggregator).__name__}")
        self._aggregators[name] = self._builder.pickle(aggregator, self._name, "aggregator")

    def register_convergence(
        self, name: str, aggregator: Aggregator[Any], criterion: ConvergenceCriterion[Any]
    ) -> None:
        """Adds an aggregator whose value may end the iteration. Raises InvalidProgramError for a second criterion."""
        if self._convergence is not None:
            raise InvalidProgramError(
                f"the iteration {self._name!r} has a convergence criterion already, of the aggregator"
                f" {self._convergence[0]!r}"
            )
        self.register_aggregator(name, aggregator)
        self._convergence = (name, self._builder.pickle(criterion, self._name, "convergence criterion"))

    def close(
        self,
        outputs: Sequence[Transformation],
        criterion: Transformation | None = None,
        *,
        ends_when_empty: bool = False,
    ) -> list[SpecTransformation]:
        """Ends the body; returns the rows of the last superstep of each data set that goes round.

        `outputs` begin the next superstep. `criterion`: a superstep in which it has no row is the last one.
        `ends_when_empty`: so is one whose first output has none. Raises InvalidProgramError if it is closed already, or
        an output has another type than its input.
        """
        self._require_open()
        for made, output in zip(self.inputs, outputs, strict=True):
            _check_type(self._name, made, output)
        self._is_closed = True
        results = [self._output(output, number) for number, output in enumerate(outputs)]
        ends: list[SpecTransformation] = [*results]
        if criterion is not None:
            spec = IterationCriterionOperator(iteration=self._id)
            ends.append(self._builder.one_input(criterion, f"{self._name}: termination", spec))
        for result in results:
            # A program may read one result alone, but the iteration needs all of its ends.
            result.companions = tuple(end for end in ends if end is not result)
        self.inputs[0].spec = IterationInputOperator(
            iteration=self._id,
            control=IterationControl(
                name=self._name,
                max_iterations=self.max_iterations,
                ends_when_empty=ends_when_empty,
                aggregators=tuple(self._aggregators.items()),
                convergence=self._convergence,
            ),
        )
        return results

    def _output(self, read: Transformation, number: int) -> SpecTransformation:
        begun = self.inputs[number]
        output = self._builder.one_input(
            read,
            f"{self._name}: next",
            IterationOutputOperator(iteration=self._id, variable=number),
            output_type=begun.output_type,
            parallelism_like=begun,
        )
        return self._builder.one_input(
            output,
            f"{self._name}: result",
            IterationResultOperator(iteration=self._id, variable=number),
            output_type=begun.output_type,
            chaining=ChainingStrategy.HEAD,
            parallelism_like=begun,
        )

    def _require_open(self) -> None:
        if self._is_closed:
            raise InvalidProgramError(
                f"the iteration {self._name!r} is closed: register aggregators and call close_with before, once"
            )


def _check_type(name: str, begun: Transformation, output: Transformation) -> None:
    if begun.output_type is not None and output.output_type not in (None, begun.output_type):
        raise InvalidProgramError(
            f"the iteration {name!r} begins with {begun.output_type} and ends with {output.output_type} of"
            f" {output.name!r}: give both the same type"
        )
