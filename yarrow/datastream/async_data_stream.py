"""AsyncDataStream: puts functions behind a stream that wait for answers from outside, for many records at a time.

Owner: the thread that builds the program. Results bear the timestamps of their records.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import pyarrow as pa

from yarrow.common.time import Duration, Time, milliseconds_of
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.functions import (
    AsyncBatchFunction,
    AsyncFunction,
    AsyncFunctionDescriptor,
    AsyncRetryStrategy,
    CheckpointedFunction,
)
from yarrow.datastream.functions.async_retries import NO_RETRY_STRATEGY
from yarrow.datastream.keyed_stream import KeyedStream
from yarrow.datastream.program.arrow_schemas import schema_bytes
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import require_function
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.async_spec import (
    AsyncBatchLimits,
    AsyncByKeyOperator,
    AsyncColumnsOperator,
    AsyncWaitOperator,
    ResultOrder,
)
from yarrow.runtime.graph.operator_spec import StreamKind

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
_Mode = AsyncFunctionDescriptor.OutputMode
_ORDERS: Final = {
    _Mode.ORDERED: ResultOrder.ORDERED,
    _Mode.UNORDERED: ResultOrder.UNORDERED,
    _Mode.BY_KEY: ResultOrder.BY_KEY,
}


class AsyncDataStream:
    """Puts an AsyncFunction or an AsyncBatchFunction behind a stream.

    `timeout` is the time for all attempts of a call. `capacity` is the number of records of a subtask whose results
    have not been emitted. `threads` is for a function whose client knows no asyncio: `async_invoke` is then a plain
    function, which so many threads of each subtask call. `output_type` is a pyarrow Schema where an AsyncBatchFunction
    gets record batches.

    All methods raise TypeError for arguments of a wrong kind, and ValueError for a number that is too small. They
    raise InvalidProgramError for a plain function without threads, and for a coroutine function with some. They raise
    UnsupportedFeatureError for a CheckpointedFunction.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any] | AsyncBatchFunction,
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | pa.Schema | None = None,
        *,
        threads: int = 0,
    ) -> DataStream:
        """Return the stream of the results as they come, but never past a watermark."""
        limits = AsyncFunctionDescriptor(
            async_function, timeout, capacity, NO_RETRY_STRATEGY, _Mode.UNORDERED, threads
        )
        return _wait("unordered_wait", data_stream, limits, output_type)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any] | AsyncBatchFunction,
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | pa.Schema | None = None,
        *,
        threads: int = 0,
    ) -> DataStream:
        """Return the stream of `unordered_wait`, with calls repeated as the strategy says."""
        limits = AsyncFunctionDescriptor(
            async_function, timeout, capacity, async_retry_strategy, _Mode.UNORDERED, threads
        )
        return _wait("unordered_wait_with_retry", data_stream, limits, output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any] | AsyncBatchFunction,
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | pa.Schema | None = None,
        *,
        threads: int = 0,
    ) -> DataStream:
        """Return the stream of the results in the order of the records."""
        limits = AsyncFunctionDescriptor(
            async_function, timeout, capacity, NO_RETRY_STRATEGY, _Mode.ORDERED, threads
        )
        return _wait("ordered_wait", data_stream, limits, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any] | AsyncBatchFunction,
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | pa.Schema | None = None,
        *,
        threads: int = 0,
    ) -> DataStream:
        """Return the stream of `ordered_wait`, with calls repeated as the strategy says."""
        limits = AsyncFunctionDescriptor(
            async_function, timeout, capacity, async_retry_strategy, _Mode.ORDERED, threads
        )
        return _wait("ordered_wait_with_retry", data_stream, limits, output_type)

    @staticmethod
    def ordered_by_key(
        data_stream: KeyedStream,
        async_function: AsyncFunction[Any, Any] | AsyncBatchFunction,
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
        *,
        async_retry_strategy: AsyncRetryStrategy[Any] = NO_RETRY_STRATEGY,
        threads: int = 0,
    ) -> DataStream:
        """Return the stream of the results, in which those of a key are in the order of its records.

        A slow call holds back the results of its own key alone. The calls of a key overlap.
        """
        if not isinstance(data_stream, KeyedStream):
            raise TypeError(
                f"ordered_by_key takes a keyed stream of rows, not a {type(data_stream).__name__}: call key_by with a"
                " function before it"
            )
        limits = AsyncFunctionDescriptor(
            async_function, timeout, capacity, async_retry_strategy, _Mode.BY_KEY, threads
        )
        return _wait("ordered_by_key", data_stream, limits, output_type)


