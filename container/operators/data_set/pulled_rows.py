"""PulledRows: lets a function pull rows through an iterator that the engine pushes in chunks.

Owner: the task thread. The function runs in the same thread, on a stack of its own (a greenlet). That waits where the
function asks for a row that has not come yet. So neither the rows nor the results of a partition have to be kept.
Must not know what the rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from typing import Any, Final

from greenlet import GreenletExit, getcurrent, greenlet

from yarrow.container.codegen.user_functions import results_of

#: Most results that wait while the function goes on.
_MOST_RESULTS: Final = 1024


class PulledRows:
    """One call of a function with an iterator."""

    def __init__(self, call: Callable[[Iterator[Any]], Iterable[Any] | None]) -> None:
        self._call = call
        self._rows: list[Any] = []
        self._results: list[Any] = []
        self._has_ended = False
        #: The function waits for rows, and has no results left.
        self._is_hungry = False
        self._function = greenlet(self._run)
        self._function.gr_context = copy_context()

    def push(self, rows: list[Any]) -> Iterator[Any]:
        """Gives rows to the function; returns its results as they come. Take them all before the next call.

        Raises what the function raises.
        """
        self._rows = rows
        return self._advance()

    def end(self, rows: list[Any]) -> Iterator[Any]:
        """Gives the last rows; returns the last results."""
        self._rows = rows
        self._has_ended = True
        return self._advance()

    def _advance(self) -> Iterator[Any]:
        function = self._function
        while not function.dead:
            function.parent = getcurrent()
            self._is_hungry = False
            function.switch()
            results, self._results = self._results, []
            yield from results
            if self._is_hungry:
                return

    def close(self) -> None:
        """Ends the function where it waits, if it does: its `finally` blocks run."""
        if self._function and not self._function.dead:
            self._function.parent = getcurrent()
            self._function.throw(GreenletExit)

    # ------------------------------------------------------------------ on the function's own stack

    def _run(self) -> None:
        for result in results_of(self._call(self._pulled())):
            self._results.append(result)
            if len(self._results) >= _MOST_RESULTS:
                self._wait()

    def _pulled(self) -> Iterator[Any]:
        while True:
            rows, self._rows = self._rows, []
            yield from rows
            if self._has_ended:
                return
            self._is_hungry = True
            self._wait()

    def _wait(self) -> None:
        parent = self._function.parent
        assert parent is not None, "the engine has called the function"
        parent.switch()
