"""AsyncDataStream: functions that wait for answers from outside, many at a time; refused so far.

Owner: the thread that builds the program.
"""

from __future__ import annotations

from typing import Any, NoReturn

from yarrow.common.time import Duration, Time
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.functions import AsyncFunction, AsyncFunctionDescriptor, AsyncRetryStrategy
from yarrow.runtime.common.errors import UnsupportedFeatureError

__all__ = [
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryStrategy",
    "DataStream",
    "Time",
    "TypeInformation",
]


def _refuse(method: str) -> NoReturn:
    raise UnsupportedFeatureError(
        f"AsyncDataStream.{method} is refused: this version has no asynchronous functions."
        " Call the outside system in a map, whose operator may set `blocking = True`."
    )


class AsyncDataStream:
    """Puts an AsyncFunction behind a stream; every method is refused in this version."""

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> NoReturn:
        """Results in the order of their arrival."""
        _refuse("unordered_wait")

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> NoReturn:
        """Results in the order of their arrival, with calls repeated that failed."""
        _refuse("unordered_wait_with_retry")

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> NoReturn:
        """Results in the order of the records."""
        _refuse("ordered_wait")

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> NoReturn:
        """Results in the order of the records, with calls repeated that failed."""
        _refuse("ordered_wait_with_retry")
