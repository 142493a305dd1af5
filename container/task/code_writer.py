"""Writes the source of a fused chain: lines, indentation, bound objects, and which operator each line belongs to.

Owner: the task thread while it compiles. Only names made here and operator shapes become source: no user string does.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from yarrow.container.task.failure import GENERATED_PREFIX

_numbers = itertools.count(1)


class CodeWriter:
    """Source under construction."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        #: Of each line: (operator, variable of the record that the operator has at hand).
        self._owners: list[tuple[int, str] | None] = []
        self._indent = 1
        self._bound: dict[str, Any] = {}
        self._temporaries = itertools.count()
        #: Lines in front of the loop.
        self._at_start: list[str] = []
        #: (local variable, list of one int it is added to at the end)
        self._counts: list[tuple[str, str]] = []
        self.owner: tuple[int, str] | None = None

    def bind(self, prefix: str, value: Any) -> str:
        """A parameter name that holds `value`: a local of the generated function, hence fast."""
        name = f"{prefix}_{len(self._bound)}"
        self._bound[name] = value
        return name

    def bind_as(self, name: str, value: Any) -> str:
        """The same under a fixed name, bound once."""
        self._bound.setdefault(name, value)
        return name

    def fresh(self, prefix: str) -> str:
        """A new local variable name."""
        return f"{prefix}{next(self._temporaries)}"

    def line(self, text: str) -> None:
        """A line at the present indentation, of the present owner."""
        self._lines.append("    " * self._indent + text)
        self._owners.append(self.owner)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block under `head`."""
        self.line(head)
        self._indent += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._indent -= 1

    @contextmanager
    def owned_by(self, operator: int, value: str) -> Iterator[None]:
        """Lines written inside belong to that operator, which works on the record in the variable `value`."""
        former, self.owner = self.owner, (operator, value)
        yield
        self.owner = former

    def count_into(self, total: list[int]) -> None:
        """Counts passes of this place; the sum is added to `total[0]` at the end of each call."""
        variable = self.fresh("n")
        self._counts.append((variable, self.bind("total", total)))
        self.line(f"{variable} += 1")

    def once_a_call(self, prefix: str, expression: str) -> str:
        """A local variable that gets the value of `expression` when the function is called."""
        variable = self.fresh(prefix)
        self._at_start.append(f"    {variable} = {expression}")
        return variable

    def compile(self, name: str, parameters: str) -> CompiledCode:
        """The function `name(parameters)` with everything bound."""
        bound = "".join(f", {n}={n}" for n in self._bound)
        before = [*self._at_start, *(f"    {variable} = 0" for variable, _ in self._counts)]
        after = [f"    {total}[0] += {variable}" for variable, total in self._counts]
        lines = [*before, *self._lines, *after] or ["    pass"]
        owners = (*[None] * len(before), *self._owners)
        source = f"def {name}({parameters}{bound}):\n" + "\n".join(lines) + "\n"
        file_name = f"{GENERATED_PREFIX} {next(_numbers)} {name}>"
        namespace = dict(self._bound)
        exec(compile(source, file_name, "exec"), namespace)
        # A tuple without mtime stays until the entry is deleted: linecache.checkcache leaves it alone.
        linecache.cache[file_name] = (len(source), None, source.splitlines(True), file_name)
        return CompiledCode(namespace[name], source, file_name, owners)


class CompiledCode:
    """A generated function with its source and the owner of each line."""

    def __init__(
        self,
        function: Callable[..., None],
        source: str,
        file_name: str,
        owners: tuple[tuple[int, str] | None, ...],
    ) -> None:
        self.function = function
        self.source = source
        self.file_name = file_name
        self._owners = owners

    def owner_of_line(self, line: int) -> tuple[int, str] | None:
        """Index of the operator a source line belongs to, and the variable of its record; line 1 is the def."""
        position = line - 2
        return self._owners[position] if 0 <= position < len(self._owners) else None

    @property
    def owner_lines(self) -> list[tuple[int, int]]:
        """(source line, operator index) of all lines that belong to an operator."""
        return [(i + 2, owner[0]) for i, owner in enumerate(self._owners) if owner is not None]

    def dispose(self) -> None:
        """Takes the source out of linecache."""
        linecache.cache.pop(self.file_name, None)
