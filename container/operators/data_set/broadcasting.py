"""The bases of the operators of data sets with a user's function, which may read broadcast variables.

Owner: the task thread. Rows of broadcast inputs come before all others and are kept in memory. The function is opened
behind them, so that its `open` finds them. Must not know what the function does with rows.
"""

from __future__ import annotations

from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.freezing import generate_fixed
from yarrow.container.operators.base import Emit, OperatorContext, declared_type, input_type_of
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.row_functions import FunctionOperator, generate_row_function
from yarrow.container.operators.runtime_context import BroadcastVariable
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.data_set_spec import (
    BroadcastRowFunctionOperator,
    DataSetFunctionOperator,
    DataSetOperator,
)
from yarrow.runtime.graph.operator_spec import RowShape


class BroadcastingOperator(FunctionOperator):
    """Base of operators whose inputs behind those with rows are broadcast variables."""

    def __init__(self, name: str, spec: DataSetOperator, function: bytes) -> None:
        super().__init__(name, function)
        self.parameters = spec.parameters
        self._variables = [BroadcastVariable() for _ in spec.broadcast_variables]
        self.broadcast_variables = dict(zip(spec.broadcast_variables, self._variables, strict=True))

    def open(self) -> None:
        if not self._variables:
            super().open()

    def begin(self) -> None:
        """Opens the function, if that has waited for broadcast variables."""
        if not self._opened:
            super().open()

    def on_watermark(self, timestamp: int) -> Any:
        if timestamp == MAX_TIMESTAMP:
            self.begin()
        return ()

    def generate_variable(self, code: CodeWriter, index: int, value: str) -> None:
        """Generates code that adds a row to the broadcast variable with this place."""
        code.line(f"{code.bind('add', self._variables[index].rows.append)}({value})")


class DataSetFunctionBase(BroadcastingOperator):
    """Base of operators of one data set; input 0 has its rows, the others are broadcast variables."""

    def __init__(self, name: str, spec: DataSetFunctionOperator) -> None:
        super().__init__(name, spec, spec.function)

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._row_type = declared_type(input_type_of(context.descriptor))
        self._object_reuse = context.environment.object_reuse

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        if index:
            self.generate_variable(code, index - 1, value)
            return
        if self._variables:
            code.at_start(f"{code.bind('begin', self.begin)}()")
        self.generate(code, value, timestamp, emit)

    def generate_kept(self, code: CodeWriter, value: str) -> str:
        """Generates a variable with a value that nobody changes any more, for rows that wait."""
        return generate_fixed(code, value, self._row_type, self._object_reuse)


@runs(BroadcastRowFunctionOperator)
class BroadcastRowFunction(DataSetFunctionBase):
    """Runs map, flat_map or filter with broadcast variables."""

    def __init__(self, name: str, spec: BroadcastRowFunctionOperator) -> None:
        super().__init__(name, spec)
        self._shape = spec.shape
        self.passes_rows = spec.shape is RowShape.FILTER

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        generate_row_function(code, self._shape, self.function, self.name, value, timestamp, emit)
