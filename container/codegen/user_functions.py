"""Loads user functions from their blobs and finds the callable in them.

Owner: the task thread. cloudpickle is read here and in the source, sink modules only, and only from a job blob that
came over an authenticated control connection.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from yarrow.datastream.functions import RuntimeContext
from yarrow.runtime.common.errors import InvalidProgramError


def load_function(blob: bytes, operator_name: str) -> Any:
    """The object in a cloudpickle blob; a missing module is named with its remedy."""
    try:
        return pickle.loads(blob)
    except ModuleNotFoundError as error:
        raise InvalidProgramError(
            f"operator '{operator_name}': its function needs module '{error.name}', which this worker cannot import; "
            "ship it with add_python_file (-pyfs), or install it in the environment of the workers"
        ) from error


def method_of(function: Any, name: str, operator_name: str) -> Callable[..., Any]:
    """The method `name` where the object has one, else the object itself when it can be called."""
    method = getattr(function, name, None)
    if callable(method):
        found: Callable[..., Any] = method
        return found
    if callable(function):
        called: Callable[..., Any] = function
        return called
    raise InvalidProgramError(
        f"operator '{operator_name}': {type(function).__name__} is no function: it can neither be called nor has it a "
        f"method '{name}'"
    )


def open_function(function: Any, context: RuntimeContext) -> None:
    """Calls `open` where a rich function has one."""
    opener = getattr(function, "open", None)
    if callable(opener) and not isinstance(function, type):
        opener(context)


def close_function(function: Any) -> None:
    """Calls `close` where a rich function has one."""
    closer = getattr(function, "close", None)
    if callable(closer) and not isinstance(function, type):
        closer()
