"""OutputSelector, and the function that sends records to side outputs by the names that a selector gives.

The thread that owns the task calls both. They must not know streams or operators.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from yarrow.datastream.functions.function import Function, RuntimeContext
from yarrow.datastream.functions.process_functions import ProcessFunction

IN = TypeVar("IN")


class OutputSelector(Function, Generic[IN]):
    """Gives the names of the streams that get a record."""

    @abstractmethod
    def select(self, value: IN) -> Iterable[str] | str:
        """Return the names for a record, or a single one; no name drops the record."""


class SplitFunction(ProcessFunction[Any, Any]):
    """Sends each record to the side outputs of the selections that have one of its names."""

    def __init__(
        self,
        selector: OutputSelector[Any] | Callable[[Any], Iterable[str] | str],
        selections: Iterable[tuple[frozenset[str], object]],
    ) -> None:
        """`selections`: the names of each, and the tag of its side output."""
        self._selector = selector
        self._selections = tuple(selections)
        #: The function declares that it waits, if its selector does.
        self.blocking = getattr(selector, "blocking", False) is True

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self._selector, Function):
            self._selector.open(runtime_context)

    def close(self) -> None:
        if isinstance(self._selector, Function):
            self._selector.close()

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[tuple[object, Any]]:
        selector = self._selector
        names = selector.select(value) if isinstance(selector, OutputSelector) else selector(value)
        names = [names] if isinstance(names, str) else names
        try:
            given = set(names)
        except TypeError:
            raise TypeError(
                f"the selector of split returned {names!r}. Expected a name, or an iterable of names; an empty one"
                " drops the record"
            ) from None
        for of_selection, tag in self._selections:
            if not given.isdisjoint(of_selection):
                yield tag, value
