"""Windows with an evictor: they keep all rows with their times, and an evictor removes some when a window fires.

Owner: the task thread. A function of reduce or aggregate runs when a window fires, over the rows that are left. Must
not know triggers, timers or merging sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any, Generic, TypeVar

from yarrow.common.typeinfo import Types
from yarrow.container.codegen.user_functions import method_of, results_of
from yarrow.container.operators.base import OperatorContext, declared_type
from yarrow.container.operators.window.window_contents import (
    CONTENTS,
    Call,
    Copier,
    WindowContents,
    contents_type,
    copier_of,
)
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.state.value_table import MISSING
from yarrow.container.state.window_tables import WindowTables
from yarrow.datastream.window import Evictor, TimestampedValue
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.window_forms import WindowForm
from yarrow.runtime.graph.window_spec import WindowKind, WindowOperator

W = TypeVar("W")

#: Name of the state in snapshots: rows with their times.
CONTENTS_WITH_TIMES = "_window_contents_with_times"

#: What a window function gets of the rows that are left.
Fold = Callable[[list[Any]], list[Any]]


def open_evicting_windows(
    spec: WindowOperator,
    context: OperatorContext,
    form: WindowForm[Any],
    combining: Any,
    evicting: Evicting,
    make: Callable[..., EvictingWindows[Any]] | None = None,
) -> EvictingWindows[Any]:
    """The contents of an operator's windows; `combining` is the function of reduce or aggregate.

    `make` takes the arguments of EvictingWindows; None = that class.
    """
    name = context.descriptor.name
    fix = copier_of(context, declared_type(spec.kept_type))
    fold = fold_of(spec.kind, combining, fix, name)
    tables = _tables_with_times(spec, context, form)
    return (make or EvictingWindows)(WindowValues(tables), fix, name, evicting, fold)


def _tables_with_times(
    spec: WindowOperator, context: OperatorContext, form: WindowForm[Any]
) -> WindowTables[Any]:
    row_type = declared_type(spec.kept_type)
    pair = None if row_type is None else Types.TUPLE([row_type, Types.LONG()])
    stored = contents_type(pair, rows=True)
    tables: WindowTables[Any] = context.state.window_tables(CONTENTS_WITH_TIMES, stored, form)
    return tables


def take_rows_with_times(
    spec: WindowOperator, context: OperatorContext, form: WindowForm[Any], contents: WindowContents[Any]
) -> None:
    """Takes up restored rows of windows that kept times, for an evictor or `on_error`, into windows without times."""
    former = _tables_with_times(spec, context, form)
    _move(former, contents.values, lambda _, content: [row for row, _ in content])


def take_rows_without_times(
    spec: WindowOperator,
    context: OperatorContext,
    form: WindowForm[Any],
    contents: WindowContents[Any],
    time_of: Callable[[Any], int],
) -> None:
    """Takes up restored rows of windows that kept no times; `time_of` gives the rows of a window their time."""
    stored = contents_type(declared_type(spec.kept_type), rows=True)
    former: WindowTables[Any] = context.state.window_tables(CONTENTS, stored, form)
    _move(former, contents.values, lambda window, content: [(row, time_of(window)) for row in content])


def _move(
    former: WindowTables[Any], values: WindowValues[Any], moved: Callable[[Any, Any], list[Any]]
) -> None:
    """Moves the contents of all windows; `moved` makes the new one of a window and its content."""
    for window in former.windows():
        for keys, contents in former.take(window):
            for key, content in zip(keys, contents, strict=True):
                values.put(window, key, moved(window, content))
        former.drop(window)


def fold_of(kind: WindowKind, combining: Any, fix: Copier | None, operator: str) -> Fold:
    """What a window function gets: the rows, or one element that reduce or aggregate has made of them.

    Without rows reduce gives no element, and aggregate the result of an empty accumulator.
    """
    if kind is WindowKind.ROWS:
        return list
    fold: Fold = (
        partial(_reduced, method_of(combining, "reduce", operator))
        if kind is WindowKind.REDUCED
        else partial(_aggregated, combining)
    )
    # The function may change the rows that it gets, and the window keeps them.
    return fold if fix is None else lambda rows: fold(list(map(fix, rows)))


def _reduced(combine: Callable[[Any, Any], Any], rows: list[Any]) -> list[Any]:
    reduced = reduce(combine, rows) if rows else None
    return [] if reduced is None else [reduced]


def _aggregated(function: Any, rows: list[Any]) -> list[Any]:
    accumulator = function.create_accumulator()
    for row in rows:
        accumulator = function.add(row, accumulator)
    return [function.get_result(accumulator)]


class Evicting:
    """An evictor with its context."""

    def __init__(self, evictor: Evictor[Any, Any], context: Evictor.EvictorContext) -> None:
        self._evictor = evictor
        self._context = context

    def before(self, elements: list[TimestampedValue[Any]], window: Any) -> None:
        """Removes elements in front of the window function."""
        self._evictor.evict_before(elements, len(elements), window, self._context)

    def after(self, elements: list[TimestampedValue[Any]], window: Any) -> None:
        """Removes elements behind the window function."""
        self._evictor.evict_after(elements, len(elements), window, self._context)

    def require_removed_only(
        self, given: list[TimestampedValue[Any]], left: list[TimestampedValue[Any]]
    ) -> None:
        """Raises InvalidProgramError if the evictor has done anything else than remove elements."""
        rest = iter(given)
        if not all(any(each is other for other in rest) for each in left):
            raise InvalidProgramError(
                f"the evictor {type(self._evictor).__name__} has added, replaced or moved elements of a window: an"
                " evictor only removes elements from the list that it gets"
            )


class EvictingWindows(WindowContents[W], Generic[W]):
    """All rows with their times, in the order in which they came."""

    def __init__(
        self,
        values: WindowValues[W],
        fix: Copier | None,
        operator: str,
        evicting: Evicting,
        fold: Fold,
    ) -> None:
        super().__init__(values, fix, operator)
        self._evicting = evicting
        self._fold = fold

    def fire(self, window: Any, state_window: W, key: Any, call: Call) -> Iterator[Any]:
        content = self.values.get(state_window, key)
        if content is MISSING:
            return
        given = self._elements(content)
        left = given.copy()
        self._evicting.before(left, window)
        yield from results_of(call(self._fold([each.value for each in left])))
        self._evicting.after(left, window)
        if left != given:
            self._evicting.require_removed_only(given, left)
            self._keep(state_window, key, left)

    def _elements(self, content: Any) -> list[TimestampedValue[Any]]:
        """The elements of a content, as the evictor gets them."""
        return [TimestampedValue(row, None if stamp == MIN_TIMESTAMP else stamp) for row, stamp in content]

    def _keep(self, window: W, key: Any, left: list[TimestampedValue[Any]]) -> None:
        """Stores what is left of a window in place of its content."""
        if not left:
            self.values.remove(window, key)
            return
        kept = [(each.value, MIN_TIMESTAMP if each.timestamp is None else each.timestamp) for each in left]
        self.values.put(window, key, kept)

    def added(self, content: Any, row: Any, stamp: int) -> Any:
        if content is MISSING:
            return [(row, stamp)]
        content.append((row, stamp))
        return content

    def merged(self, content: Any, other: Any) -> Any:
        return [*content, *other]
