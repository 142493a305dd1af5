"""How an AsyncFunction is called again, and its limits as the graph holds them.

Values and interfaces alone, usable from any thread; they must pickle. Nothing here waits or calls a function. Users
import these names from `yarrow.datastream.functions`; the strategies that come with Yarrow stand in
`async_retry_strategies`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from yarrow.common.time import Duration, Time, milliseconds_of

if TYPE_CHECKING:
    from yarrow.datastream.functions import AsyncFunction

__all__ = ["AsyncFunctionDescriptor", "AsyncRetryPredicate", "AsyncRetryStrategy"]

OUT = TypeVar("OUT")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Which outcomes of an AsyncFunction are tried again."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Return the test on results, or None when no result is tried again."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Return the test on exceptions, or None when no exception is tried again."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Whether and when an AsyncFunction is tried again. Attempts count from 1; times are in milliseconds."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Whether another attempt may follow after this many."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the time to wait after this many attempts."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return which outcomes are tried again."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """Return the strategy that never tries again."""
        from yarrow.datastream.async_retry_strategies import NO_RETRY_STRATEGY

        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[Any]:
        """Return the strategy that waits the same time before each of `max_attempts` further attempts."""
        from yarrow.datastream.async_retry_strategies import FixedDelayRetryStrategy

        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[Any]:
        """Return the strategy whose waiting time grows by `multiplier`, up to `max_retry_delay`."""
        from yarrow.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class AsyncFunctionDescriptor:
    """An AsyncFunction with its limits, as the graph holds it.

    Raises ValueError for a timeout or capacity below 1.
    """

    class OutputMode(Enum):
        """The order of results."""

        #: As the records came.
        ORDERED = 0
        #: As results come, but never past a watermark.
        UNORDERED = 1

    def __init__(
        self,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int,
        async_retry_strategy: AsyncRetryStrategy[Any],
        output_mode: OutputMode,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity of an async function must be at least 1, not {capacity}")
        if milliseconds_of(timeout) < 1:
            raise ValueError(f"timeout of an async function must be at least 1 ms, not {timeout!r}")
        self.async_function = async_function
        self.timeout = milliseconds_of(timeout)
        self.capacity = capacity
        self.async_retry_strategy = async_retry_strategy
        self.output_mode = output_mode
