"""How a window function is called: apply or process, with a key or for the whole stream, or not at all.

Owner: the task thread. Must not know triggers, nor when a window fires.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yarrow.container.codegen.user_functions import method_of
from yarrow.container.operators.window.window_contexts import WindowFunctionContext
from yarrow.runtime.graph.window_spec import WindowCallKind


class WindowCall:
    """Calls of one window function; without a function the elements of a window are its results."""

    def __init__(self, context: WindowFunctionContext) -> None:
        self._context = context

    def fire(self, key: Any, window: Any, elements: list[Any]) -> Iterable[Any] | None:
        """The results of a window; None = there are none."""
        return elements

    def clear(self, window: Any) -> None:
        """Lets the function remove its state of a window that ends, and removes what it left."""
        self._context.states.remove_all(window)


class _Apply(WindowCall):
    def __init__(self, context: WindowFunctionContext, function: Any, operator: str, *, keyed: bool) -> None:
        super().__init__(context)
        self._apply = method_of(function, "apply", operator)
        self._keyed = keyed

    def fire(self, key: Any, window: Any, elements: list[Any]) -> Iterable[Any] | None:
        made: Iterable[Any] | None = (
            self._apply(key, window, elements) if self._keyed else self._apply(window, elements)
        )
        return made


class _Process(WindowCall):
    def __init__(self, context: WindowFunctionContext, function: Any, operator: str, *, keyed: bool) -> None:
        super().__init__(context)
        self._process = method_of(function, "process", operator)
        self._clear = method_of(function, "clear", operator)
        self._keyed = keyed

    def fire(self, key: Any, window: Any, elements: list[Any]) -> Iterable[Any] | None:
        context = self._context
        context.window_at_hand = window
        made: Iterable[Any] | None = (
            self._process(key, context, elements) if self._keyed else self._process(context, elements)
        )
        return made

    def clear(self, window: Any) -> None:
        self._context.window_at_hand = window
        self._clear(self._context)
        super().clear(window)


def window_call(
    kind: WindowCallKind, function: Any, context: WindowFunctionContext, operator: str
) -> WindowCall:
    """The calls of a function of that kind; `function` is None for NONE."""
    if kind is WindowCallKind.NONE:
        return WindowCall(context)
    called = _Apply if kind in (WindowCallKind.APPLY, WindowCallKind.APPLY_ALL) else _Process
    keyed = kind in (WindowCallKind.APPLY, WindowCallKind.PROCESS)
    return called(context, function, operator, keyed=keyed)
