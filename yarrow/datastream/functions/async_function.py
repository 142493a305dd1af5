"""AsyncFunction and AsyncBatchFunction: wait for something outside, for many records at once.

Interfaces alone; the event loop of the worker calls them, or threads of the operator, never the thread that owns the
task. They must not touch keyed state. How often and when a call is tried again is said in
`yarrow.datastream.functions.async_retries`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable
from typing import Any, Generic, TypeVar

from yarrow.common.time import Duration
from yarrow.datastream.functions.function import Function

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncFunction(Function, Generic[IN, OUT]):
    """Waits for something outside for each record, for many records at once."""

    @abstractmethod
    def async_invoke(self, value: IN) -> Awaitable[list[OUT]] | list[OUT]:
        """Return the results of a record.

        Written as `async def`, it runs on the event loop of the worker. Written as `def`, it runs in one of the
        threads that the program asks for by `threads`.
        """

    def timeout(self, value: IN) -> list[OUT]:
        """Return the results of a record whose time is over.

        By default this fails the job with TimeoutError.
        """
        raise TimeoutError(f"async function {type(self).__name__} gave no result in time for {value!r}")


class AsyncBatchFunction(Function):
    """Waits for something outside that takes many rows at once, such as a model.

    Rows of a stream come as a list, and the results are a list with one result for each row, in their order. Rows of a
    stream of columns come as a pyarrow RecordBatch, and the results are a RecordBatch with as many rows.
    """

    #: Most rows of a call.
    max_rows: int = 64
    #: The time that a row waits until a call has enough rows.
    max_wait: Duration = Duration.of_millis(10)
    #: The time that a call should take at most. A call has as many rows as fit into it by the cost of former calls. If
    #: the fixed part of that cost alone is longer, calls are full. None = half of the timeout.
    latency: Duration | None = None

    @abstractmethod
    def async_invoke(self, values: Any) -> Any:
        """Return one result for each row.

        Written as `async def`, it runs on the event loop of the worker. Written as `def`, it runs in one of the
        threads that the program asks for by `threads`.
        """

    def timeout(self, values: Any) -> Any:
        """Return one result for each row of a call whose time is over.

        By default this fails the job with TimeoutError.
        """
        raise TimeoutError(
            f"async function {type(self).__name__} gave no results in time for {len(values)} rows"
        )
