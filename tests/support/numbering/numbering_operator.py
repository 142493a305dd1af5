"""The operator of NumberRecords.

Owner: the task thread.
"""

from __future__ import annotations

from typing import Any

from yarrow.common.typeinfo import Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import Emit, KeyReadingOperator, OperatorContext
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_current_key
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.datastream.state import ValueStateDescriptor

from . import NumberRecords


@runs(NumberRecords)
class NumberingOperator(KeyReadingOperator):
    """Counts the records of each key in a value state."""

    one_to_one = True

    def __init__(self, name: str, spec: NumberRecords) -> None:
        super().__init__(name)
        self._spec = spec

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._selector = method_of(load_function(self._spec.key_selector, self.name), "get_key", self.name)

    def open(self) -> None:
        context = OperatorRuntimeContext(self.context, keyed=True)
        self._count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        generate_current_key(code, self._selector, value, self.context.state, is_head)
        result = code.fresh("v")
        code.line(f"{result} = {code.bind('number', self._number)}({value})")
        emit(result, timestamp)

    def _number(self, record: Any) -> tuple[int, Any]:
        count = self._count.value()
        number = self._spec.first if count is None else count + 1
        self._count.update(number)
        return number, record
