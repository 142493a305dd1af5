"""Functions over the elements of a window, by key or of a whole stream.

Interfaces alone; called by the thread that owns the task when a trigger fires. They decide neither the window of
an element nor when it fires: window assigners and triggers do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from yarrow.datastream.functions.function import Function, KeyedStateStore

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W", bound="Window")
# The contexts nested in window functions need a variable of their own.
WINDOW = TypeVar("WINDOW", bound="Window")


class Window(ABC):
    """A group of records. Windows are keys of state, so they are hashable and never change."""

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the last time that belongs to the window."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Any number of results for each window of a key."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results of a window that fires."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Any number of results for each window of a stream without keys."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results of a window that fires."""


class _WindowContext(ABC, Generic[WINDOW]):
    """The facts that a function can ask for while a window fires."""

    @abstractmethod
    def window(self) -> WINDOW:
        """Return the window."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """Return the state of this key and window; `clear` removes its content."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """Return the state of this key in all windows."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Any number of results for each window of a key, with state, time and side outputs."""

    class Context(_WindowContext[WINDOW]):
        """The facts that a function can ask for while a window fires."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the machine's time."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the event time reached."""

    @abstractmethod
    def process(self, key: KEY, context: Context[W], elements: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results of a window that fires."""

    def clear(self, context: Context[W]) -> None:
        """Remove the window's own state; called once when the window is purged for good."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Any number of results for each window of a stream without keys, with state and side outputs."""

    class Context(_WindowContext[WINDOW]):
        """The facts that a function can ask for while a window fires."""

    @abstractmethod
    def process(self, context: Context[W], elements: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results of a window that fires."""

    def clear(self, context: Context[W]) -> None:
        """Remove the window's own state; called once when the window is purged for good."""


class WindowGroups:
    """The groups of rows in a batch that an aggregate of columns gets; a group is a key and a window."""

    __slots__ = ("offsets", "window_ends", "window_starts")

    def __init__(
        self,
        offsets: npt.NDArray[np.int64],
        window_starts: npt.NDArray[np.int64],
        window_ends: npt.NDArray[np.int64],
    ) -> None:
        """`offsets`: int64, shape (groups + 1,). Starts and ends: int64, shape (groups,)."""
        #: Group n has the rows from `offsets[n]` to `offsets[n + 1]`, without the latter.
        self.offsets = offsets
        #: The start of each group's window in epoch milliseconds.
        self.window_starts = window_starts
        #: The end of each group's window, which the window does not contain.
        self.window_ends = window_ends

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.window_starts)
