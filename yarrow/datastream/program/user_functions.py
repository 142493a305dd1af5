"""Checks of the functions that a program passes: right kind, right stream, declared as blocking.

Owner: the thread that builds the program. Never calls a function.
"""

from __future__ import annotations

import inspect
from typing import Any

from yarrow.datastream.functions import Function
from yarrow.runtime.graph.user_code import describe_callable


def require_function(func: Any, expected: type[Function], method: str, *, callables: bool = True) -> None:
    """Raises TypeError unless `func` is an `expected` or, where `callables`, can be called with its arguments."""
    if isinstance(func, expected):
        _require_arguments(func, expected, method)
        return
    if isinstance(func, type) and issubclass(func, Function):
        raise TypeError(f"{method} takes an object, not a class: pass {func.__name__}(...) instead")
    if isinstance(func, Function):
        raise TypeError(f"{method} takes {with_article(expected)}, not {with_article(type(func))}")
    if callables and callable(func):
        _require_arguments(func, expected, method)
        return
    also = " or a callable" if callables else ""
    raise TypeError(f"{method} takes {with_article(expected)}{also}, not {func!r}")


def with_article(kind: type) -> str:
    """The name of a class in a sentence: "a MapFunction", "an AsyncFunction"."""
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _require_arguments(func: Any, expected: type[Function], method: str) -> None:
    """Raises TypeError if a function of one method cannot take the arguments of that method."""
    methods = sorted(getattr(expected, "__abstractmethods__", ()))
    if len(methods) != 1:
        return
    called = getattr(func, methods[0]) if isinstance(func, expected) else func
    arguments = list(inspect.signature(getattr(expected, methods[0])).parameters)[1:]
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # some built-in functions tell none
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TypeError(
            f"{method} calls its function with ({', '.join(arguments)}), but {describe_callable(called)} takes"
            f" {signature}: {error}"
        ) from None


def declares_blocking(func: Any) -> bool:
    """Whether a function, source or sink says by `blocking = True` that it waits, and so needs a thread."""
    return getattr(func, "blocking", False) is True


def is_rich(func: Any) -> bool:
    """Whether a function opens itself, and so may ask for state."""
    return isinstance(func, Function) and getattr(type(func), "open", Function.open) is not Function.open
