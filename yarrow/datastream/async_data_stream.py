"""AsyncDataStream: puts functions behind a stream that wait for answers from outside, for many records at a time.

Owner: the thread that builds the program. Results bear the timestamps of their records.
"""

from __future__ import annotations

import inspect
from typing import Any

from yarrow.common.time import Duration, Time
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.functions import (
    AsyncFunction,
    AsyncFunctionDescriptor,
    AsyncRetryStrategy,
    CheckpointedFunction,
)
from yarrow.datastream.functions.async_retries import NO_RETRY_STRATEGY
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import require_function
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.operator_spec import AsyncWaitOperator

__all__ = [
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryStrategy",
    "DataStream",
    "Time",
    "TypeInformation",
]

_NAME = "async wait operator"
_ORDERED = AsyncFunctionDescriptor.OutputMode.ORDERED
_UNORDERED = AsyncFunctionDescriptor.OutputMode.UNORDERED


class AsyncDataStream:
    """Puts an AsyncFunction behind a stream.

    `timeout` is the time for all attempts of a record. `capacity` is the number of records of a subtask whose results
    have not been emitted. All methods raise TypeError for arguments of a wrong kind, and ValueError for a timeout or a
    capacity below 1. They raise InvalidProgramError if `async_invoke` is no coroutine function, and
    UnsupportedFeatureError for a CheckpointedFunction.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of the results as they come, but never past a watermark."""
        limits = AsyncFunctionDescriptor(async_function, timeout, capacity, NO_RETRY_STRATEGY, _UNORDERED)
        return _wait("unordered_wait", data_stream, limits, output_type)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of `unordered_wait`, with calls repeated as the strategy says."""
        limits = AsyncFunctionDescriptor(async_function, timeout, capacity, async_retry_strategy, _UNORDERED)
        return _wait("unordered_wait_with_retry", data_stream, limits, output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of the results in the order of the records."""
        limits = AsyncFunctionDescriptor(async_function, timeout, capacity, NO_RETRY_STRATEGY, _ORDERED)
        return _wait("ordered_wait", data_stream, limits, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of `ordered_wait`, with calls repeated as the strategy says."""
        limits = AsyncFunctionDescriptor(async_function, timeout, capacity, async_retry_strategy, _ORDERED)
        return _wait("ordered_wait_with_retry", data_stream, limits, output_type)


def _wait(
    method: str, stream: DataStream, limits: AsyncFunctionDescriptor, output_type: TypeInformation | None
) -> DataStream:
    function, strategy = limits.async_function, limits.async_retry_strategy
    if not isinstance(stream, DataStream):
        raise TypeError(f"{method} takes a DataStream, not {type(stream).__name__}")
    require_function(function, AsyncFunction, method, callables=False)
    if not isinstance(strategy, AsyncRetryStrategy):
        raise TypeError(
            f"{method} takes an AsyncRetryStrategy, such as AsyncRetryStrategy.fixed_delay(...), not {strategy!r}"
        )
    if not inspect.iscoroutinefunction(function.async_invoke):
        raise InvalidProgramError(
            f"{method}: {type(function).__name__}.async_invoke is no coroutine function. Declare it with `async def`,"
            " and await the answer in it; a function that cannot await belongs into a map."
        )
    if isinstance(function, CheckpointedFunction):
        raise UnsupportedFeatureError(
            f"{method}: {type(function).__name__} is a CheckpointedFunction. Asynchronous functions keep no state of"
            " their own in this version: keep it in an operator before or behind."
        )
    builder = stream._builder
    spec = AsyncWaitOperator(
        function=builder.pickle(function, _NAME),
        strategy=builder.pickle(strategy, _NAME, "retry strategy"),
        timeout_ms=limits.timeout,
        capacity=limits.capacity,
        ordered=limits.output_mode is _ORDERED,
    )
    return stream._one_input(_NAME, spec, declared(output_type)).start_new_chain()
