"""ValueLoop: applies a small function of the user's to many values at once, computed in a loop where it can be.

Owner: the task thread. Must not know what the values are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter, CompiledCode
from yarrow.container.codegen.inlining.formulas import NotInlined
from yarrow.container.codegen.inlining.functions import InlinedFunction, inlined
from yarrow.container.codegen.user_calls import generate_call


class ValueLoop:
    """A function of one value, for lists of values."""

    def __init__(self, function: Callable[[Any], Any], *, inlines: bool) -> None:
        """`inlines`: a small function is written into the loop."""
        self._function = function
        self._compiled: CompiledCode | None = None
        self._gives_back = False
        try:
            found = inlined(function, 1) if inlines else None
        except NotInlined:
            found = None
        if found is not None:
            self._gives_back = _gives_back(found)
            if not self._gives_back:
                self._compiled = _loop(function)

    def extend(self, results: list[Any], values: Iterable[Any]) -> None:
        """Appends the result of each value. Results from before a failure stay in the list."""
        if self._gives_back:
            results.extend(values)
        elif self._compiled is not None:
            self._compiled.function(values, results.append)
        else:
            results.extend(map(self._function, values))

    def told(self, error: Exception) -> BaseException:
        """An error of `extend`, with the lines of the function in its traceback."""
        return error if self._compiled is None else self._compiled.inlined_calls.told(error)

    def close(self) -> None:
        """Lets go of the generated code."""
        if self._compiled is not None:
            self._compiled.dispose()


def _gives_back(function: InlinedFunction) -> bool:
    """True if the function returns its argument and does nothing else."""
    formula = function.formula
    result = formula.result
    return not formula.assignments and isinstance(result, ast.Name) and result.id == formula.parameters[-1]


def _loop(function: Callable[[Any], Any]) -> CompiledCode:
    code = CodeWriter(inlines=True)
    with code.block("for value in values:"):
        generate_call(code, "function", function, ["value"], "result")
        code.line("add(result)")
    return code.compile("results", "values, add")
