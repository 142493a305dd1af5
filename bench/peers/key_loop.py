"""A KeyedProcessFunction called by hand: its state in a dict, its timers in a heap, one key after the other.

What a program in plain PySpark would write behind `groupByKey`. The interfaces are those that the functions know.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class DictValue:
    """A ValueState whose values lie in a dict by key."""

    def __init__(self, loop: KeyLoop) -> None:
        self._loop = loop
        self._values: dict[Any, Any] = {}

    def value(self) -> Any:
        return self._values.get(self._loop.key)

    def update(self, value: Any) -> None:
        self._values[self._loop.key] = value

    def clear(self) -> None:
        self._values.pop(self._loop.key, None)


class KeyLoop:
    """Runs one function; it is the function's runtime context, context and timer service at once."""

    def __init__(self, function: Any, time_of: Callable[[Any], int]) -> None:
        self._function = function
        self._time_of = time_of
        self._timers: list[int] = []
        self._states: list[DictValue] = []
        self.key: Any = None
        self._time = 0

    # ------------------------------------------------------------------ what the function calls

    def get_state(self, descriptor: object) -> DictValue:
        state = DictValue(self)
        self._states.append(state)
        return state

    def timer_service(self) -> KeyLoop:
        return self

    def register_event_time_timer(self, timestamp: int) -> None:
        if timestamp not in self._timers:
            heapq.heappush(self._timers, timestamp)

    def timestamp(self) -> int:
        return self._time

    def get_current_key(self) -> Any:
        return self.key

    # ------------------------------------------------------------------ what the program calls

    def results(self, groups: Iterable[tuple[Any, Iterable[Any]]]) -> Iterator[Any]:
        """The function's results for each key and its values, which come in any order."""
        function, time_of = self._function, self._time_of
        function.open(self)
        process, on_timer = function.process_element, function.on_timer
        for self.key, values in groups:
            for value in sorted(values, key=time_of):
                self._time = time_of(value)
                yield from process(value, self) or ()
            timers = self._timers
            while timers:
                self._time = heapq.heappop(timers)
                yield from on_timer(self._time, self) or ()
            for state in self._states:
                state.clear()
        function.close()
