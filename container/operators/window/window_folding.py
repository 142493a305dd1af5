"""Generates the code that folds rows into the window of their time: the dict of the present window is in locals.

Owner: the task thread while it compiles a chain, then the code. A row compares `lo <= time < hi`. Another window is
opened out of line, once a call of the generated function. Must not know when windows fire.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.freezing import generate_fixed
from yarrow.container.codegen.user_calls import generate_call, generate_told
from yarrow.container.codegen.user_functions import method_of
from yarrow.container.operators.base import Emit, OperatorContext, declared_type, input_type_of
from yarrow.container.operators.rows.keyed_aggregation import (
    TableVariables,
    generate_first_or_update,
)
from yarrow.container.operators.window.key_folding import generate_look_at_new_keys
from yarrow.container.state.value_table import MISSING
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.graph.window_spec import PreAggregationOperator, WindowKind, WindowOperator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from yarrow.container.operators.window.window_contents import WindowContents

#: The window of a row in generated code: live, first dict, number of dicts, several, miss, whether live has all values,
#: its end. A window that is closed for the code ends at its start.
Entry = tuple[list[dict[Any, Any]], dict[Any, Any], int, bool, Callable[[Any], Any], bool, int]


class Combination(NamedTuple):
    """How rows become what a window keeps."""

    #: (what it keeps, row) -> what it keeps then. For an AggregateFunction: (row, accumulator) -> accumulator.
    function: Callable[[Any, Any], Any]
    #: Makes an empty accumulator; None = the first row is what the window keeps.
    create: Callable[[], Any] | None
    row_type: TypeInformation | None
    kept_type: TypeInformation | None
    object_reuse: bool

    @classmethod
    def of(
        cls, spec: WindowOperator | PreAggregationOperator, function: Any, context: OperatorContext
    ) -> Combination:
        """The combination of an operator; `function` is that of reduce or aggregate."""
        descriptor, reduced = context.descriptor, spec.kind is WindowKind.REDUCED
        return cls(
            method_of(function, "reduce" if reduced else "add", descriptor.name),
            None if reduced else function.create_accumulator,
            declared_type(input_type_of(descriptor)),
            declared_type(spec.kept_type),
            context.environment.object_reuse,
        )

    @classmethod
    def of_partial_values(cls, contents: WindowContents[Any]) -> Combination:
        """The combination of an operator whose input is pre-aggregated, and which keeps it in `contents`."""

        def add(triple: Any, content: Any) -> Any:
            return contents.added(content, triple, MIN_TIMESTAMP)

        return cls(add, lambda: MISSING, None, None, object_reuse=True)

    def generate_row(self, code: CodeWriter, value: str) -> str:
        """A row that is added to an accumulator, which may keep it."""
        return value if self.create is None else generate_fixed(code, value, self.row_type, self.object_reuse)

    def generate_first(self, code: CodeWriter, target: str, row: str) -> None:
        """What a window keeps of its first row."""
        if self.create is None:
            code.line(f"{target} = {row}")
        else:
            created = code.fresh("c")
            generate_call(code, "create", self.create, [], created)
            generate_call(code, "combine", self.function, [row, created], target)

    def generate_next(self, code: CodeWriter, target: str, row: str) -> None:
        """What a window keeps with one row more."""
        arguments = [target, row] if self.create is None else [row, target]
        generate_call(code, "combine", self.function, arguments, target)

    def generate_either(self, code: CodeWriter, target: str, row: str) -> None:
        """What a window keeps with one row more, which is the first one where it keeps None."""
        with code.block(f"if {target} is None:"):
            self.generate_first(code, target, row)
        with code.block("else:"):
            self.generate_next(code, target, row)

    def generate_kept(self, code: CodeWriter, value: str) -> str:
        """The value as it is stored."""
        return (
            generate_fixed(code, value, self.kept_type, self.object_reuse) if self.create is None else value
        )


class FoldsRows(Protocol):
    """What code that folds rows asks its operator."""

    def explain(self, row: Any, key: Any, start: int, error: Exception) -> Exception:
        """The error of the user's function, with record, window and key."""
        ...

    def forget(self, key: Any, start: int) -> None:
        """Removes what a window keeps, because the function gave None."""
        ...


