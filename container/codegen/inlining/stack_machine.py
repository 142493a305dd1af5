"""StackMachine: runs the instructions of a small function on syntax trees instead of values.

Owner: none (an object of one call). It knows instructions without jumps, and refuses all others with NotInlined. It
need not be right for every version of Python: proofs.py compiles its result again and compares.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Final

from yarrow.container.codegen.inlining.formulas import (
    PURE_BUILTINS,
    PURE_METHODS,
    PURE_METHODS_OF_LITERALS,
    LocalAssignment,
    NotInlined,
    checked_constant,
    checked_name,
)
from yarrow.container.codegen.inlining.instructions import CodeStep

_BINARY: Final[dict[str, type[ast.operator]]] = {
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.Div,
    "//": ast.FloorDiv,
    "%": ast.Mod,
    "**": ast.Pow,
    "<<": ast.LShift,
    ">>": ast.RShift,
    "&": ast.BitAnd,
    "|": ast.BitOr,
    "^": ast.BitXor,
    "@": ast.MatMult,
}
_COMPARISONS: Final[dict[str, type[ast.cmpop]]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
}
_UNARY: Final[dict[str, type[ast.unaryop]]] = {
    "UNARY_NOT": ast.Not,
    "UNARY_NEGATIVE": ast.USub,
    "UNARY_POSITIVE": ast.UAdd,
    "UNARY_INVERT": ast.Invert,
}
_OPPOSITES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
#: How `a < b < c` keeps `b` for its second comparison, and where it goes if the first one is false.
_KEPT: Final = ("SWAP", "COPY", "COMPARE_OP")
_KEPT_JUMPS: Final = frozenset({"JUMP_IF_FALSE_OR_POP", "POP_JUMP_IF_FALSE"})
#: Stands on the stack below the arguments of a call.
_NO_OBJECT: Final = ast.Name(id="", ctx=ast.Load())
#: `!s`, `!r` and `!a` of an f-string.
_CONVERSIONS: Final = (-1, ord("s"), ord("r"), ord("a"))

#: Python 3.12 and newer have one instruction for attributes and methods.
_METHODS_ARE_ATTRIBUTES: Final = sys.version_info >= (3, 12)

Stack = list[ast.expr]


def loaded(name: str) -> ast.Name:
    """A name that is read."""
    return ast.Name(id=checked_name(name), ctx=ast.Load())


def negated(test: ast.expr) -> ast.expr:
    """`not test`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITES:
        opposite = _OPPOSITES[type(test.ops[0])]()
        return ast.Compare(left=test.left, ops=[opposite], comparators=test.comparators)
    return ast.UnaryOp(op=ast.Not(), operand=test)


