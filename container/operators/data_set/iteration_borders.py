"""The operators at the borders of an iteration: they hand rows on, and count them.

Owner: the task thread. Must not know supersteps: whoever runs the job begins the iteration again.
"""

from __future__ import annotations

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.base import Emit, RowOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.graph.iteration_spec import (
    IterationCriterionOperator,
    IterationInputOperator,
    IterationOutputOperator,
    IterationResultOperator,
)
from yarrow.runtime.graph.operator_spec import OperatorSpec


@runs(IterationInputOperator, IterationOutputOperator, IterationResultOperator)
class IterationBorder(RowOperator):
    """Hands rows on."""

    one_to_one = True
    passes_rows = True

    def __init__(self, name: str, spec: OperatorSpec) -> None:
        super().__init__(name)

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        emit(value, timestamp)


@runs(IterationCriterionOperator)
class IterationCriterion(RowOperator):
    """Takes rows, which the chain counts."""

    def __init__(self, name: str, spec: OperatorSpec) -> None:
        super().__init__(name)

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        code.line("pass")
