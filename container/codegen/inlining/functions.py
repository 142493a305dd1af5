"""InlinedFunction: a user's function whose formula the loop may compute instead of calling it.

Owner: the task thread while it compiles a chain. It refuses a function that it does not know in full with NotInlined.
It never changes a function, and runs none.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from yarrow.container.codegen.inlining.formulas import PURE_BUILTINS, Formula, NotInlined
from yarrow.container.codegen.inlining.proofs import proved_formula

#: Nanoseconds that a read in the loop takes longer than one in the function (docs/design/0055). A call costs 22.
_GLOBAL_READ: Final = 8
_CLOSURE_READ: Final = 14
_SAVED: Final = 20

# `is_traced` is asked for each chunk.
_gettrace, _getprofile = sys.gettrace, sys.getprofile
#: Python 3.12 and newer have it.
_MONITORING: Final[Any] = getattr(sys, "monitoring", None)


class InlinedFunction(NamedTuple):
    """A function that its loop computes."""

    formula: Formula
    #: The object of a bound method, which is the value of the first parameter; None = there is none.
    owner: Any
    globals: dict[str, Any]
    #: Closure variables by name.
    cells: Mapping[str, CellType]


def is_traced() -> bool:
    """True if a debugger, a profiler or a measurement of coverage waits for calls and lines of functions."""
    if _gettrace() is not None or _getprofile() is not None:
        return True
    return _MONITORING is not None and any(_MONITORING.get_tool(tool) is not None for tool in range(6))


def inlined(function: Callable[..., Any], argument_count: int, *, yields: bool = False) -> InlinedFunction:
    """The function, if its loop may compute it for that many arguments. Raises NotInlined with the reason otherwise.

    `yields`: it is a generator of one value, and the loop takes that value.
    """
    called, owner = function, None
    if isinstance(function, MethodType):
        called, owner = function.__func__, function.__self__
    if type(called) is not FunctionType:
        raise NotInlined(f"it is a {type(called).__name__}")
    formula = proved_formula(called.__code__)
    if formula.is_yielded != yields:
        raise NotInlined("it is a generator" if formula.is_yielded else "it is no generator")
    taken = len(formula.parameters) - (owner is not None)
    if taken != argument_count:
        raise NotInlined(f"it takes {taken} arguments, not {argument_count}")
    cells = dict(zip(called.__code__.co_freevars, called.__closure__ or (), strict=True))
    found = InlinedFunction(formula, owner, called.__globals__, cells)
    _check_names(found, getattr(called, "__builtins__", None))
    return found


def _check_names(function: InlinedFunction, builtins_of_function: object) -> None:
    """Refuses names whose meaning could be another one in the loop, and names that cost more than a call."""
    if type(function.globals) is not dict or builtins_of_function is not vars(builtins):
        raise NotInlined("its globals or builtins are its own")
    cost, local_names = 0, function.formula.local_names
    for name in function.formula.names_read:
        if name in local_names:
            continue
        if name in function.cells:
            cost += _CLOSURE_READ
        elif name in function.globals:
            cost += _GLOBAL_READ
        elif name not in PURE_BUILTINS:
            raise NotInlined(f"it reads {name}")
    if cost > _SAVED:
        raise NotInlined("it reads so many globals and closure variables that a call costs less")
    for tree in function.formula.trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = node.func.id
                if name in local_names or name in function.cells or name in function.globals:
                    raise NotInlined(f"{name} is a function of its own")
