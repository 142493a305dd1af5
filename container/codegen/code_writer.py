"""CodeWriter: writes the source of a fused chain: lines, indentation, bound objects, and the operator of each line.

Owner: the task thread while it compiles. Only names made here and operator shapes become source: no user string does.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import BuiltinMethodType
from typing import Any, Final, NamedTuple

from yarrow.container.codegen.inlined_call import InlinedCalls, LineCall
from yarrow.container.protocol.failure import GENERATED_PREFIX, short_record
from yarrow.container.state.value_table import KeysAhead

_numbers = itertools.count(1)
#: A field of a tuple whose value the loop computes.
UNKNOWN: Final = object()


class LineOwner(NamedTuple):
    """Who is named when a line fails."""

    #: Index of the operator in the chain.
    operator: int
    #: The variable of the operator's present record.
    record: str
    #: Name of the operator in other tasks for which the line chooses a task; "" = the line does no such thing.
    consumer: str = ""


class _Body:
    """The lines of one function under construction."""

    def __init__(self, name: str, parameters: str) -> None:
        self.name = name
        self.parameters = parameters
        self.indent = 1
        self.lines: list[str] = []
        self.owners: list[LineOwner | None] = []
        #: Calls whose errors need telling, by the index of their line.
        self.calls: dict[int, LineCall] = {}
        #: Lines in front of all others.
        self.at_start: list[str] = []
        #: (local variable, list of one int it is added to at the end)
        self.counts: list[tuple[str, str]] = []

    def finished(self, bound: str) -> tuple[list[str], list[LineOwner | None], dict[int, LineCall]]:
        """Source lines with the def, their owners, and calls by line."""
        before = [*self.at_start, *(f"    {variable} = 0" for variable, _ in self.counts)]
        after = [f"    {total}[0] += {variable}" for variable, total in self.counts]
        lines = [*before, *self.lines, *after] or ["    pass"]
        owners = [
            *[None] * len(before),
            *self.owners,
            *[None] * (len(lines) - len(before) - len(self.owners)),
        ]
        calls = {1 + len(before) + index: call for index, call in self.calls.items()}
        return [f"def {self.name}({self.parameters}{bound}):", *lines], [None, *owners], calls


class CodeWriter:
    """Source in the making: one function, and subroutines to avoid deep nesting."""

    def __init__(self, *, inlines: bool = False) -> None:
        self._body = _Body("", "")
        self._subroutines: list[_Body] = []
        self._bound: dict[str, Any] = {}
        self._constants: list[str] = []
        self._temporaries = itertools.count()
        self.owner: LineOwner | None = None
        #: Whether functions may be written into the loop: see user_calls.
        self.inlines = inlines
        #: The functions that the lines compute.
        self.inlined_calls = InlinedCalls()
        #: Takes the keys of coming rows in advance: see CompiledCode.
        self.keys_ahead: KeysAhead | None = None
        #: Variables that always hold a tuple which the loop has made: its constants, and UNKNOWN for other fields.
        self.made_tuples: dict[str, tuple[object, ...]] = {}

    def bind(self, prefix: str, value: Any) -> str:
        """A parameter name that holds `value`: a local of the generated function, hence fast."""
        name = f"{prefix}_{len(self._bound)}"
        self._bound[name] = value
        return name

    def bind_as(self, name: str, value: Any) -> str:
        """Binds `value` under a fixed name, once."""
        self._bound.setdefault(name, value)
        return name

    def bind_constant(self, value: Any) -> str:
        """A parameter name that holds a constant of an inlined function."""
        name = self.bind("constant", value)
        self._constants.append(name)
        return name

    def fresh(self, prefix: str) -> str:
        """A new local variable name."""
        return f"{prefix}{next(self._temporaries)}"

    @property
    def depth(self) -> int:
        """The nesting depth of the next line."""
        return self._body.indent

    def line(self, text: str, call: LineCall | None = None) -> None:
        """Adds a line at the present indentation, for the present owner; `call` tells its errors."""
        if call is not None:
            self._body.calls[len(self._body.lines)] = call
        self._body.lines.append("    " * self._body.indent + text)
        self._body.owners.append(self.owner)

    @contextmanager
    def block(self, head: str, call: LineCall | None = None) -> Iterator[None]:
        """An indented block under `head`; `call` tells errors of the head."""
        body = self._body
        self.line(head, call)
        body.indent += 1
        before = len(body.lines)
        yield
        if len(body.lines) == before:
            self.line("pass")
        body.indent -= 1

    @contextmanager
    def subroutine(self, parameters: str) -> Iterator[str]:
        """Lines written inside form a function of their own; yields its name."""
        outer, body = self._body, _Body(self.fresh("part_"), parameters)
        self._body = body
        yield body.name
        self._body = outer
        self._subroutines.append(body)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Lines written inside call functions, and inline none."""
        former, self.inlines = self.inlines, False
        yield
        self.inlines = former

    @contextmanager
    def owned_by(self, operator: int, value: str) -> Iterator[None]:
        """Lines written inside belong to that operator, whose record is in the variable `value`."""
        former, self.owner = self.owner, LineOwner(operator, value)
        yield
        self.owner = former

    @contextmanager
    def leading_to(self, consumer: str) -> Iterator[None]:
        """Lines written inside choose the task of that operator which gets the record."""
        former = self.owner
        if former is not None:
            self.owner = former._replace(consumer=consumer)
        yield
        self.owner = former

    def count_into(self, total: list[int]) -> None:
        """Counts passes of this place; the sum is added to `total[0]` at the end of each call."""
        variable = self.fresh("n")
        self._body.counts.append((variable, self.bind("total", total)))
        self.line(f"{variable} += 1")

    def at_start(self, text: str) -> None:
        """Adds a line that runs once a call, before the loop."""
        self._body.at_start.append(f"    {text}")

    def extend_instead(self, *loop: tuple[str, str]) -> None:
        """Extends lists at once by a list of rows, if the only loop appends each variable: (iterable, variable).

        The loop stays for an iterable whose values are made row by row. Timestamps may have no end. An iterator of a
        list is emptied by one call into C, before or behind which a mail may cut it.
        """
        body, taken = self._body, ""
        extensions: list[str] = []
        if body.at_start or body.counts or self._subroutines or len(body.lines) != len(loop) + 1:
            return
        for line, (iterable, variable) in zip(body.lines[1:], loop, strict=True):
            called, _, argument = line.strip().partition("(")
            method = self._bound.get(called)
            if not isinstance(method, BuiltinMethodType) or argument != f"{variable})":
                return
            collected: Any = method.__self__
            if type(collected) is not list or method.__name__ != "append":
                return
            extend, held = self.bind("extend", collected.extend), self.bind("held", collected)
            if not extensions:
                extensions += [f"before = len({held})", f"{extend}({iterable})"]
                taken = f"len({held}) - before"
            else:
                islice = self.bind_as("islice", itertools.islice)
                has_all = f"type({iterable}) is list and len({iterable}) == {taken}"
                extensions.append(f"{extend}({iterable} if {has_all} else {islice}({iterable}, {taken}))")
        iterator = self.bind_as("list_iterator", type(iter([])))
        at_once = [
            f"    if type(rows) is list or type(rows) is {iterator}:",
            *(f"        {line}" for line in extensions),
            "        return",
        ]
        body.lines[:0], body.owners[:0] = at_once, [None] * len(at_once)

    def compile(self, name: str, parameters: str) -> CompiledCode:
        """The function `name(parameters)` with everything bound."""
        self._body.name, self._body.parameters = name, parameters
        lines: list[str] = []
        owners: list[LineOwner | None] = []
        calls = self.inlined_calls.by_line
        for body in (*self._subroutines, self._body):
            # Subroutines find bound objects among the globals: they run once a row, not once a chunk.
            bound = "".join(f", {n}={n}" for n in self._bound) if body is self._body else ""
            body_lines, body_owners, body_calls = body.finished(bound)
            calls |= {len(lines) + 1 + index: call for index, call in body_calls.items()}
            lines += body_lines
            owners += body_owners
        source = "\n".join(lines) + "\n"
        file_name = self.inlined_calls.file_name = f"{GENERATED_PREFIX} {next(_numbers)} {name}>"
        namespace = dict(self._bound)
        exec(compile(source, file_name, "exec"), namespace)
        # A tuple without mtime stays until the entry is deleted: linecache.checkcache ignores it.
        linecache.cache[file_name] = (len(source), None, source.splitlines(True), file_name)
        function = namespace[name]
        compiled = CompiledCode(
            function, source, file_name, tuple(owners), self.inlined_calls, self.keys_ahead
        )
        compiled.constants = {constant: self._bound[constant] for constant in self._constants}
        return compiled


