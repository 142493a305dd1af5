"""Generates code that reads what an operator of windows keeps for a key, and code around calls of a user's function.

Owner: the task thread while it compiles a chain, then the code. Must not know windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_calls import generate_told
from yarrow.container.operators.rows.keyed_aggregation import (
    TableVariables,
    generate_entries,
    generate_new_value,
)
from yarrow.container.state.value_table import MISSING, ValueTable


class Explains(Protocol):
    """Makes the errors of generated code."""

    def refuse_none(self, row: Any) -> Exception:
        """The error for a row that is None."""
        ...

    def explain(self, row: Any, key: Any, error: Exception) -> Exception:
        """The error of the user's function, with record and key."""
        ...


class ExplainedCalls:
    """The lines around calls of the user's function for one row."""

    def __init__(self, code: CodeWriter, explains: Explains, key: str, value: str) -> None:
        with code.block(f"if {value} is None:"):
            code.line(f"raise {code.bind('refuse_none', explains.refuse_none)}({value})")
        self._code = code
        self._raised = f"{code.bind('explain', explains.explain)}({value}, {key}"

    @contextmanager
    def block(self, *more: str) -> Iterator[None]:
        """Lines that call the user's function; `more` are further arguments of `explain`."""
        code, error = self._code, self._code.fresh("e")
        with code.block("try:"):
            yield
        with code.block(f"except Exception as {error}:"):
            generate_told(code, error)
            code.line(f"raise {', '.join((self._raised, error, *more))}) from {error}")


def generate_look(
    code: CodeWriter,
    values: ValueTable,
    key: str,
    *,
    first: Callable[[], None],
    found: Callable[[str], None],
) -> TableVariables:
    """Generates the look at a key: the lines of `first` for a new one, or of `found` with its value.

    Returns the variables of the table. The row must write `entries` at the key, or remove the key.
    """
    table = TableVariables.bound(code, values)
    generate_new_value(code, table, key, first=lambda _: first(), update=found)
    return table


@contextmanager
def generate_look_at_new_keys(
    code: CodeWriter, table: TableVariables, key: str, is_whole: str, found: str
) -> Iterator[None]:
    """Generates the look at a key where keys are often new: such a key costs no exception, and mostly no call.

    The variable `found` gets the value, which is never None. Lines that are written inside run if the dict at hand
    lacks the key: `found` may be MISSING there. `is_whole`: an expression, true where the dicts have all values.
    """
    with code.block("try:"):
        generate_entries(code, table, key)
        code.line(f"{found} = {table.entries}.get({key})")
    with code.block("except (KeyError, TypeError):"):
        # `miss` refuses the key.
        code.line(f"{found} = None")
    with code.block(f"if {found} is None:"):
        # Numbers and strings are canonical keys.
        with code.block(f"if {is_whole} and ({key}.__class__ is int or {key}.__class__ is str):"):
            code.line(f"{found} = {code.bind_as('MISSING', MISSING)}")
        with code.block("else:"):
            code.line(f"{key}, {table.entries}, {found} = {table.miss}({key})")
        yield


def generate_found(code: CodeWriter, values: ValueTable, key: str, missing: str) -> tuple[str, str]:
    """Generates the look at a key where keys are often new; see `generate_look_at_new_keys`.

    Returns the variables of its value, `missing` if it has none, and of the dict where the row must write at the key.
    """
    table = TableVariables.bound(code, values)
    is_whole, found = code.fresh("w"), code.fresh("p")
    code.at_start(f"{is_whole} = {code.bind('table', values)}.whole is not None")
    with (
        generate_look_at_new_keys(code, table, key, is_whole, found),
        code.block(f"if {found} is {code.bind_as('MISSING', MISSING)}:"),
    ):
        code.line(f"{found} = {missing}")
    return found, table.entries
