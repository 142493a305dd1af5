"""How an AsyncFunction is called again, and its limits as the graph holds them.

Values and interfaces alone, usable from any thread; they must pickle. Nothing here waits or calls a function. Users
import these names from `yarrow.datastream.functions`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
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
        return _BackoffRetryStrategy(0, 0, 0, 1.0, _Predicates(None, None))

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[Any]:
        """Return the strategy that waits the same time before each of up to `max_attempts` further
        attempts.
        """
        predicates = _Predicates(result_predicate, exception_predicate)
        return _BackoffRetryStrategy(max_attempts, backoff_time_millis, backoff_time_millis, 1.0, predicates)

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
        predicates = _Predicates(result_predicate, exception_predicate)
        return _BackoffRetryStrategy(max_attempts, initial_delay, max_retry_delay, multiplier, predicates)


@dataclass(frozen=True)
class _Predicates(AsyncRetryPredicate[Any]):
    on_result: Callable[[list[Any]], bool] | None
    on_exception: Callable[[Exception], bool] | None

    def result_predicate(self) -> Callable[[list[Any]], bool] | None:
        return self.on_result

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        return self.on_exception


@dataclass(frozen=True)
class _BackoffRetryStrategy(AsyncRetryStrategy[Any]):
    """A bounded number of attempts with delays in geometric progression; a fixed delay is one with factor 1."""

    max_attempts: int
    initial_delay: int
    max_delay: int
    multiplier: float
    predicates: AsyncRetryPredicate[Any]

    def __post_init__(self) -> None:
        if self.max_attempts < 0 or self.initial_delay < 0 or self.max_delay < self.initial_delay:
            raise ValueError(
                "a retry strategy needs max_attempts >= 0 and 0 <= initial delay <= max delay, got "
                f"{self.max_attempts}, {self.initial_delay} ms, {self.max_delay} ms"
            )
        if self.multiplier < 1.0:
            raise ValueError(f"the multiplier of a retry strategy must be at least 1, not {self.multiplier}")

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self.max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        # The delay is capped at each step so that a late attempt cannot overflow a float.
        delay = float(self.initial_delay)
        for _ in range(current_attempts - 1):
            delay = min(delay * self.multiplier, self.max_delay)
            if delay >= self.max_delay:
                break
        return int(delay)

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return self.predicates


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