class WindowEntries(FoldsRows, Protocol):
    """What generated code asks an operator of windows."""

    def enter(self, start: int, known: dict[int, Entry]) -> Entry:
        """The window that starts there; put into `known` if it stays as it is until the end of the call."""
        ...

    def take_closed(self, key: Any, row: Any, timestamp: int | None, start: int) -> Iterable[tuple[Any, Any]]:
        """Takes a row whose window is closed for generated code; returns results."""
        ...

    def refuse_none(self, row: Any) -> Exception:
        """The error for a row that is None."""
        ...

    def refuse_time(self, row: Any, key: Any, timestamp: Any, error: Exception) -> Exception:
        """The error for a row whose time gives no window."""
        ...


def generate_window_fold(
    code: CodeWriter,
    windows: WindowEntries,
    grid: tuple[int, int],
    combination: Combination,
    row: tuple[str, str, str, str | None],
    emit: Emit,
    *,
    is_head: bool,
) -> None:
    """Generates the code of one row; `grid`: length and offset; `row`: variables of key, row, time and timestamp."""
    key, value, time, timestamp = row
    length, offset = grid
    low, high, known = code.fresh("lo"), code.fresh("hi"), code.fresh("w")
    table, is_whole = TableVariables.fresh(code), code.fresh("a")
    reset = f"{low} = {high} = 0"
    code.at_start(reset)
    code.at_start(f"{known} = {{}}")
    if not is_head:
        # Watermarks come between the rows of one call.
        code.line(reset)
        code.line(f"{known} = {{}}")
    error = code.fresh("e")
    with code.block(f"if {value} is None:"):
        code.line(f"raise {code.bind('refuse_none', windows.refuse_none)}({value})")
    with code.block("try:"), code.block(f"if not {low} <= {time} < {high}:"):
        entry = code.fresh("o")
        code.line(f"{low} = {time} - ({time} - {offset}) % {length}")
        code.line(f"{entry} = {known}.get({low}) or {code.bind('enter', windows.enter)}({low}, {known})")
        code.line(f"{', '.join(table)}, {is_whole}, {high} = {entry}")
    # A window beyond 64 bits is refused as a program's error.
    refused = code.bind_as("REFUSED", (TypeError, InvalidProgramError))
    with code.block(f"except {refused} as {error}:"):
        refuse = code.bind("refuse_time", windows.refuse_time)
        code.line(f"raise {refuse}({value}, {key}, {time}, {error}) from {error}")
    with code.block(f"if {low} < {high}:"):
        generate_update(code, windows, combination, table, (key, value, low), is_whole)
    with code.block("else:"):
        closed = code.bind("take_closed", windows.take_closed)
        result, stamp = code.fresh("v"), code.fresh("t")
        with code.block(f"for {result}, {stamp} in {closed}({key}, {value}, {timestamp}, {low}):"):
            emit(result, stamp)


def generate_update(
    code: CodeWriter,
    windows: FoldsRows,
    combination: Combination,
    table: TableVariables,
    row: tuple[str, str, str],
    is_whole: str,
) -> None:
    """Generates the code that folds a row into the dict at hand.

    `row`: variables of key, row, and window's start. `is_whole`: an expression, true where the dict has all values of
    the window.
    """
    key, value, low = row
    added = combination.generate_row(code, value)
    explain = code.bind("explain", windows.explain)

    @contextmanager
    def explained() -> Iterator[None]:
        error = code.fresh("e")
        with code.block("try:"):
            yield
        with code.block(f"except Exception as {error}:"):
            generate_told(code, error)
            code.line(f"raise {explain}({value}, {key}, {low}, {error}) from {error}")

    def first(target: str) -> None:
        with explained():
            combination.generate_first(code, target, added)

    def update(target: str) -> None:
        with explained():
            combination.generate_next(code, target, added)

    result = code.fresh("v")
    # A window begins without any key.
    with generate_look_at_new_keys(code, table, key, is_whole, result):
        generate_first_or_update(code, result, first=first, update=update)
    with code.block("else:"):
        update(result)
    with code.block(f"if {result} is None:"):
        code.line(f"{code.bind('forget', windows.forget)}({key}, {low})")
    with code.block("else:"):
        code.line(f"{table.entries}[{key}] = {combination.generate_kept(code, result)}")
