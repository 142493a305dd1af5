"""Specs of the operators where rows enter and leave an iteration of a DataSet program.

Owner: none (frozen values). An iteration is a part of the JobGraph without a cycle: rows go from its inputs to its
outputs. Whoever runs the job begins it again with what came out. Must not import operators.
"""

from __future__ import annotations

from yarrow.runtime.graph.operator_spec import (
    IterationControl,
    IterationPlace,
    IterationRole,
    OperatorSpec,
)


class IterationInputOperator(OperatorSpec, frozen=True, kw_only=True, tag="iteration_input"):
    """Hands on the rows with which a superstep begins."""

    iteration: str
    #: Which of the data sets that go round.
    variable: int = 0
    #: Of the first input: when the iteration ends.
    control: IterationControl | None = None

    @property
    def iteration_place(self) -> IterationPlace:
        return IterationPlace(self.iteration, IterationRole.INPUT, self.variable, self.control)


class IterationOutputOperator(OperatorSpec, frozen=True, kw_only=True, tag="iteration_output"):
    """Hands on the rows with which the next superstep begins, or which are the result."""

    iteration: str
    variable: int = 0

    @property
    def iteration_place(self) -> IterationPlace:
        return IterationPlace(self.iteration, IterationRole.OUTPUT, self.variable)


class IterationCriterionOperator(OperatorSpec, frozen=True, kw_only=True, tag="iteration_criterion"):
    """Counts rows: a superstep without any is the last one."""

    iteration: str

    @property
    def iteration_place(self) -> IterationPlace:
        return IterationPlace(self.iteration, IterationRole.CRITERION)


class IterationResultOperator(OperatorSpec, frozen=True, kw_only=True, tag="iteration_result"):
    """Hands on the rows of the last superstep."""

    iteration: str
    variable: int = 0

    @property
    def iteration_place(self) -> IterationPlace:
        return IterationPlace(self.iteration, IterationRole.RESULT, self.variable)
