"""Proofs: a formula is right if Python compiles it to the instructions of the function that it was read from.

Owner: none (functions without state). A formula without proof is not used. So an instruction that the reader
misunderstands can only mean that the function is called. The same holds for another version of Python.
"""

from __future__ import annotations

import ast
import dis
import itertools
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, Final

from yarrow.container.codegen.inlining.control_flow import ControlFlow
from yarrow.container.codegen.inlining.formulas import Formula, NotInlined

_LAMBDA: Final = "<lambda>"
#: CO_OPTIMIZED and CO_NEWLOCALS: what each function has.
_FUNCTION: Final = 0x1 | 0x2
#: CO_GENERATOR.
_GENERATOR: Final = 0x20
#: CO_NESTED, the features of `from __future__`, CO_HAS_DOCSTRING and CO_METHOD: they say nothing about instructions.
_WITHOUT_MEANING: Final = 0x10 | 0x1FE0000 | 0x4000000 | 0x8000000


@lru_cache(maxsize=1024)
def proved_formula(code: CodeType) -> Formula:
    """The formula of a function with this code. Raises NotInlined with the reason why the code must be called."""
    is_generator = bool(code.co_flags & _GENERATOR)
    if code.co_flags & ~_WITHOUT_MEANING & ~_GENERATOR != _FUNCTION:
        raise NotInlined("it is a coroutine, or takes *args or **kwargs")
    if (
        code.co_kwonlyargcount
        or code.co_cellvars
        # Newer versions of Python give each generator one.
        or (code.co_exceptiontable and not is_generator)
        or "__class__" in code.co_freevars
    ):
        raise NotInlined("it has keyword-only parameters, inner functions, `super` or `try`")
    parameters = code.co_varnames[: code.co_argcount]
    try:
        formula = ControlFlow(code, parameters).formula()
        if not _is_proved(formula, code):
            raise NotInlined("its formula has other instructions")
    except NotInlined:
        raise
    except Exception as error:
        # Instructions of an unknown version may surprise the reader in any way. The function is then called.
        raise NotInlined(f"its instructions are not understood: {error}") from error
    return formula


def _is_proved(formula: Formula, code: CodeType) -> bool:
    wanted = _meaning(code)
    return any(_meaning(_compiled(definition, code)) == wanted for definition in _definitions(formula, code))


def _definitions(formula: Formula, code: CodeType) -> Iterator[ast.stmt]:
    """The function in the forms in which it may have been written."""
    arguments = _arguments(formula.parameters)
    if code.co_name == _LAMBDA:
        if not formula.assignments:
            yield ast.Expr(value=ast.Lambda(args=arguments, body=formula.result))
        return
    body: list[ast.stmt] = []
    if code.co_consts and isinstance(code.co_consts[0], str):
        body.append(ast.Expr(value=ast.Constant(value=code.co_consts[0])))
    for each in formula.assignments:
        names: list[ast.expr] = [ast.Name(id=name, ctx=ast.Store()) for name in each.targets]
        target = ast.Tuple(elts=names, ctx=ast.Store()) if each.unpacks else names[0]
        body.append(ast.Assign(targets=[target], value=each.value))
    if formula.is_yielded:
        yield _function(
            "function", formula.parameters, [*body, ast.Expr(value=ast.Yield(value=formula.result))]
        )
        return
    for end in ([ast.Return(value=formula.result)], list(_returned(formula.result))):
        yield _function("function", formula.parameters, [*body, *end])


def _returned(result: ast.expr) -> Iterator[ast.stmt]:
    """Conditional expressions as `if test: return body`, then the rest."""
    while isinstance(result, ast.IfExp):
        yield ast.If(test=result.test, body=list(_returned(result.body)), orelse=[])
        result = result.orelse
    yield ast.Return(value=result)


def _compiled(definition: ast.stmt, code: CodeType) -> CodeType:
    # Closure variables are parameters of a function around it.
    around = _function("around", code.co_freevars, [definition])
    # Some instructions of the compiler are for lines: each statement has its own, as in most programs.
    numbers = itertools.count(1)
    _number(around, 1, numbers)
    module = ast.Module(body=[around], type_ignores=[])
    return _inner_code(_inner_code(compile(module, "<formula>", "exec", dont_inherit=True)))


def _number(node: ast.AST, line: int, numbers: Iterator[int]) -> None:
    if isinstance(node, ast.stmt):
        line = next(numbers)
    vars(node).update(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
    for child in ast.iter_child_nodes(node):
        _number(child, line, numbers)


def _function(name: str, parameters: Iterable[str], body: list[ast.stmt]) -> ast.FunctionDef:
    definition = ast.FunctionDef(name=name, args=_arguments(parameters), body=body, decorator_list=[])
    if sys.version_info >= (3, 12):
        definition.type_params = []
    return definition


def _arguments(names: Iterable[str]) -> ast.arguments:
    return ast.arguments(
        posonlyargs=[],
        args=[ast.arg(arg=name) for name in names],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )


def _inner_code(code: CodeType) -> CodeType:
    return next(constant for constant in code.co_consts if isinstance(constant, CodeType))


def _meaning(code: CodeType) -> tuple[Any, ...]:
    """All that decides what a function does: instructions with their constants, names, variables."""
    steps = tuple(
        (i.opcode, _constant_key(i.argval) if i.opcode in dis.hasconst else i.arg)
        for i in dis.get_instructions(code)
    )
    shape = (code.co_argcount, code.co_kwonlyargcount, code.co_exceptiontable)
    return steps, shape, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def _constant_key(value: object) -> Any:
    """Equal for constants that no program can tell apart: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return (tuple, *map(_constant_key, value))
    if isinstance(value, frozenset):
        return (frozenset, frozenset(map(_constant_key, value)))
    return (type(value), repr(value) if isinstance(value, float | complex) else value)
