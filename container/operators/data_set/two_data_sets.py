"""The base of the operators of two data sets: a chunk of rows goes in by one call, and results come out one by one.

Owner: the task thread. The rows of the first input come before those of the second one, in each key group or task. The
generated loop runs over the results of a chunk. Must not know how a subclass pairs rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import method_of
from yarrow.container.operators.base import Emit, Operator, OperatorContext
from yarrow.container.operators.data_set.broadcasting import BroadcastingOperator
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.runtime.config.options import execution
from yarrow.runtime.graph.data_set_spec import ProjectedField, TwoDataSetsOperator

#: Part of the memory for sorting that rows of the operator take.
_SHARE: Final = 2


class TwoDataSetsOperatorBase(BroadcastingOperator):
    """Base of join, co_group and cross. Subclasses name the function's method."""

    takes_inputs_in_turn = True
    # A row stays in a table while results that hold it are on their way.
    emits_state = True

    #: The function's method.
    method: str

    def __init__(self, name: str, spec: TwoDataSetsOperator) -> None:
        super().__init__(name, spec, spec.function or b"")
        self._data_sets = spec

    def setup(self, context: OperatorContext) -> None:
        if self._data_sets.function is not None:
            super().setup(context)
            self._call = self._first_call if self._variables else self._method()
        else:
            Operator.setup(self, context)
            self._call = projection_of(self._data_sets.projection)
        self._budget = context.environment.settings.get(execution.SORT_MEMORY).bytes // _SHARE
        self._directory = Path(context.environment.local_directory)

    def _method(self) -> Callable[[Any, Any], Any]:
        return method_of(self.function, self.method, self.name)

    def _first_call(self, first: Any, second: Any) -> Any:
        """Opens the function, whose broadcast variables have come, and calls it."""
        self.begin()
        self._call = self._method()
        return self._call(first, second)

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        if index > 1:
            self.generate_variable(code, index - 2, value)
            return
        take = code.bind("take", self._take_first if index == 0 else self._take_second)
        code.at_start(f"rows = {take}(rows)")
        emit(value, timestamp)

    @abstractmethod
    def _take_first(self, rows: list[Any]) -> Iterable[Any]:
        """Takes a chunk of the first input; returns its results."""

    @abstractmethod
    def _take_second(self, rows: list[Any]) -> Iterable[Any]:
        """Takes a chunk of the second input; returns its results."""

    def _results(self, first: Iterable[Any], second: Any) -> Iterator[Any]:
        """The results of one row of the second input with rows of the first one."""
        for row in first:
            yield from self._results_of(row, second)

    def _results_of(self, first: Any, second: Any) -> Iterator[Any]:
        """The results of two rows. Raises OperatorFailure with both if the function fails."""
        try:
            result = self._call(first, second)
            if not self._data_sets.is_flat:
                yield result
            elif result is not None:
                yield from result
        except (OperatorFailure, GeneratorExit):
            raise
        except BaseException as error:  # user code may raise anything
            raise OperatorFailure(self.name, short_record((first, second)), error) from error


def projection_of(fields: tuple[ProjectedField, ...]) -> Callable[[Any, Any], Any]:
    """The function of two rows that gives these fields; without fields, it gives both rows."""
    if not fields:
        return lambda first, second: (first, second)
    places = [(each.input, each.field) for each in fields]

    def projected(first: Any, second: Any) -> tuple[Any, ...]:
        rows = (first, second)
        return tuple([_field(rows[number], field) for number, field in places])

    return projected


def _field(row: Any, field: int | None) -> Any:
    return row if row is None or field is None else row[field]
