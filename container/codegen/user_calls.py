"""Generates calls of a user's functions: a function whose formula is proved is written into the loop.

Owner: the task thread while it compiles a chain. All operators call functions of one row here, so that each function
is inlined, and fails, in one way. Arguments are variables: the loop may read them more than once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from yarrow.container.codegen.code_writer import UNKNOWN, CodeWriter
from yarrow.container.codegen.inlined_call import InlinedCall, LineCall
from yarrow.container.codegen.inlining.formulas import NotInlined
from yarrow.container.codegen.inlining.functions import InlinedFunction, inlined
from yarrow.container.codegen.inlining.sources import source_of


def generate_call(
    code: CodeWriter,
    prefix: str,
    function: Callable[..., Any],
    arguments: Sequence[str],
    result: str,
    told: LineCall | None = None,
) -> None:
    """Generates `result = function(arguments)`; `prefix` begins the name of the function in the code.

    `told` tells the errors of a function of the engine.
    """
    expression, call = _expression(code, prefix, function, arguments)
    code.line(f"{result} = {expression}", told or call)


def generate_made_value(
    code: CodeWriter, prefix: str, function: Callable[..., Any], arguments: Sequence[str]
) -> str:
    """Generates `generate_call` into a new variable, which keeps its value, and returns the variable.

    Where the loop computes the function, and its result is a tuple, the writer knows the tuple's form.
    """
    expression, call = _expression(code, prefix, function, arguments)
    result = code.fresh("v")
    code.line(f"{result} = {expression}", call)
    if call is not None and (fields := tuple_fields(expression)) is not None:
        code.made_tuples[result] = fields
    return result


def tuple_fields(expression: str) -> tuple[object, ...] | None:
    """The constants among the fields of the tuple that an expression makes, UNKNOWN in the other places.

    None if the expression does not always make a tuple of as many fields.
    """
    tree = ast.parse(expression, mode="eval").body
    if not isinstance(tree, ast.Tuple) or any(isinstance(each, ast.Starred) for each in tree.elts):
        return None
    return tuple(each.value if isinstance(each, ast.Constant) else UNKNOWN for each in tree.elts)


@contextmanager
def generate_condition(
    code: CodeWriter, prefix: str, function: Callable[..., Any], arguments: Sequence[str]
) -> Iterator[None]:
    """Generates `if function(arguments):`; what is written inside belongs to the block."""
    expression, call = _expression(code, prefix, function, arguments)
    with code.block(f"if {expression}:", call):
        yield


def computes_only_result(
    code: CodeWriter, function: Callable[..., Any], argument_count: int, unread: int
) -> bool:
    """True if the loop may compute the only value that a generator yields, without the argument `unread`."""
    if not code.inlines:
        return False
    try:
        found = inlined(function, argument_count, yields=True)
    except NotInlined:
        return False
    parameter = found.formula.parameters[unread + (found.owner is not None)]
    return parameter not in found.formula.names_read


def generate_only_result(
    code: CodeWriter, function: Callable[..., Any], arguments: Sequence[str], result: str
) -> None:
    """Generates that `result` is the only value that a generator yields; see computes_only_result."""
    found = inlined(function, len(arguments), yields=True)
    expression, call = _written(code, found, function, arguments)
    code.line(f"{result} = {expression}", call)
    if (fields := tuple_fields(expression)) is not None:
        code.made_tuples[result] = fields


def generate_told(code: CodeWriter, error: str) -> None:
    """Generates, where the loop has caught `error`, that the error gets the lines of the function that failed."""
    if code.inlines:
        code.line(f"{error} = {code.bind_as('told', code.inlined_calls.told)}({error})")


def _expression(
    code: CodeWriter, prefix: str, function: Callable[..., Any], arguments: Sequence[str]
) -> tuple[str, LineCall | None]:
    if code.inlines:
        try:
            return _written(code, inlined(function, len(arguments)), function, arguments)
        except NotInlined:
            pass
    expression = f"{code.bind(prefix, function)}({', '.join(arguments)})"
    if not isinstance(function, itemgetter):
        return expression, None
    # Most programs have no such function.
    from yarrow.container.codegen.failed_lines import FieldsRead, fields_of

    return expression, FieldsRead(fields_of(function), arguments[0])


def _written(
    code: CodeWriter, function: InlinedFunction, called: Callable[..., Any], arguments: Sequence[str]
) -> tuple[str, InlinedCall]:
    call = InlinedCall(called, tuple(arguments))
    names = _names(code, function, arguments)
    lines: list[str] = []
    for assignment in function.formula.assignments:
        value = source_of(assignment.value, names, code.bind_constant)
        variables = [code.fresh("u") for _ in assignment.targets]
        names |= zip(assignment.targets, map(_loaded, variables), strict=True)
        left = "".join(f"{variable}, " for variable in variables) if assignment.unpacks else variables[0]
        lines.append(f"{left} = {value}")
    result = source_of(function.formula.result, names, code.bind_constant)
    for line in lines:
        code.line(line, call)
    return result, call


def _names(code: CodeWriter, function: InlinedFunction, arguments: Sequence[str]) -> dict[str, ast.expr]:
    """The expressions that take the place of the function's names before its first assignment."""
    formula = function.formula
    values = arguments if function.owner is None else [code.bind("self", function.owner), *arguments]
    names: dict[str, ast.expr] = {}
    for name in sorted({*formula.names_read} - formula.local_names):
        if name in function.cells:
            cell = _loaded(code.bind("cell", function.cells[name]))
            names[name] = ast.Attribute(value=cell, attr="cell_contents", ctx=ast.Load())
        elif name in function.globals:
            variable = _loaded(code.bind("globals", function.globals))
            names[name] = ast.Subscript(value=variable, slice=ast.Constant(value=name), ctx=ast.Load())
    names |= zip(formula.parameters, map(_loaded, values), strict=True)
    return names


def _loaded(variable: str) -> ast.Name:
    return ast.Name(id=variable, ctx=ast.Load())
