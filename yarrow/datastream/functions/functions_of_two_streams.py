"""Rows of two streams in one: what tags them, gives their key, and runs a user's function on the rows of a window.

A tagged row is a tuple: number of the stream, row of the first stream, row of the second one. The row of the other
stream is None. The thread that owns the task calls these functions. They must not know windows or operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from yarrow.datastream.functions.data_set_functions import RichFunction
from yarrow.datastream.functions.function import Function, RuntimeContext
from yarrow.datastream.functions.key_functions import KeySelector
from yarrow.datastream.functions.map_functions import MapFunction
from yarrow.datastream.functions.window_functions import WindowFunction

TaggedRow = tuple[int, Any, Any]

FIRST: Final = 0
SECOND: Final = 1
_MISSING: Final = (None,)


class TagOfFirst(MapFunction[Any, TaggedRow]):
    """Tags the rows of the first stream."""

    def map(self, value: Any) -> TaggedRow:
        return FIRST, value, None


class TagOfSecond(MapFunction[Any, TaggedRow]):
    """Tags the rows of the second stream."""

    def map(self, value: Any) -> TaggedRow:
        return SECOND, None, value


class KeyOfTaggedRow(KeySelector[TaggedRow, Any]):
    """The key of a tagged row: each stream has a selector of its own."""

    def __init__(self, selectors: tuple[Any, Any]) -> None:
        """`selectors`: a KeySelector or a callable for each stream."""
        self._selectors = selectors
        self._keys = tuple(getattr(each, "get_key", each) for each in selectors)

    def get_key(self, value: TaggedRow) -> Any:
        side = value[0]
        return self._keys[side](value[1 + side])

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyOfTaggedRow, (self._selectors,)


class FunctionOfTwoStreams(WindowFunction[TaggedRow, Any, Any, Any]):
    """Base of window functions that run a user's function on the rows of both streams."""

    def __init__(self, function: Any, method: str) -> None:
        """`method`: that of the user's function; a callable without it is called itself."""
        self._function = function
        self._method = method
        #: Whether the user's function waits, and so needs a thread.
        self.blocking = getattr(function, "blocking", False) is True

    def open(self, runtime_context: RuntimeContext) -> None:
        function = self._function
        if isinstance(function, RichFunction):
            function.set_runtime_context(runtime_context)
        if isinstance(function, Function):
            function.open(runtime_context)

    def close(self) -> None:
        if isinstance(self._function, Function):
            self._function.close()

    @property
    def _call(self) -> Callable[[Any, Any], Any]:
        called: Callable[[Any, Any], Any] = getattr(self._function, self._method, self._function)
        return called


class CoGroupOfWindow(FunctionOfTwoStreams):
    """Calls a CoGroupFunction with the rows of both streams in a window."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "co_group")

    def apply(self, key: Any, window: Any, inputs: Iterable[TaggedRow]) -> Iterable[Any] | None:
        first, second = rows_of_each(inputs)
        made: Iterable[Any] | None = self._call(iter(first), iter(second))
        return made


class JoinOfWindow(FunctionOfTwoStreams):
    """Calls a function for each pair of rows in a window."""

    def __init__(self, function: Any, *, is_flat: bool, keeps_first: bool, keeps_second: bool) -> None:
        """`is_flat`: the function gives any number of results.

        `keeps_first`: rows of the first stream are paired with None in a window without rows of the second one.
        `keeps_second`: the other way round.
        """
        super().__init__(function, "join")
        self._is_flat = is_flat
        self._keeps_first = keeps_first
        self._keeps_second = keeps_second

    def apply(self, key: Any, window: Any, inputs: Iterable[TaggedRow]) -> Iterator[Any]:
        first, second = rows_of_each(inputs)
        if not (first or second):
            # An evictor has removed them all: no row is without a partner.
            return
        firsts = _MISSING if not first and self._keeps_second else first
        seconds = _MISSING if not second and self._keeps_first else second
        join = self._call
        if not self._is_flat:
            for one in firsts:
                for other in seconds:
                    yield join(one, other)
            return
        for one in firsts:
            for other in seconds:
                yield from join(one, other) or ()


def rows_of_each(tagged: Iterable[TaggedRow]) -> tuple[list[Any], list[Any]]:
    """The rows of the first stream and those of the second one, each in their order."""
    rows: tuple[list[Any], list[Any]] = ([], [])
    for row in tagged:
        side = row[0]
        rows[side].append(row[1 + side])
    return rows
