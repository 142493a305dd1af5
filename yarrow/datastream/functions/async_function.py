"""AsyncFunction: waits for something outside, for many records at once.

An interface alone; called by the event loop of the worker, never by the thread that owns the task. It must not touch
keyed state. How often and when a call is tried again is said in `yarrow.datastream.functions.async_retries`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable
from typing import Generic, TypeVar

from yarrow.datastream.functions.function import Function

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncFunction(Function, Generic[IN, OUT]):
    """Waits for something outside for each record, for many records at once."""

    @abstractmethod
    def async_invoke(self, value: IN) -> Awaitable[list[OUT]]:
        """Return the results of a record.

        Written as `async def`, it runs on the event loop of the worker.
        """

    def timeout(self, value: IN) -> list[OUT]:
        """Return the results of a record whose time is over.

        By default this fails the job with TimeoutError.
        """
        raise TimeoutError(f"async function {type(self).__name__} gave no result in time for {value!r}")
