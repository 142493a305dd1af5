"""SessionValues: what a session keeps of its rows, out of line: a reduced row, or an accumulator.

Owner: the task thread. Generated code folds most rows by itself. Must not know windows, state or time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from yarrow.container.codegen.user_functions import method_of
from yarrow.container.operators.base import OperatorContext, declared_type
from yarrow.container.operators.window.session_rules import Session
from yarrow.container.operators.window.window_contents import Copier, copier_of, merged_accumulator
from yarrow.runtime.graph.window_spec import WindowKind, WindowOperator


class SessionValues(ABC):
    """Folds rows into what sessions keep; None = a session keeps nothing."""

    def __init__(self, function: Any, fix: Copier | None, operator: str) -> None:
        """`function` is that of reduce or aggregate; `fix` copies a row that could change, None = no row can."""
        self._function = function
        self._fix = fix
        self._operator = operator

    @staticmethod
    def of(spec: WindowOperator, context: OperatorContext, function: Any) -> SessionValues:
        """The values of an operator's sessions."""
        reduced = spec.kind is WindowKind.REDUCED
        fix = copier_of(context, declared_type(spec.kept_type) if reduced else None)
        return (_Reduced if reduced else _Aggregated)(function, fix, context.descriptor.name)

    def together(self, sessions: Iterable[Session], row: Any) -> Any:
        """What sessions keep together, with a row more."""
        kept = None
        for _, _, _, other in sessions:
            kept = other if kept is None else kept if other is None else self._merged(kept, other)
        return self._added(kept, row if self._fix is None else self._fix(row))

    @abstractmethod
    def _added(self, kept: Any, row: Any) -> Any:
        """What a session keeps with a row more."""

    @abstractmethod
    def _merged(self, kept: Any, other: Any) -> Any:
        """What two sessions keep together, the first one before the other."""

    @abstractmethod
    def shown(self, kept: Any) -> Any:
        """The result of a session that keeps something."""


class _Reduced(SessionValues):
    def __init__(self, function: Any, fix: Copier | None, operator: str) -> None:
        super().__init__(function, fix, operator)
        self._reduce = method_of(function, "reduce", operator)

    def _added(self, kept: Any, row: Any) -> Any:
        return row if kept is None else self._reduce(kept, row)

    def _merged(self, kept: Any, other: Any) -> Any:
        return self._reduce(kept, other)

    def shown(self, kept: Any) -> Any:
        return kept


class _Aggregated(SessionValues):
    def _added(self, kept: Any, row: Any) -> Any:
        return self._function.add(row, self._function.create_accumulator() if kept is None else kept)

    def _merged(self, kept: Any, other: Any) -> Any:
        return merged_accumulator(self._function, kept, other)

    def shown(self, kept: Any) -> Any:
        return self._function.get_result(kept)
