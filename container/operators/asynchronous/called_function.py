"""CalledFunction: the methods of one asynchronous function, as calls need them, and what they must return.

Owner: the thread of the event loop. Nothing here knows queues, deadlines or attempts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from yarrow.container.protocol.failure import short_record

#: The results in what a method returned for an argument, one entry for each record of the call. The last parameter is
#: the name of the method. Raises TypeError or ValueError if the method returned something else.
ResultsOf = Callable[[Any, Any, str], list[Any]]


class CalledFunction(NamedTuple):
    """The methods of one asynchronous function."""

    #: Begins an attempt for an argument.
    invoke: Callable[[Any], Awaitable[Any]]
    #: Gives the results of an argument whose time is over.
    timeout: Callable[[Any], Any]
    results: ResultsOf


def results_of_record(argument: Any, returned: Any, method: str) -> list[Any]:
    """The list of results of one record. Raises TypeError for anything but a list."""
    if type(returned) is not list:
        require_kind(
            returned, list, method, "expected a list of results: return [] for none, and [result] for one"
        )
    return [returned]


def results_of_rows(argument: list[Any], returned: Any, method: str) -> list[Any]:
    """The list of results of each row of a batch.

    Raises TypeError for anything but a list, and ValueError for a list with another number of results.
    """
    require_kind(returned, list, method, "expected a list with one result for each row")
    require_rows(len(argument), len(returned), method)
    return [[result] for result in returned]


def require_kind(returned: Any, kind: type[Any], method: str, expected: str) -> None:
    """Raises TypeError, with what was `expected`, if a method has not returned an object of that kind."""
    if not isinstance(returned, kind):
        raise TypeError(f"{method} returned {short_record(returned)} ({type(returned).__name__}); {expected}")


def require_rows(given: int, returned: int, method: str) -> None:
    """Raises ValueError if a method has not returned as many results as it was given rows."""
    if returned != given:
        raise ValueError(
            f"{method} returned {returned} results for {given} rows; return one result for each row, in their order"
        )