def _wait(
    method: str,
    stream: DataStream,
    limits: AsyncFunctionDescriptor,
    output_type: TypeInformation | pa.Schema | None,
) -> DataStream:
    function, strategy = limits.async_function, limits.async_retry_strategy
    if not isinstance(stream, DataStream):
        raise TypeError(f"{method} takes a DataStream, not {type(stream).__name__}")
    in_batches = isinstance(function, AsyncBatchFunction)
    require_function(function, AsyncBatchFunction if in_batches else AsyncFunction, method, callables=False)
    if not isinstance(strategy, AsyncRetryStrategy):
        raise TypeError(
            f"{method} takes an AsyncRetryStrategy, such as AsyncRetryStrategy.fixed_delay(...), not {strategy!r}"
        )
    _check_function(method, function, limits.threads)
    columns = in_batches and stream.is_columnar
    if isinstance(output_type, pa.Schema) and not columns:
        raise TypeError(
            f"{method}: a Schema declares record batches, but {type(function).__name__} gives rows here: pass a"
            " TypeInformation, or an AsyncBatchFunction behind a stream of columns"
        )
    spec = AsyncWaitOperator(
        function=stream._builder.pickle(function, _NAME),
        strategy=stream._builder.pickle(strategy, _NAME, "retry strategy"),
        timeout_ms=limits.timeout,
        capacity=limits.capacity,
        order=_ORDERS[limits.output_mode],
        threads=limits.threads,
        batch=_batch_limits(method, function, limits) if isinstance(function, AsyncBatchFunction) else None,
        key_selector=stream.key_selector if isinstance(stream, KeyedStream) else None,
    )
    if columns:
        return _columnar(method, stream, spec, output_type)
    assert not isinstance(output_type, pa.Schema), "refused above"
    if spec.order is ResultOrder.BY_KEY:
        spec = AsyncByKeyOperator(**_fields(spec))
    return stream._one_input(_NAME, spec, declared(output_type)).start_new_chain()


def _check_function(
    method: str, function: AsyncFunction[Any, Any] | AsyncBatchFunction, threads: int
) -> None:
    name, is_coroutine = type(function).__name__, inspect.iscoroutinefunction(function.async_invoke)
    if not threads and not is_coroutine:
        raise InvalidProgramError(
            f"{method}: {name}.async_invoke is no coroutine function. Declare it with `async def`, and await the"
            " answer in it. If its client cannot be awaited, let threads call it: pass `threads=8`."
        )
    if threads and is_coroutine:
        raise InvalidProgramError(
            f"{method}: {name}.async_invoke is a coroutine function, which no thread can call. Declare it with"
            " `def`, or leave out `threads`."
        )
    if isinstance(function, CheckpointedFunction):
        raise UnsupportedFeatureError(
            f"{method}: {name} is a CheckpointedFunction. Asynchronous functions keep no state of their own in this"
            " version: keep it in an operator before or behind."
        )


def _batch_limits(
    method: str, function: AsyncBatchFunction, limits: AsyncFunctionDescriptor
) -> AsyncBatchLimits:
    name, most = type(function).__name__, function.max_rows
    if most < 1:
        raise ValueError(f"{method}: max_rows of {name} must be at least 1, not {most}")
    if limits.capacity < most:
        raise ValueError(
            f"{method}: capacity {limits.capacity} is less than max_rows of {name}, which is {most}: no call would"
            " get so many rows. Raise the capacity, to twice as many at least if calls are to overlap"
        )
    wait = milliseconds_of(function.max_wait, "max_wait")
    if wait < 0:
        raise ValueError(f"{method}: max_wait of {name} must be at least 0 ms, not {function.max_wait!r}")
    latency = (
        limits.timeout // 2 if function.latency is None else milliseconds_of(function.latency, "latency")
    )
    if function.latency is not None and latency < 1:
        raise ValueError(f"{method}: latency of {name} must be at least 1 ms, not {function.latency!r}")
    return AsyncBatchLimits(max_rows=most, max_wait_ms=wait, latency_ms=latency)


def _columnar(
    method: str, stream: DataStream, spec: AsyncWaitOperator, schema: TypeInformation | pa.Schema | None
) -> DataStream:
    if schema is not None and not isinstance(schema, pa.Schema):
        raise TypeError(
            f"{method}: the stream has columns, so that the results are record batches: declare them by a pyarrow"
            f" Schema, not {schema!r}"
        )
    output = None if schema is None else schema_bytes(schema)
    made = stream._builder.one_input(
        stream.transformation,
        _NAME,
        AsyncColumnsOperator(**_fields(spec), schema=output),
        output_kind=StreamKind.COLUMNAR,
        output_schema=output,
    )
    return stream._stream(made).start_new_chain()


def _fields(spec: AsyncWaitOperator) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__struct_fields__}
