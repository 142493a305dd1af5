"""Specs of the operators where rows enter and leave an iteration of a DataSet program, or a loop of a stream.

Owner: none (frozen values). Both are parts of the JobGraph without a cycle. Whoever runs a DataSet program begins the
part again with what came out. In a stream, rows reach the head of a loop from the tail of the same subtask inside the
worker, past all edges. Must not import operators.
"""

from __future__ import annotations

from yarrow.runtime.graph.operator_spec import (
    IterationControl,
    IterationPlace,
    IterationRole,
    OperatorSpec,
    TypeSpec,
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


class LoopHeadOperator(OperatorSpec, frozen=True, kw_only=True, tag="loop_head"):
    """Emits the rows of its input, and the feedback of its loop."""

    keeps_state_as = "the head of a loop"
    keeps_time = True
    operator_package = "loop"

    loop: int
    #: Milliseconds without feedback after which the loop may end; 0 = it ends as soon as it is empty.
    max_wait_ms: int = 0
    #: Side output of the feedback; None = it leaves with the rows of the input.
    feedback_tag: str | None = None
    #: Declared type of the feedback; None = not declared.
    feedback_type: TypeSpec = None

    @property
    def opens_loop(self) -> int:
        return self.loop


class LoopTailOperator(OperatorSpec, frozen=True, kw_only=True, tag="loop_tail"):
    """Sends rows back to the head of its loop."""

    operator_package = "loop"

    loop: int

    @property
    def closes_loop(self) -> int:
        return self.loop
