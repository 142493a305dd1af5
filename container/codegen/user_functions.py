"""UserFunctions: loads user functions from their blobs, finds the callable in each, and reads what it gave.

Owner: the task thread. Only this module and the source and sink modules read cloudpickle, and only from a job
blob that came over an authenticated control connection.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

from yarrow.container.protocol.errors import MissingModuleError
from yarrow.datastream.functions import RuntimeContext
from yarrow.datastream.functions.data_set_functions import RichFunction
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.errors import NoResultsError


def load_function(blob: bytes, operator_name: str) -> Any:
    """The object in a cloudpickle blob. Raises MissingModuleError, with which the job fails for good."""
    try:
        return pickle.loads(blob)
    except ModuleNotFoundError as error:
        raise MissingModuleError(f"operator '{operator_name}': its function", error.name) from error


def method_of(function: Any, name: str, operator_name: str) -> Callable[..., Any]:
    """The method `name` of the object, else the object itself if it is callable."""
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
    """Calls `open` if the function has one."""
    if isinstance(function, RichFunction):
        function.set_runtime_context(context)
    opener = getattr(function, "open", None)
    if callable(opener) and not isinstance(function, type):
        opener(context)


def close_function(function: Any) -> None:
    """Calls `close` if the function has one."""
    closer = getattr(function, "close", None)
    if callable(closer) and not isinstance(function, type):
        closer()


def results_of(given: Any) -> Iterable[Any]:
    """The results in the value that a function gave; None holds none. Raises NoResultsError for no iterable."""
    if given is None:
        return ()
    if not is_iterable(given):
        raise NoResultsError(given)
    results: Iterable[Any] = given
    return results


def is_iterable(value: Any) -> bool:
    """True if a loop can go through the value."""
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")
