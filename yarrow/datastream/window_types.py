"""Windows: the groups of records that window functions see, and their binary forms.

Immutable values, usable from any thread. Times are milliseconds since the epoch in UTC, ends are exclusive.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import TypeVar

from yarrow.common.serializer import TypeSerializer
from yarrow.common.watermark_strategy import MAX_TIMESTAMP
from yarrow.datastream.functions.window_functions import Window

__all__ = [
    "CountWindow",
    "CountWindowSerializer",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "TimeWindow",
    "TimeWindowSerializer",
    "Window",
]

W = TypeVar("W", bound="Window")


@dataclass(frozen=True, slots=True, order=True)
class TimeWindow(Window):
    """The time from `start` to just before `end`."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the windows overlap or touch."""
        return self.start <= other.end and other.start <= self.end

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the window of this size that contains a time.

        Windows start at `offset` and all multiples of the size before and after it.
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(
        windows: Iterable[TimeWindow], callback: Callable[[Iterable[TimeWindow], TimeWindow], object]
    ) -> None:
        """Find the groups of windows that overlap or touch.

        Calls `callback(group, window that covers it)` for each group of two or more.
        """
        group: list[TimeWindow] = []
        covering: TimeWindow | None = None
        for window in sorted(windows):
            if covering is not None and covering.intersects(window):
                group.append(window)
                covering = covering.cover(window)
                continue
            if covering is not None and len(group) > 1:
                callback(group, covering)
            group, covering = [window], window
        if covering is not None and len(group) > 1:
            callback(group, covering)


@dataclass(frozen=True, slots=True, order=True)
class CountWindow(Window):
    """A window of a number of records, named by its place in the sequence of windows."""

    id: int

    def max_timestamp(self) -> int:
        return MAX_TIMESTAMP


@dataclass(frozen=True, slots=True, order=True)
class GlobalWindow(Window):
    """The one window that contains everything."""

    @staticmethod
    def get() -> GlobalWindow:
        """Return the window."""
        return _GLOBAL_WINDOW

    def max_timestamp(self) -> int:
        return MAX_TIMESTAMP


_GLOBAL_WINDOW = GlobalWindow()


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Start and end as big-endian 64-bit integers."""

    _LAYOUT = struct.Struct(">qq")

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        stream.write(self._LAYOUT.pack(element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        return TimeWindow(*self._LAYOUT.unpack(_read(stream, self._LAYOUT.size)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """The place as a big-endian 64-bit integer."""

    _LAYOUT = struct.Struct(">q")

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        stream.write(self._LAYOUT.pack(element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        return CountWindow(*self._LAYOUT.unpack(_read(stream, self._LAYOUT.size)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """A zero byte."""

    def serialize(self, element: GlobalWindow, stream: BytesIO) -> None:
        stream.write(b"\x00")

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        _read(stream, 1)
        return GlobalWindow.get()


def _read(stream: BytesIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError(f"a window of {size} bytes was expected, the stream has {len(data)} left")
    return data
