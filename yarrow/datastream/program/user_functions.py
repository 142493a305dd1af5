"""Checks of the functions that a program passes: right kind, right stream, declared as blocking.

Owner: the thread that builds the program. Never calls a function.
"""

from __future__ import annotations

from typing import Any

from yarrow.datastream.functions import Function


def require_function(func: Any, expected: type[Function], method: str, *, callables: bool = True) -> None:
    """Raises TypeError unless `func` is an `expected` or, where `callables`, can be called."""
    if isinstance(func, expected):
        return
    if isinstance(func, type) and issubclass(func, Function):
        raise TypeError(f"{method} takes an object, not a class: pass {func.__name__}(...) instead")
    if isinstance(func, Function):
        raise TypeError(f"{method} takes a {expected.__name__}, not a {type(func).__name__}")
    if callables and callable(func):
        return
    also = " or a callable" if callables else ""
    raise TypeError(f"{method} takes a {expected.__name__}{also}, not {func!r}")


def declares_blocking(func: Any) -> bool:
    """Whether a function, source or sink says by `blocking = True` that it waits, and so needs a thread."""
    return getattr(func, "blocking", False) is True


def is_rich(func: Any) -> bool:
    """Whether a function opens itself, and so may ask for state."""
    return isinstance(func, Function) and getattr(type(func), "open", Function.open) is not Function.open