class CompiledCode:
    """A generated function with its source and the owner of each line."""

    def __init__(
        self,
        function: Callable[..., None],
        source: str,
        file_name: str,
        owners: tuple[LineOwner | None, ...],
        calls: InlinedCalls,
        keys_ahead: KeysAhead | None = None,
    ) -> None:
        self.function = function
        #: Takes the keys of several calls' rows at once; None if no state asks for them.
        self.keys_ahead = keys_ahead
        self.source = source
        self.file_name = file_name
        self._owners = owners
        #: The functions that lines compute instead of calling them.
        self.inlined_calls = calls
        #: The constants of inlined functions by their names in the source.
        self.constants: dict[str, object] = {}

    def owner_of_line(self, line: int) -> LineOwner | None:
        """Who is named when a source line fails; None = the line belongs to no operator."""
        position = line - 1
        return self._owners[position] if 0 <= position < len(self._owners) else None

    @property
    def shown(self) -> str:
        """The source for people, with the values of constants."""
        values = [f"# {name} = {short_record(value)}\n" for name, value in self.constants.items()]
        return self.source + "".join(values)

    @property
    def owner_lines(self) -> list[tuple[int, int]]:
        """(source line, operator index) of all lines with an operator."""
        return [(i + 1, owner.operator) for i, owner in enumerate(self._owners) if owner is not None]

    def dispose(self) -> None:
        """Takes the source out of linecache."""
        linecache.cache.pop(self.file_name, None)
