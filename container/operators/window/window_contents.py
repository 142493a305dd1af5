"""What a window keeps of its rows, by key: all of them, their reduction, or an accumulator.

Owner: the task thread. Rows are copied where they could change. Must not know triggers, evictors, timers or merging
sets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.codegen.user_functions import method_of, results_of
from yarrow.container.operators.base import OperatorContext, declared_type
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.state.folded_states import refuse_none
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.container.state.window_tables import WindowTables
from yarrow.datastream.state.folding import Aggregation
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.data.window_forms import WindowForm
from yarrow.runtime.graph.window_spec import WindowKind, WindowOperator

W = TypeVar("W")

#: Name of the state in snapshots.
CONTENTS = "_window_contents"

Copier = Callable[[Any], Any]
#: Calls the window function with the elements of a window; None = it has no results.
Call = Callable[[list[Any]], Iterable[Any] | None]


def open_contents(
    spec: WindowOperator, context: OperatorContext, form: WindowForm[Any], combining: Any
) -> WindowContents[Any]:
    """The contents of an operator's windows; `combining` is the function of reduce or aggregate."""
    stored = contents_type(declared_type(spec.kept_type), rows=spec.kind is WindowKind.ROWS)
    return contents_of(spec, context, context.state.window_tables(CONTENTS, stored, form), combining)


def contents_of(
    spec: WindowOperator, context: OperatorContext, tables: WindowTables[Any], combining: Any
) -> WindowContents[Any]:
    """Contents of windows that lie in these tables."""
    contents = _contents_of_rows(spec, context, tables, combining)
    return (
        PartialContents(contents, copier_for(declared_type(spec.kept_type)))
        if spec.pre_aggregated
        else contents
    )


def _contents_of_rows(
    spec: WindowOperator, context: OperatorContext, tables: WindowTables[Any], combining: Any
) -> WindowContents[Any]:
    name, values = context.descriptor.name, WindowValues[Any](tables)
    # The type of an accumulator says nothing about the rows.
    fix = copier_of(context, None if spec.kind is WindowKind.AGGREGATED else declared_type(spec.kept_type))
    if spec.kind is WindowKind.ROWS:
        return RowsOfWindows(values, fix, name)
    if spec.kind is WindowKind.REDUCED:
        return ReducedWindows(values, fix, name, method_of(combining, "reduce", name))
    return AggregatedWindows(values, fix, name, combining)


def copier_of(context: OperatorContext, row_type: TypeInformation | None) -> Copier | None:
    """Copies rows of a type that could change; None = no row can."""
    return None if context.environment.object_reuse else copier_for(row_type)


def merged_accumulator(function: Aggregation[Any, Any, Any], one: Any, other: Any) -> Any:
    """One accumulator of two. Raises InvalidProgramError for a `merge` that returns None: it would lose both."""
    both = function.merge(one, other)
    if both is None:
        raise _lost_accumulators(function)
    return both


def _lost_accumulators(function: Aggregation[Any, Any, Any]) -> InvalidProgramError:
    return InvalidProgramError(
        f"merge of {type(function).__name__} returned None: it must return an accumulator of the records of both"
        " accumulators"
    )


def contents_type(kept: TypeInformation | None, *, rows: bool) -> TypeInformation:
    """The type of the stored contents; `kept` is that of a row if all `rows` are kept. An undeclared one is pickled."""
    if kept is None:
        return Types.PICKLED_BYTE_ARRAY()
    return Types.LIST(kept) if rows else kept


