"""The strategies by which an AsyncFunction is tried again that come with Yarrow.

Values alone, usable from any thread; they pickle if their predicates do. Nothing here waits: the delay of an attempt
follows from its number, so that one strategy serves many records at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from yarrow.datastream.async_retry import AsyncRetryPredicate, AsyncRetryStrategy

__all__ = [
    "NO_RETRY_STRATEGY",
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]


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
