"""map, flat_map, filter, project and the stateless two-input functions, as parts of the fused loop.

Owner: the task thread. User functions run once for each record. Their allowed results
follow PyFlink (None from flat_map is no result; coroutine results do not exist).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_calls import generate_call, generate_condition, generate_made_value
from yarrow.container.codegen.user_functions import close_function, load_function, method_of, open_function
from yarrow.container.operators.base import Emit, KeyReadingOperator, OperatorContext, RowOperator
from yarrow.container.operators.checkpointed import CheckpointedFunctionOperator, initialize_function
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_current_key
from yarrow.container.operators.runtime_context import BroadcastVariable, OperatorRuntimeContext
from yarrow.runtime.graph.operator_spec import (
    CoFunctionOperator,
    CoShape,
    ProjectOperator,
    RowFunctionOperator,
    RowShape,
)


class FunctionOperator(CheckpointedFunctionOperator, RowOperator):
    """Base of operators with one user function."""

    #: What the function finds by name, if the operator has broadcast inputs.
    broadcast_variables: Mapping[str, BroadcastVariable] = MappingProxyType({})
    #: The pickled Configuration of the function; None = an empty one.
    parameters: bytes | None = None

    def __init__(self, name: str, blob: bytes, keyed: bool = False) -> None:
        super().__init__(name)
        self._blob = blob
        self._keyed = keyed
        self.function = None
        self._opened = False
        self._runtime_context: OperatorRuntimeContext

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self.function = load_function(self._blob, self.name)

    def open(self) -> None:
        self._opened = True
        runtime_context = self._runtime_context = OperatorRuntimeContext(
            self.context, self._keyed, self.broadcast_variables, self.parameters
        )
        initialize_function(self.function, self.context, runtime_context if self._keyed else None)
        open_function(self.function, runtime_context)

    @property
    def uses_current_key(self) -> bool:
        """True if the function has keyed state, so that the key must be set while it runs."""
        # `yarrow info --code` compiles operators that were never opened.
        return self._opened and self._runtime_context.has_keyed_state

    def close(self) -> None:
        if self._opened:
            self._opened = False
            try:
                close_function(self.function)
            finally:
                self._runtime_context.close_state_functions()


@runs(RowFunctionOperator)
class StatelessFunctionOperator(FunctionOperator, KeyReadingOperator):
    """Runs map, flat_map or filter."""

    def __init__(self, name: str, spec: RowFunctionOperator) -> None:
        super().__init__(name, spec.function, keyed=spec.key_selector is not None)
        self.emits_state = self._keyed and spec.shape is not RowShape.FILTER
        self._shape = spec.shape
        self._selector_blob = spec.key_selector
        self.one_to_one = spec.shape is RowShape.MAP
        self.passes_rows = spec.shape is RowShape.FILTER

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        if self._selector_blob is not None:
            # A rich function on a keyed stream may use keyed state of the record's key.
            selector = method_of(load_function(self._selector_blob, self.name), "get_key", self.name)
            generate_current_key(code, selector, value, self.context.state, is_head)
        generate_row_function(code, self._shape, self.function, self.name, value, timestamp, emit)


def generate_row_function(
    code: CodeWriter,
    shape: RowShape,
    function: Any,
    operator: str,
    value: str,
    timestamp: str | None,
    emit: Emit,
) -> None:
    """Generates the call of a map, flat_map or filter for one row; `operator` is named if `function` is none."""
    called = method_of(function, shape.value, operator)
    if shape is RowShape.FILTER:
        with generate_condition(code, shape.value, called, [value]):
            emit(value, timestamp)
        return
    result = generate_made_value(code, shape.value, called, [value])
    if shape is RowShape.MAP:
        emit(result, timestamp)
    else:
        generate_elements(code, result, timestamp, emit)


def generate_iteration(code: CodeWriter, call: str, timestamp: str | None, emit: Emit) -> None:
    """Generates code that emits each element of the iterable that `call` returns; None has no elements."""
    results = code.fresh("r")
    code.line(f"{results} = {call}")
    generate_elements(code, results, timestamp, emit)


def generate_elements(code: CodeWriter, results: str, timestamp: str | None, emit: Emit) -> None:
    """Generates code that emits each element of the iterable in a variable; None has no elements."""
    # Not each worker has such an operator.
    from yarrow.container.codegen.failed_lines import ResultsRead

    result = code.fresh("v")
    each = code.block(f"for {result} in {results}:", ResultsRead(results))
    with code.block(f"if {results} is not None:"), each:
        emit(result, timestamp)


@runs(ProjectOperator)
class ProjectionOperator(RowOperator):
    """Keeps some fields, as a tuple."""

    one_to_one = True

    def __init__(self, name: str, spec: ProjectOperator) -> None:
        super().__init__(name)
        self._indexes = spec.indexes

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        from yarrow.container.codegen.failed_lines import FieldsRead

        result = code.fresh("v")
        fields = "".join(f"{value}[{int(index)}], " for index in self._indexes)
        code.line(f"{result} = ({fields})", FieldsRead(self._indexes, value))
        emit(result, timestamp)


@runs(CoFunctionOperator)
class CoStatelessFunctionOperator(FunctionOperator):
    """Runs co_map or co_flat_map: methods map1 / map2, flat_map1 / flat_map2."""

    def __init__(self, name: str, spec: CoFunctionOperator) -> None:
        super().__init__(name, spec.function, spec.key_selectors is not None)
        self._shape = spec.shape
        self._selector_blobs = spec.key_selectors
        self.one_to_one = spec.shape is CoShape.CO_MAP

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        if self._selector_blobs is not None:
            selector = method_of(load_function(self._selector_blobs[index], self.name), "get_key", self.name)
            generate_current_key(code, selector, value, self.context.state, is_head=True)
        method = ("map" if self._shape is CoShape.CO_MAP else "flat_map") + str(index + 1)
        result = code.fresh("v")
        generate_call(code, method, getattr(self.function, method), [value], result)
        if self._shape is CoShape.CO_MAP:
            emit(result, timestamp)
        else:
            generate_elements(code, result, timestamp, emit)