def compared(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> ast.expr:
    """A comparison of two values."""
    return ast.Compare(left=left, ops=[operator], comparators=[right])


class BegunComparison(ast.Compare):
    """`a < b` of `a < b < c`: it stands on the stack where the function has `b`."""


class StackMachine:
    """Local variables, and the meaning of single steps."""

    def __init__(self, parameters: tuple[str, ...]) -> None:
        self.assignments: list[LocalAssignment] = []
        self._known = set(parameters)

    def take(self, steps: list[CodeStep], at: int, stack: Stack) -> int:
        """Runs the step at a place; returns the place of the next one."""
        step = steps[at]
        if step.name in _UNARY:
            stack.append(ast.UnaryOp(op=_UNARY[step.name](), operand=_pop(stack)))
        elif step.name == "UNPACK_SEQUENCE":
            targets = steps[at + 1 : at + 1 + step.argument]
            self._assign(stack, targets, unpacks=True)
            return at + 1 + len(targets)
        elif step.name == "STORE_FAST":
            self._assign(stack, [step], unpacks=False)
        elif step.name == "SWAP":
            _begin_comparison(steps[at : at + 4], stack)
            return at + 4
        elif step.name in {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"}:
            if step.value not in self._known:
                raise NotInlined(f"the variable {step.value} may have no value")
            stack.append(loaded(step.value))
        elif (run := _RUNS.get(step.name)) is not None:
            run(step, stack)
        else:
            raise NotInlined(f"it has the instruction {step.name}")
        return at + 1

    def _assign(self, stack: Stack, targets: list[CodeStep], *, unpacks: bool) -> None:
        value = _pop(stack)
        if stack or not targets or any(target.name != "STORE_FAST" for target in targets):
            raise NotInlined("it assigns inside of an expression, or to something else than variables")
        names = tuple(checked_name(target.value) for target in targets)
        self.assignments.append(LocalAssignment(names, unpacks, value))
        self._known.update(names)


def _pop(stack: Stack) -> ast.expr:
    if not stack or stack[-1] is _NO_OBJECT:
        raise NotInlined("its instructions have another order than expected")
    return stack.pop()


def _pop_many(stack: Stack, count: int) -> list[ast.expr]:
    return [_pop(stack) for _ in range(count)][::-1]


def _constant(step: CodeStep, stack: Stack) -> None:
    stack.append(checked_constant(step.value))


def _global(step: CodeStep, stack: Stack) -> None:
    if step.argument & 1:
        stack.append(_NO_OBJECT)
    stack.append(loaded(step.value))


def _closure_variable(step: CodeStep, stack: Stack) -> None:
    stack.append(loaded(step.value))


def _attribute(step: CodeStep, stack: Stack) -> None:
    owner = _pop(stack)
    stack.append(ast.Attribute(value=owner, attr=checked_name(step.value), ctx=ast.Load()))
    if step.name == "LOAD_METHOD" or (_METHODS_ARE_ATTRIBUTES and step.argument & 1):
        stack.append(_NO_OBJECT)


def _subscript(step: CodeStep, stack: Stack) -> None:
    value, index = _pop_many(stack, 2)
    is_literal = isinstance(value, ast.Constant | ast.JoinedStr | ast.Tuple | ast.List)
    is_number = isinstance(value, ast.Constant) and not isinstance(value.value, str | bytes | tuple)
    if is_number or (is_literal and isinstance(index, ast.Constant)):
        raise NotInlined("the compiler warns of an index of a literal")
    stack.append(ast.Subscript(value=value, slice=index, ctx=ast.Load()))


def _slice(step: CodeStep, stack: Stack) -> None:
    stack.append(_written_slice(_pop_many(stack, step.argument)))


def _sliced(step: CodeStep, stack: Stack) -> None:
    value, *bounds = _pop_many(stack, 3)
    stack.append(ast.Subscript(value=value, slice=_written_slice(bounds), ctx=ast.Load()))


def _written_slice(bounds: list[ast.expr]) -> ast.Slice:
    lower, upper, step, *_ = [*map(_bound, bounds), None]
    return ast.Slice(lower=lower, upper=upper, step=step)


def _bound(value: ast.expr) -> ast.expr | None:
    return None if isinstance(value, ast.Constant) and value.value is None else value


def _binary(step: CodeStep, stack: Stack) -> None:
    if step.value not in _BINARY:
        raise NotInlined(f"it changes a value in place by {step.value}")
    left, right = _pop_many(stack, 2)
    stack.append(ast.BinOp(left=left, op=_BINARY[step.value](), right=right))


def _comparison(step: CodeStep, stack: Stack) -> None:
    stack.append(_extended(step, stack, ast.Compare))


def _begin_comparison(steps: list[CodeStep], stack: Stack) -> None:
    """`a < b` of `a < b < c`: what follows compares `b` with the next value."""
    names, arguments = tuple(step.name for step in steps), [step.argument for step in steps[:2]]
    if names[:3] != _KEPT or arguments != [2, 2] or names[-1] not in _KEPT_JUMPS:
        raise NotInlined("it keeps a value for a second use")
    stack.append(_extended(steps[2], stack, BegunComparison))


def _extended(step: CodeStep, stack: Stack, kind: type[ast.Compare]) -> ast.Compare:
    """A comparison of two values, or one more of a begun comparison."""
    left, right = _pop_many(stack, 2)
    operator = _COMPARISONS[step.value]()
    if isinstance(left, BegunComparison):
        return kind(left=left.left, ops=[*left.ops, operator], comparators=[*left.comparators, right])
    return kind(left=left, ops=[operator], comparators=[right])


def _identity(step: CodeStep, stack: Stack) -> None:
    left, right = _pop_many(stack, 2)
    if any(isinstance(each, ast.Constant) and not _is_single(each.value) for each in (left, right)):
        raise NotInlined("the compiler warns of `is` with a literal")
    stack.append(compared(left, ast.IsNot() if step.argument else ast.Is(), right))


def _is_single(value: object) -> bool:
    return value is None or value is True or value is False or value is Ellipsis


def _contains(step: CodeStep, stack: Stack) -> None:
    left, right = _pop_many(stack, 2)
    stack.append(compared(left, ast.NotIn() if step.argument else ast.In(), right))


def _tuple(step: CodeStep, stack: Stack) -> None:
    stack.append(ast.Tuple(elts=_pop_many(stack, step.argument), ctx=ast.Load()))


def _list(step: CodeStep, stack: Stack) -> None:
    stack.append(ast.List(elts=_pop_many(stack, step.argument), ctx=ast.Load()))


def _extended_list(step: CodeStep, stack: Stack) -> None:
    begun, values = _pop_many(stack, 2)
    if not isinstance(begun, ast.List) or begun.elts:
        raise NotInlined("it extends a list")
    stack.append(ast.List(elts=[*_constants(values)], ctx=ast.Load()))


def _constants(display: ast.expr) -> list[ast.Constant]:
    """The elements of a constant tuple."""
    values: object = display.value if isinstance(display, ast.Constant) else None
    if not isinstance(values, tuple):
        raise NotInlined("it makes a list or a dict from an unknown part")
    return [checked_constant(value) for value in values]


def _dict(step: CodeStep, stack: Stack) -> None:
    items = _pop_many(stack, 2 * step.argument)
    stack.append(ast.Dict(keys=[*items[::2]], values=items[1::2]))


def _dict_of_names(step: CodeStep, stack: Stack) -> None:
    *values, names = _pop_many(stack, step.argument + 1)
    stack.append(ast.Dict(keys=[*_constants(names)], values=values))


def _merged_dict(step: CodeStep, stack: Stack) -> None:
    begun, other = _pop_many(stack, 2)
    if not isinstance(begun, ast.Dict):
        raise NotInlined("it changes a dict")
    # `{**a, "b": c}`: a dict of our own making is part of the display, another one is unpacked.
    added = other if isinstance(other, ast.Dict) else ast.Dict(keys=[None], values=[other])
    stack.append(ast.Dict(keys=[*begun.keys, *added.keys], values=[*begun.values, *added.values]))


def _formatted(step: CodeStep, stack: Stack) -> None:
    spec = _pop(stack) if step.argument & 4 else None
    _format(stack, _CONVERSIONS[step.argument & 3], spec)


def _converted(step: CodeStep, stack: Stack) -> None:
    # The conversion waits on the stack until the value is formatted.
    conversion = _CONVERSIONS[step.argument]
    stack.append(ast.FormattedValue(value=_pop(stack), conversion=conversion, format_spec=None))


def _formatted_simply(step: CodeStep, stack: Stack) -> None:
    _format(stack, -1, None)


def _formatted_by_spec(step: CodeStep, stack: Stack) -> None:
    spec = _pop(stack)
    _format(stack, -1, spec)


def _format(stack: Stack, conversion: int, spec: ast.expr | None) -> None:
    value = _pop(stack)
    if isinstance(value, ast.FormattedValue):
        conversion, value = value.conversion, value.value
    if spec is not None and not isinstance(spec, ast.JoinedStr):
        spec = ast.JoinedStr(values=[spec])
    part = ast.FormattedValue(value=value, conversion=conversion, format_spec=spec)
    stack.append(ast.JoinedStr(values=[part]))


def _text(step: CodeStep, stack: Stack) -> None:
    parts: list[ast.expr] = []
    for part in _pop_many(stack, step.argument):
        parts += part.values if isinstance(part, ast.JoinedStr) else [part]
    stack.append(ast.JoinedStr(values=parts))


def _call(step: CodeStep, stack: Stack) -> None:
    arguments = _pop_many(stack, step.argument)
    below = [stack.pop() for _ in range(min(2, len(stack)))]
    called = next((item for item in below if item is not _NO_OBJECT), None)
    if len(below) != 2 or _NO_OBJECT not in below or called is None:
        raise NotInlined("it calls what it has computed")
    if not _is_pure(called):
        raise NotInlined(f"it calls {ast.unparse(called)}")
    stack.append(ast.Call(func=called, args=arguments, keywords=[]))


def _is_pure(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id in PURE_BUILTINS
    if not isinstance(called, ast.Attribute):
        return False
    # See PURE_METHODS_OF_LITERALS.
    of_text = isinstance(called.value, ast.Constant) and isinstance(called.value.value, str)
    return called.attr in PURE_METHODS or (of_text and called.attr in PURE_METHODS_OF_LITERALS)


_RUNS: Final[dict[str, Callable[[CodeStep, Stack], None]]] = {
    "LOAD_CONST": _constant,
    "LOAD_SMALL_INT": _constant,
    "LOAD_GLOBAL": _global,
    "LOAD_DEREF": _closure_variable,
    "LOAD_ATTR": _attribute,
    "LOAD_METHOD": _attribute,
    "BINARY_SUBSCR": _subscript,
    "BUILD_SLICE": _slice,
    "BINARY_SLICE": _sliced,
    "BINARY_OP": _binary,
    "COMPARE_OP": _comparison,
    "IS_OP": _identity,
    "CONTAINS_OP": _contains,
    "BUILD_TUPLE": _tuple,
    "BUILD_LIST": _list,
    "LIST_EXTEND": _extended_list,
    "BUILD_MAP": _dict,
    "BUILD_CONST_KEY_MAP": _dict_of_names,
    "DICT_UPDATE": _merged_dict,
    "FORMAT_VALUE": _formatted,
    "CONVERT_VALUE": _converted,
    "FORMAT_SIMPLE": _formatted_simply,
    "FORMAT_WITH_SPEC": _formatted_by_spec,
    "BUILD_STRING": _text,
    "CALL": _call,
}
