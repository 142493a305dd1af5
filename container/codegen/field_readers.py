"""Functions that only read fields, as most key selectors do: generated code reads the fields itself and calls nothing.

Owner: the task thread while it compiles a chain. A call of `lambda row: row[0]` costs five times what `row[0]` does.
The bytecode tells what a function reads. A function that does anything else is called as it is, in any Python.
"""

from __future__ import annotations

import dis
import inspect
import keyword
from collections.abc import Callable
from operator import itemgetter
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from yarrow.container.codegen.code_writer import CodeWriter

_MORE_ARGUMENTS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
#: Instructions that do nothing by themselves.
_SILENT = frozenset(("RESUME", "NOP", "CACHE"))


class FieldRead(NamedTuple):
    """One step from a value to what it holds: `value[name]`, or `value.name`."""

    name: Any
    is_attribute: bool


def field_reads(function: Callable[[Any], Any]) -> tuple[FieldRead, ...] | None:
    """The steps by which a function of one value reads its result from it; None where it may do anything else."""
    if type(function) is itemgetter:
        # What it reads is told by its pickled form alone.
        items = function.__reduce__()[1]
        return (FieldRead(items[0], False),) if len(items) == 1 else None
    bound = 0
    if type(function) is MethodType:
        function, bound = function.__func__, 1
    if type(function) is not FunctionType:
        return None
    code = function.__code__
    if code.co_argcount != bound + 1 or code.co_kwonlyargcount or code.co_flags & _MORE_ARGUMENTS:
        return None
    return _reads_of(list(dis.get_instructions(function)), code.co_varnames[bound])


def _reads_of(instructions: list[dis.Instruction], argument: str) -> tuple[FieldRead, ...] | None:
    steps = [step for step in instructions if step.opname not in _SILENT]
    if len(steps) < 2 or steps[-1].opname != "RETURN_VALUE":
        return None
    if steps[0].opname != "LOAD_FAST" or steps[0].argval != argument:
        return None
    reads: list[FieldRead] = []
    rest = iter(steps[1:-1])
    for step in rest:
        if step.opname == "LOAD_ATTR" and _is_name(step.argval):
            reads.append(FieldRead(step.argval, True))
        elif step.opname == "LOAD_CONST" and (following := next(rest, None)) is not None:
            if following.opname != "BINARY_SUBSCR":
                return None
            reads.append(FieldRead(step.argval, False))
        else:
            return None
    return tuple(reads)


def _is_name(name: str) -> bool:
    """Whether a name may stand in source behind a dot: it comes from the user's program."""
    return name.isidentifier() and not keyword.iskeyword(name)


def generate_call(
    code: CodeWriter, prefix: str, function: Callable[[Any], Any], value: str, target: str
) -> None:
    """Code of `target = function(value)`, without the call where the function only reads fields."""
    reads = field_reads(function)
    if reads is None:
        code.line(f"{target} = {code.bind(prefix, function)}({value})")
        return
    expression = value
    for read in reads:
        expression += f".{read.name}" if read.is_attribute else f"[{code.bind('field', read.name)}]"
    with code.block("try:"):
        code.line(f"{target} = {expression}")
    with code.block("except Exception:"):
        again = code.bind_as("call_again", call_again)
        code.line(f"{target} = {again}({code.bind(prefix, function)}, {value})")


def call_again(function: Callable[[Any], Any], value: Any) -> Any:
    """Calls a function whose reads have failed, so that the error has the user's own line in its traceback."""
    try:
        return function(value)
    except Exception as error:
        # Not "during handling of another exception": both are the same.
        error.__context__ = None
        raise