class WindowContents(ABC, Generic[W]):
    """The contents of all windows of an operator."""

    def __init__(self, values: WindowValues[W], fix: Copier | None, operator: str) -> None:
        """`fix` copies a row that could change; None = no row can."""
        self.values = values
        self._fix = fix
        self._operator = operator

    def add(self, window: W, key: Any, row: Any, stamp: int) -> None:
        """Adds a row with its time, MIN_TIMESTAMP = it has none. Raises NoneInStateError for None."""
        self.add_to(self.values.tables.table(window), window, canonicalize(key), row, stamp)

    def add_to(self, table: ValueTable, window: W, key: Any, row: Any, stamp: int) -> None:
        """The same for a canonical key and the table of the window."""
        row = self.fixed(row)
        key, entries, content = table.find(key)
        if content is MISSING:
            self.values.note_missing(window)
        self._write(window, key, entries, self.added(content, row, stamp))

    def fixed(self, row: Any) -> Any:
        """A row that nobody changes any more. Raises NoneInStateError for None."""
        if row is None:
            raise refuse_none(self._operator, CONTENTS)
        return row if self._fix is None else self._fix(row)

    def fire(self, window: Any, state_window: W, key: Any, call: Call) -> Iterator[Any]:
        """The results of a window that fires, whose content is that of `state_window`; none without content."""
        content = self.values.get(state_window, key)
        if content is not MISSING:
            yield from results_of(call(self.shown(content)))

    def clear(self, window: W, key: Any) -> None:
        """Removes the content of a window."""
        self.values.remove(window, key)

    def merge(self, window: W, merged: Iterable[W], key: Any) -> None:
        """Moves the contents of merged windows into that of `window`."""
        for each in merged:
            taken = self.values.take(each, key)
            if taken is not MISSING:
                canonical, entries, content = self.values.find(window, key)
                both = taken if content is MISSING else self.merged(content, taken)
                self._write(window, canonical, entries, both)

    def _write(self, window: W, key: Any, entries: dict[Any, Any], content: Any) -> None:
        if content is None:
            # As in every state, None is no content.
            self.values.remove(window, key)
        else:
            entries[key] = content

    @abstractmethod
    def added(self, content: Any, row: Any, stamp: int) -> Any:
        """The content with a row; `content` may be MISSING."""

    @property
    def merge_function(self) -> Callable[[Any, Any], Any]:
        """The function that makes one content of two: `merged` with fewer calls, where there is one.

        If it returns None, the caller calls `check_merged_to_none`.
        """
        return self.merged

    def check_merged_to_none(self) -> None:
        """Raises InvalidProgramError if `merge_function` must not return None."""
        # As in every state, a row reduced to None is no content.
        return None

    @abstractmethod
    def merged(self, content: Any, other: Any) -> Any:
        """The content of two windows together."""

    def shown(self, content: Any) -> list[Any]:
        """What a window function gets of a content."""
        return [content]


class RowsOfWindows(WindowContents[W], Generic[W]):
    """All rows, in the order in which they came."""

    def added(self, content: Any, row: Any, stamp: int) -> Any:
        if content is MISSING:
            return [row]
        content.append(row)
        return content

    def merged(self, content: Any, other: Any) -> Any:
        return [*content, *other]

    def shown(self, content: Any) -> list[Any]:
        return list(content)


class ReducedWindows(WindowContents[W], Generic[W]):
    """The rows so far, reduced to one."""

    def __init__(
        self,
        values: WindowValues[W],
        fix: Copier | None,
        operator: str,
        reduce: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(values, fix, operator)
        self._reduce = reduce

    def added(self, content: Any, row: Any, stamp: int) -> Any:
        return row if content is MISSING else self._reduce(content, row)

    def merged(self, content: Any, other: Any) -> Any:
        return self._reduce(content, other)

    @property
    def merge_function(self) -> Callable[[Any, Any], Any]:
        return self._reduce


class AggregatedWindows(WindowContents[W], Generic[W]):
    """An accumulator, to which each row is added."""

    def __init__(
        self,
        values: WindowValues[W],
        fix: Copier | None,
        operator: str,
        function: Aggregation[Any, Any, Any],
    ) -> None:
        super().__init__(values, fix, operator)
        self._function = function

    def added(self, content: Any, row: Any, stamp: int) -> Any:
        function = self._function
        return function.add(row, function.create_accumulator() if content is MISSING else content)

    def merged(self, content: Any, other: Any) -> Any:
        return merged_accumulator(self._function, content, other)

    @property
    def merge_function(self) -> Callable[[Any, Any], Any]:
        return self._function.merge

    def check_merged_to_none(self) -> None:
        raise _lost_accumulators(self._function)

    def shown(self, content: Any) -> list[Any]:
        return [self._function.get_result(content)]


class PartialContents(WindowContents[W], Generic[W]):
    """Contents whose input is pre-aggregated: triples (key, partial value or None, row or None)."""

    def __init__(self, whole: WindowContents[W], own: Copier | None) -> None:
        """`whole` takes rows. `own` copies a partial value that a merge could change; None = no value can change."""
        super().__init__(whole.values, None, whole._operator)
        self._whole, self._own = whole, own

    def fixed(self, row: Any) -> Any:
        """The triple, with a row that nobody else has: several contents may take it."""
        key, partial, single = row
        return row if partial is not None else (key, None, self._whole.fixed(single))

    def added(self, content: Any, row: Any, stamp: int) -> Any:
        _, partial, single = row
        if partial is None:
            return self._whole.added(content, single, stamp)
        # Several contents may begin with one partial value.
        partial = partial if self._own is None else self._own(partial)
        return partial if content is MISSING else self._whole.merged(content, partial)

    @property
    def merge_function(self) -> Callable[[Any, Any], Any]:
        return self._whole.merge_function

    def check_merged_to_none(self) -> None:
        self._whole.check_merged_to_none()

    def merged(self, content: Any, other: Any) -> Any:
        return self._whole.merged(content, other)

    def shown(self, content: Any) -> list[Any]:
        return self._whole.shown(content)
