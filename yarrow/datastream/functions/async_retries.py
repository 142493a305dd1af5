"""How an AsyncFunction is called again, and the limits of such calls as the graph holds them.

Values and interfaces alone, usable from any thread; strategies pickle if their predicates do. Nothing here waits or
calls a function: the delay of an attempt follows from its number, so that one strategy serves many records at once.
Users import the interfaces from `yarrow.datastream.functions`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from yarrow.common.time import Duration, Time, milliseconds_of

if TYPE_CHECKING:
    from yarrow.datastream.functions.async_function import AsyncBatchFunction, AsyncFunction

__all__ = [
    "NO_RETRY_STRATEGY",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]

OUT = TypeVar("OUT")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Decides which outcomes of an AsyncFunction lead to another attempt."""

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
        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[Any]:
        """Return the strategy that waits the same time before each of `max_attempts` further attempts."""
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
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class RetryPredicate(AsyncRetryPredicate[Any]):
    """A test on results and a test on exceptions, either of which may be None."""

    def __init__(
        self,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> Callable[[list[Any]], bool] | None:
        return self._result_predicate

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[Any]):
    """Never tries again."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return -1: there is no next attempt to wait for."""
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return RetryPredicate(None, None)


@dataclass(frozen=True)
class FixedDelayRetryStrategy(AsyncRetryStrategy[Any]):
    """A bounded number of further attempts, each after the same time.

    Raises ValueError unless attempts and time are above 0.
    """

    max_attempts: int
    backoff_time_millis: int
    result_predicate: Callable[[list[Any]], bool] | None
    exception_predicate: Callable[[Exception], bool] | None

    def __post_init__(self) -> None:
        _require_positive(max_attempts=self.max_attempts, backoff_time_millis=self.backoff_time_millis)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self.max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self.backoff_time_millis

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return RetryPredicate(self.result_predicate, self.exception_predicate)


@dataclass(frozen=True)
class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[Any]):
    """A bounded number of further attempts, after times that grow by a factor up to a limit.

    Raises ValueError unless all numbers are above 0.
    """

    max_attempts: int
    initial_delay: int
    max_retry_delay: int
    multiplier: float
    result_predicate: Callable[[list[Any]], bool] | None
    exception_predicate: Callable[[Exception], bool] | None

    def __post_init__(self) -> None:
        _require_positive(
            max_attempts=self.max_attempts,
            initial_delay=self.initial_delay,
            max_retry_delay=self.max_retry_delay,
            multiplier=self.multiplier,
        )

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self.max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        # The delay is capped at each step so that a late attempt cannot overflow a float.
        delay = float(self.initial_delay)
        for _ in range(current_attempts - 1):
            grown = min(delay * self.multiplier, self.max_retry_delay)
            if grown == delay:
                break
            delay = grown
        return int(delay)

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return RetryPredicate(self.result_predicate, self.exception_predicate)


def _require_positive(**settings: float) -> None:
    for name, value in settings.items():
        if value <= 0:
            raise ValueError(f"{name} of a retry strategy must be above 0, not {value}")


NO_RETRY_STRATEGY = NoRetryStrategy()


class AsyncFunctionDescriptor:
    """An asynchronous function with its limits, as the graph holds it.

    Raises ValueError for a timeout or capacity below 1, and for threads below 0.
    """

    class OutputMode(Enum):
        """The order of results."""

        #: As the records came.
        ORDERED = 0
        #: As results come, but never past a watermark.
        UNORDERED = 1
        #: As the records of each key came, and never past a watermark.
        BY_KEY = 2

    def __init__(
        self,
        async_function: AsyncFunction[Any, Any] | AsyncBatchFunction,
        timeout: Time | Duration,
        capacity: int,
        async_retry_strategy: AsyncRetryStrategy[Any],
        output_mode: OutputMode,
        threads: int = 0,
    ) -> None:
        for name, number, least in (("threads", threads, 0), ("capacity", capacity, 1)):
            if isinstance(number, bool) or not isinstance(number, int):
                raise TypeError(f"{name} of an async function must be a whole number, not {number!r}")
            if number < least:
                raise ValueError(f"{name} of an async function must be at least {least}, not {number}")
        if milliseconds_of(timeout, "timeout") < 1:
            raise ValueError(f"timeout of an async function must be at least 1 ms, not {timeout!r}")
        self.async_function = async_function
        self.timeout = milliseconds_of(timeout)
        self.capacity = capacity
        self.async_retry_strategy = async_retry_strategy
        self.output_mode = output_mode
        #: Threads that call the function; 0 = it is a coroutine function.
        self.threads = threads
