"""Generates code that reads what an operator of windows keeps for a key, and code around calls of a user's function.

Owner: the task thread while it compiles a chain, then the code. Must not know windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_calls import generate_told
from yarrow.container.operators.rows.keyed_aggregation import TableVariables, generate_new_value
from yarrow.container.state.value_table import ValueTable


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
    def block(self) -> Iterator[None]:
        """Lines that call the user's function."""
        code, error = self._code, self._code.fresh("e")
        with code.block("try:"):
            yield
        with code.block(f"except Exception as {error}:"):
            generate_told(code, error)
            code.line(f"raise {self._raised}, {error}) from {error}")


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
    live = code.bind("live", values.live)
    table = TableVariables(
        live, code.fresh("s"), code.fresh("n"), code.fresh("b"), code.bind("miss", values.miss)
    )
    code.at_start(f"{table.entries} = {live}[0]")
    code.at_start(f"{table.shards} = len({live})")
    code.at_start(f"{table.sharded} = {table.shards} > 1")
    generate_new_value(code, table, key, first=lambda _: first(), update=found)
    return table
