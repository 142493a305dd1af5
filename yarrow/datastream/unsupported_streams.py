"""Streams that this version cannot make: named for programs that annotate with them or import them.

Owner: none. The methods that would return them (`window`, `window_all`, `cache`) are refused, and the error
names what is missing. So are their constructors and methods, which have PyFlink's names and parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.data_stream import DataStream, refuse
from yarrow.datastream.functions import AggregateFunction, ReduceFunction
from yarrow.datastream.keyed_stream import KeyedStream
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.window import Trigger, WindowAssigner

__all__ = ["AllWindowedStream", "CachedDataStream", "WindowedStream"]


class _StreamOfWindows:
    """The common part of streams cut into windows: every method is refused."""

    def get_execution_environment(self) -> NoReturn:
        """Refused: this version has no windows."""
        self._refuse("get_execution_environment")

    def get_input_type(self) -> NoReturn:
        """Refused: this version has no windows."""
        self._refuse("get_input_type")

    def trigger(self, trigger: Trigger[Any, Any]) -> NoReturn:
        """Refused: when windows fire."""
        self._refuse("trigger")

    def allowed_lateness(self, time_ms: int) -> NoReturn:
        """Refused: for how long windows take late records."""
        self._refuse("allowed_lateness")

    def side_output_late_data(self, output_tag: OutputTag) -> NoReturn:
        """Refused: where records go that come too late."""
        self._refuse("side_output_late_data")

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction[Any],
        window_function: Any = None,
        output_type: TypeInformation | None = None,
    ) -> NoReturn:
        """Refused: one record out of the records of a window."""
        self._refuse("reduce")

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, Any, Any],
        window_function: Any = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> NoReturn:
        """Refused: a result out of the records of a window."""
        self._refuse("aggregate")

    def apply(self, window_function: Any, output_type: TypeInformation | None = None) -> NoReturn:
        """Refused: a function of all records of a window."""
        self._refuse("apply")

    def process(self, process_window_function: Any, output_type: TypeInformation | None = None) -> NoReturn:
        """Refused: a function of all records of a window, with context."""
        self._refuse("process")

    def _refuse(self, method: str) -> NoReturn:
        refuse(f"{type(self).__name__}.{method}", "windows")


class WindowedStream(_StreamOfWindows):
    """A keyed stream cut into windows; cannot be made in this version."""

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        refuse("WindowedStream", "windows")


class AllWindowedStream(_StreamOfWindows):
    """A stream cut into windows that hold the records of all keys; cannot be made in this version."""

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        refuse("AllWindowedStream", "windows")


class CachedDataStream(DataStream):
    """A stream whose records are kept for later jobs; cannot be made in this version."""

    def __init__(self, *arguments: object) -> None:
        refuse("CachedDataStream", "cached intermediate results")

    def invalidate(self) -> NoReturn:
        """Refused: gives up the records that are kept."""
        refuse("CachedDataStream.invalidate", "cached intermediate results")
