"""The functions that users write for matches: selecting, flat selecting, processing, and partial matches that time out.

Interfaces, and the forms in which the engine calls them. The thread that owns the task calls them. A match is a
dict: each step's name with the list of its records, in the order in which the match has taken them. Steps without a
record are missing. Meaning and names are those of Flink's `org.apache.flink.cep.functions`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from yarrow.datastream.functions import Function, RuntimeContext
from yarrow.datastream.output_tag import OutputTag

__all__ = [
    "Match",
    "PatternFlatSelectFunction",
    "PatternFlatTimeoutFunction",
    "PatternProcessFunction",
    "PatternSelectFunction",
    "PatternTimeoutFunction",
    "TimedOutPartialMatchHandler",
]

#: The records of a match by step.
Match = dict[str, list[Any]]


class PatternProcessFunction(Function, ABC):
    """A function of each match, with times and side outputs. `open` gets a CepRuntimeContext."""

    class Context(ABC):
        """The times of a match."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the time of the match, in milliseconds: that of its last record, or when its time has passed."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the present time of the machine, in milliseconds since the epoch."""

    @abstractmethod
    def process_match(self, match: Match, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a match; `yield tag, value` sends to a side output."""


class TimedOutPartialMatchHandler(ABC):
    """A further base of a PatternProcessFunction that wants partial matches whose time has passed."""

    @abstractmethod
    def process_timed_out_match(
        self, match: Match, ctx: PatternProcessFunction.Context
    ) -> Iterable[tuple[OutputTag, Any]] | None:
        """Return or yield `(tag, value)` pairs for side outputs. The main output takes nothing here, as in Flink."""


class PatternSelectFunction(Function, ABC):
    """A function that makes one record of a match."""

    @abstractmethod
    def select(self, match: Match) -> Any:
        """Return the result of a match."""


class PatternFlatSelectFunction(Function, ABC):
    """A function that makes any number of records of a match."""

    @abstractmethod
    def flat_select(self, match: Match) -> Iterable[Any] | None:
        """Return or yield the results of a match."""


class PatternTimeoutFunction(Function, ABC):
    """A function that makes one record of a partial match whose time has passed."""

    @abstractmethod
    def timeout(self, match: Match, timestamp: int) -> Any:
        """Return the result of a partial match. `timestamp`: when its time had passed, in milliseconds."""


class PatternFlatTimeoutFunction(Function, ABC):
    """A function that makes any number of records of a partial match whose time has passed."""

    @abstractmethod
    def timeout(self, match: Match, timestamp: int) -> Iterable[Any] | None:
        """Return or yield the results of a partial match."""


class SelectingMatches(PatternProcessFunction):
    """The functions of `select` and `flat_select` as one of `process`."""

    def __init__(self, function: Any, method: str, *, is_flat: bool) -> None:
        """`method`: that of the function, which may also be a callable."""
        self._function = function
        self._method = method
        self._is_flat = is_flat

    def open(self, runtime_context: RuntimeContext) -> None:
        _open(self._function, runtime_context)

    def close(self) -> None:
        _close(self._function)

    def process_match(self, match: Match, ctx: PatternProcessFunction.Context) -> Iterable[Any] | None:
        result: Any = _method(self._function, self._method)(match)
        return result if self._is_flat else (result,)


class SelectingTimeouts(SelectingMatches, TimedOutPartialMatchHandler):
    """The same with a function for partial matches whose time has passed, and the side output of its results."""

    def __init__(self, function: Any, method: str, timeout: Any, tag: OutputTag, *, is_flat: bool) -> None:
        super().__init__(function, method, is_flat=is_flat)
        self._timeout = timeout
        self._tag = tag

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        _open(self._timeout, runtime_context)

    def close(self) -> None:
        try:
            super().close()
        finally:
            _close(self._timeout)

    def process_timed_out_match(
        self, match: Match, ctx: PatternProcessFunction.Context
    ) -> Iterable[tuple[OutputTag, Any]] | None:
        result: Any = _method(self._timeout, "timeout")(match, ctx.timestamp())
        results = (result if result is not None else ()) if self._is_flat else (result,)
        return ((self._tag, each) for each in results)


def _method(function: Any, name: str) -> Callable[..., Any]:
    found = getattr(function, name, None)
    called: Callable[..., Any] = found if callable(found) else function
    return called


def _open(function: Any, context: RuntimeContext) -> None:
    if isinstance(function, Function):
        function.open(context)


def _close(function: Any) -> None:
    if isinstance(function, Function):
        function.close()
